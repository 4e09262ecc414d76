//! Where a generation of an application finds its scripts: decided once, when it is planned, and the same for as long as
//! it lives. Symbolic links are resolved then, so that a deploy that swaps one is never half seen.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The places of a generation. All paths are absolute and, but for those of [`PinnedLink`], as the application sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationPaths {
    /// There is one at least.
    pub targets: Vec<TargetPaths>,
    /// The folder that is `/` for the application.
    pub rootfs: Option<PathBuf>,
    /// The links that were resolved.
    pub pins: Vec<PinnedLink>,
}

/// Where the scripts of a target are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetPaths {
    /// Its name; `None` for that of an application without named targets.
    pub name: Option<String>,
    /// DOCUMENT_ROOT.
    pub root: PathBuf,
    /// The script that runs for every request.
    pub script: Option<FixedScript>,
    /// The script that runs for a folder, a path below it.
    pub index: String,
    /// The script that runs for what is not a script itself.
    pub front_controller: Option<FixedScript>,
}

/// A script that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedScript {
    /// Its path below the root, as configured, without a slash in front.
    pub name: String,
    /// SCRIPT_FILENAME.
    pub filename: PathBuf,
}

/// A link, and where it led: files below the one are those below the other, for as long as the generation lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PinnedLink {
    /// The configured path.
    pub link: PathBuf,
    /// Without links.
    pub leads_to: PathBuf,
}

// === impl GenerationPaths ===

impl GenerationPaths {
    /// The target with this name.
    pub fn target(&self, name: Option<&str>) -> Option<&TargetPaths> {
        self.targets.iter().find(|target| target.name.as_deref() == name)
    }

    /// The folder that is `/` for the application, if it is another one.
    pub fn rootfs(&self) -> Option<&Path> {
        self.rootfs.as_deref()
    }
}
