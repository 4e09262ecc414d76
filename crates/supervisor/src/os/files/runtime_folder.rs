//! The private folder of a `howdah serve`: it has the control socket and the slow logs, and is removed at the end.
//!
//! Another howdah removes the folder of one that was killed.

use std::path::PathBuf;

/// The folder. It is removed on drop, with everything in it.
#[derive(Debug)]
pub struct RuntimeFolder {
    path: PathBuf,
}

// === impl RuntimeFolder ===

impl RuntimeFolder {
    /// The folder with this path, which exists.
    pub fn new(path: PathBuf) -> RuntimeFolder {
        RuntimeFolder { path }
    }
}

impl Drop for RuntimeFolder {
    fn drop(&mut self) {
        // If this fails, the next start removes the folder.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
