//! The files of certificates: `certs/NAME` in the state directory.

use crate::store::state_directory::{remove_access_of_others, replace_file};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem, ErrorKind::StorageFull};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folder. It does not exist if it was never created, and the file system is full or read-only.
#[derive(Debug)]
pub struct Storage {
    folder: PathBuf,
}

const FOLDER: &str = "certs";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

// === impl Storage ===

impl Storage {
    /// Opens the folder in the state directory, and creates it if it does not exist.
    pub fn open(state_directory: &Path) -> Result<Storage, String> {
        let folder = state_directory.join(FOLDER);
        match DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&folder) {
            Err(error) if !matches!(error.kind(), ReadOnlyFilesystem | StorageFull | QuotaExceeded) => {
                Err(format!("cannot create the folder of certificates {folder:?}: {error}; choose another --state-dir"))
            }
            created => {
                if let Some(error) = created.err().filter(|error| error.kind() != ReadOnlyFilesystem) {
                    tracing::warn!("cannot create the folder of certificates {folder:?}: {error}; make room");
                }
                remove_access_of_others(&folder, FOLDER_MODE);
                Ok(Storage { folder })
            }
        }
    }

    /// All files by name, without hidden ones: a crash has left those.
    pub fn read(&self) -> Vec<(String, io::Result<Vec<u8>>)> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                tracing::error!("cannot read the certificates in {:?}: {error}", self.folder);
                return Vec::new();
            }
        };
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| !name.starts_with('.')).map(|name| (name.clone(), self.read_file(&name))).collect()
    }

    /// Writes a file completely, or not at all.
    pub fn write(&self, name: &str, content: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        let created = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.folder);
        created
            .and_then(|()| replace_file(&path, content.as_bytes()))
            .map_err(|error| format!("cannot write {path:?}: {error}; make room, or choose another --state-dir"))
    }

    /// Whether there is a file with this name.
    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    /// Removes a file. A file that does not exist is no error.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        match std::fs::remove_file(&path).and_then(|()| self.sync()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("cannot remove {path:?}: {error}")),
            _ => Ok(()),
        }
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.folder.join(name);
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        remove_access_of_others(&path, FILE_MODE);
        std::fs::read(path)
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}
