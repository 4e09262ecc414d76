//! The file with the supervisor's process id. It is locked for as long as the supervisor lives, so that a second start
//! neither overwrites nor removes it.

use crate::os::system_error::error_text;
use howdah_protocol::trusted_path;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file. It is removed on drop, unless another process has replaced it.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    lock: File,
}

/// The most bytes of a file that are read.
const MAX_BYTES: u64 = 32;

// === impl PidFile ===

impl PidFile {
    /// Writes the file.
    ///
    /// # Errors
    /// A sentence, if the file cannot be written or belongs to another howdah.
    pub fn write(path: &Path) -> Result<PidFile, String> {
        let problem = |error: io::Error| {
            format!("--pid: {path:?} cannot be written: {}; choose another file", error_text(&error))
        };
        let mode = Mode::from_raw_mode(0o644);
        // Not blocking: a named pipe must not make the start wait.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let mut file = trusted_path::open(path, flags, mode).map_err(problem)?;
        // A file system without locks does not prevent the start.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(format!(
                "--pid: {path:?} belongs to another howdah that is running; stop it, or choose another file"
            ));
        }
        let text = format!("{}\n", std::process::id());
        file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(problem)?;
        Ok(PidFile { path: path.to_owned(), lock: file })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another file at the path is not opened: a device or a pipe may be there. A user who replaces the folder meanwhile has no
        // file of another folder removed.
        let identity = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).ok();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok((folder, name)) = trusted_path::folder(&self.path) else { return };
        let Ok(found) = openat(&folder, &name, flags, Mode::empty()).map(File::from) else { return };
        let mut text = String::new();
        if identity(&found) == identity(&self.lock)
            && let Ok(ours) = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
            && ours.take(MAX_BYTES).read_to_string(&mut text).is_ok()
            && text.trim() == std::process::id().to_string()
        {
            let _ = unlinkat(&folder, &name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, RenameFlags, mknodat, renameat_with};
    use std::os::unix::fs::{lchown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_link_in_place_of_the_folder_removes_no_file_elsewhere() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (run, link, victim) = (at("run"), at("link"), at("other/pid"));
        [&run, &at("other")].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        std::fs::write(&victim, "").unwrap();
        symlink(at("other"), &link).unwrap();
        lchown(&link, Some(65534), None).unwrap();
        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    renameat_with(CWD, &run, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let written = (0..10_000).filter(|_| PidFile::write(&run.join("pid")).map(drop).is_ok()).count();
            finished.store(true, Ordering::Relaxed);
            assert!(written > 0, "the folder itself was not found");
        });
        assert!(victim.exists());
    }

    #[test]
    fn a_pipe_in_place_of_the_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let file = PidFile::write(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // It returns when the pipe has a reader.
        let writer = std::thread::spawn({
            let path = path.clone();
            move || drop(std::fs::OpenOptions::new().write(true).open(path).unwrap())
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(file);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!writer.is_finished() && path.exists());
        let _reader = std::fs::File::open(&path).unwrap();
        writer.join().unwrap();
    }

    #[test]
    fn the_file_of_a_running_howdah_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let first = PidFile::write(&path).unwrap();
        assert!(PidFile::write(&path).unwrap_err().contains("another howdah that is running"));
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "99999999\n").unwrap();
        let replaced = PidFile::write(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(PidFile::write(&path).is_err(), "it does not wait for a reader");
        drop(replaced);
        assert!(path.exists(), "it is another file");
    }
}
