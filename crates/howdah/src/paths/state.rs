//! The default paths of howdah's state directory and control socket.

use howdah_supervisor::system_error::error_text;
use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The default paths for the current user.
pub struct StatePaths {
    /// `--state-dir`.
    pub state_dir: PathBuf,
    /// The folder of the control socket; `None` is the state directory.
    runtime_dir: Option<PathBuf>,
}

const STATE_DIR: &str = "/var/lib/howdah";
const RUNTIME_DIR: &str = "/run/howdah";
const SOCKET: &str = "control.sock";

// === impl StatePaths ===

impl StatePaths {
    /// For root the system's folders; for other users folders of their own (XDG Base Directory Specification 0.8).
    pub fn of_this_user() -> StatePaths {
        if rustix::process::geteuid().is_root() {
            return StatePaths { state_dir: STATE_DIR.into(), runtime_dir: Some(RUNTIME_DIR.into()) };
        }
        let folder = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        StatePaths { state_dir: state.unwrap_or_else(env::temp_dir).join("howdah"), runtime_dir: None }
    }

    /// The folder of the control socket of a howdah with the default state directory.
    pub fn default_control_folder(&self) -> &Path {
        self.control_folder(&self.state_dir)
    }

    /// Creates the folder of the control socket for a howdah with this state directory.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn create_control_folder(&self, state_dir: &Path) -> Result<(), String> {
        let folder = self.control_folder(state_dir);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            format!(
                "cannot create the folder {} of the control socket: {}; choose another with --control",
                folder.display(),
                error_text(&error)
            )
        })
    }

    /// The address of the control API of a howdah with this state directory.
    pub fn control_address(&self, state_dir: &Path) -> String {
        format!("unix:{}", self.control_folder(state_dir).join(SOCKET).display())
    }

    /// A state directory other than the default has the socket in it.
    fn control_folder<'a>(&'a self, state_dir: &'a Path) -> &'a Path {
        match &self.runtime_dir {
            Some(folder) if state_dir == self.state_dir => folder,
            _ => state_dir,
        }
    }
}
