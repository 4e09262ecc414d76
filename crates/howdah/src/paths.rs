//! Where howdah keeps its state and listens for its control API, if nobody says so.

use howdah_supervisor::system_error::words;
use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The places of whoever runs this.
pub struct Places {
    /// `--state-dir`.
    pub state_dir: PathBuf,
    /// The folder of the control socket, if it is not the state directory.
    runtime_dir: Option<PathBuf>,
}

const STATE_DIR: &str = "/var/lib/howdah";
const RUNTIME_DIR: &str = "/run/howdah";
const SOCKET: &str = "control.sock";

// === impl Places ===

impl Places {
    /// For root the system's folders, for others their own (XDG Base Directory Specification 0.8).
    pub fn of_this_user() -> Places {
        if rustix::process::geteuid().is_root() {
            return Places { state_dir: STATE_DIR.into(), runtime_dir: Some(RUNTIME_DIR.into()) };
        }
        let folder = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        Places { state_dir: state.unwrap_or_else(env::temp_dir).join("howdah"), runtime_dir: None }
    }

    /// The control socket of a howdah with this state directory. Makes its folder.
    ///
    /// # Errors
    /// A sentence, when the folder cannot be made.
    pub fn control_in(&self, state_dir: &Path) -> Result<String, String> {
        let folder = self.control_folder(state_dir);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            format!(
                "the folder {} of the control socket cannot be made: {}; choose another with --control",
                folder.display(),
                words(&error)
            )
        })?;
        Ok(self.control_of(state_dir))
    }

    /// The address of the control API, for a client.
    pub fn control_of(&self, state_dir: &Path) -> String {
        format!("unix:{}", self.control_folder(state_dir).join(SOCKET).display())
    }

    /// A state directory of one's own has its socket with it.
    fn control_folder<'a>(&'a self, state_dir: &'a Path) -> &'a Path {
        match &self.runtime_dir {
            Some(folder) if state_dir == self.state_dir => folder,
            _ => state_dir,
        }
    }
}
