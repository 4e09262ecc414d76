//! Log files. The supervisor opens them, as it may be root; the router writes the access log, and applications write what
//! PHP says.

use crate::system_error::words;
use howdah_config::LogDestination;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MODE: u32 = 0o640;

/// Files to which an application writes in the place of our own standard output and error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// `stdout`.
    pub stdout: Option<PathBuf>,
    /// `stderr`.
    pub stderr: Option<PathBuf>,
}

// === impl Outputs ===

impl Outputs {
    /// Standard output and error.
    ///
    /// # Errors
    /// With the place in the configuration, the path and the reason.
    pub fn open(&self, application: &str) -> Result<[Option<File>; 2], String> {
        let open = |option: &str, path: &Option<PathBuf>| {
            let file = path.as_ref().map(|path| append_to(path).map_err(|error| (path, error))).transpose();
            file.map_err(|(path, error)| {
                let reason = why_not(path, &error);
                format!("applications/{application}/{option}: {path:?} cannot be opened: {reason}; choose another file")
            })
        };
        Ok([open("stdout", &self.stdout)?, open("stderr", &self.stderr)?])
    }
}

/// A descriptor to write the access log to.
///
/// # Errors
/// With the place in the configuration, the path and the reason.
pub fn open(log: &LogDestination) -> Result<OwnedFd, String> {
    match log {
        LogDestination::Stdout => io::stdout().as_fd().try_clone_to_owned().map_err(|error| words(&error)),
        LogDestination::Path(path) => append_to(path).map(OwnedFd::from).map_err(|error| why_not(path, &error)),
    }
    .map_err(|reason| match log {
        LogDestination::Stdout => format!("access_log: standard output cannot be used: {reason}"),
        LogDestination::Path(path) => format!("access_log: {path:?} cannot be opened: {reason}; choose another file"),
    })
}

/// Makes this file our standard error, and that of the children that are started from now on.
///
/// # Errors
/// A sentence.
pub fn write_errors_to(path: &Path) -> Result<(), String> {
    let redirected = append_to(path).and_then(|file| Ok(rustix::stdio::dup2_stderr(file)?));
    redirected.map_err(|error| {
        format!("the log {path:?} cannot be opened: {}; choose another with --log", why_not(path, &error))
    })
}

/// Why a log cannot be opened: mostly its folder is not there.
fn why_not(path: &Path, error: &io::Error) -> String {
    match path.parent().filter(|folder| error.kind() == io::ErrorKind::NotFound && !folder.is_dir()) {
        Some(folder) => format!("there is no folder {folder:?}"),
        None => words(error),
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/x.log");
        let error = open(&LogDestination::Path(path.clone())).unwrap_err();
        let missing = path.parent().unwrap();
        assert!(error.contains(&format!("there is no folder {missing:?}; choose another file")), "{error}");
    }
}
