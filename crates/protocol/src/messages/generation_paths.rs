//! The paths of a generation's scripts. They are resolved once, when the generation is planned, and do not change while it
//! lives: a deploy that swaps a symbolic link is never seen half done.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The paths of a generation. All are absolute, and as the application sees them, except those of [`PinnedLink`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationPaths {
    /// At least one.
    pub targets: Vec<TargetPaths>,
    /// The scripts of an application with several worker scripts, in the order of the configuration.
    pub worker_scripts: Vec<WorkerScriptPaths>,
    /// The folder that is `/` for the application.
    pub rootfs: Option<PathBuf>,
    /// The links that were resolved.
    pub pins: Vec<PinnedLink>,
}

/// The scripts of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetPaths {
    /// Its name; `None` in an application without named targets.
    pub name: Option<String>,
    /// DOCUMENT_ROOT.
    pub root: PathBuf,
    /// The script that runs for every request.
    pub script: Option<FixedScript>,
    /// The script that runs for a folder: a path below the folder.
    pub index: String,
    /// The script that runs for paths that are not scripts.
    pub front_controller: Option<FixedScript>,
}

/// One of several worker scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerScriptPaths {
    /// The script.
    pub script: FixedScript,
    /// The patterns of the paths that it handles, as configured; `None`: the requests that would run it in classic mode.
    pub patterns: Option<Vec<String>>,
}

/// A script that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedScript {
    /// Its path below the root, as configured, without a slash in front.
    pub name: String,
    /// SCRIPT_FILENAME.
    pub filename: PathBuf,
}

/// A link and its target when the generation was planned: while the generation lives, paths below the link lead there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PinnedLink {
    /// The configured path.
    pub link: PathBuf,
    /// The path without links.
    pub leads_to: PathBuf,
}

// === impl GenerationPaths ===

impl GenerationPaths {
    /// The target with this name.
    pub fn target(&self, name: Option<&str>) -> Option<&TargetPaths> {
        self.targets.iter().find(|target| target.name.as_deref() == name)
    }

    /// The folder that is `/` for the application, if that is not `/`.
    pub fn rootfs(&self) -> Option<&Path> {
        self.rootfs.as_deref()
    }
}
