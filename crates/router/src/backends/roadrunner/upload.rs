//! An uploaded file: the worker gets its path, and reads it. It is removed at the end of the request.

use crate::backends::buffering::body_disk::BodyOnDisk;
use serde::Serialize;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// A file, as a worker gets it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Upload {
    /// Its name on the client.
    name: String,
    /// Its type, as the client named it.
    mime: String,
    size: u64,
    /// A code of PHP: `UPLOAD_ERR_…`.
    error: u8,
    tmp_name: PathBuf,
}

/// A file that is being received.
#[derive(Debug)]
pub struct UploadWriter {
    upload: Upload,
    file: File,
    path: TempPath,
}

/// `UPLOAD_ERR_NO_FILE`: the field of the form was left empty.
const NO_FILE: u8 = 4;
/// The application's group reads the file: the folder has that group.
const MODE: u32 = 0o640;

// === impl Upload ===

impl Upload {
    /// The upload of a field without a file.
    pub fn without_file() -> Upload {
        Upload { name: String::new(), mime: String::new(), size: 0, error: NO_FILE, tmp_name: PathBuf::new() }
    }
}

// === impl UploadWriter ===

impl UploadWriter {
    /// Makes a file, which counts among those of the form.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn create(folder: &Path, name: String, mime: String, disk: &mut BodyOnDisk) -> io::Result<UploadWriter> {
        let (file, path) = tempfile::Builder::new().prefix("upload").tempfile_in(folder)?.into_parts();
        file.set_permissions(Permissions::from_mode(MODE))?;
        disk.add_file(&file);
        let upload = Upload { name, mime, size: 0, error: 0, tmp_name: path.to_path_buf() };
        Ok(UploadWriter { upload, file, path })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn write(&mut self, bytes: &[u8], disk: &mut BodyOnDisk) -> io::Result<()> {
        self.upload.size += bytes.len() as u64;
        disk.count(&self.file, bytes.len() as u64);
        self.file.write_all(bytes)
    }

    /// The upload, and its path, which removes the file when it is dropped.
    pub fn finish(self) -> (Upload, TempPath) {
        (self.upload, self.path)
    }
}
