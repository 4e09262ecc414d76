//! The file with the supervisor's process id. It is locked for as long as the supervisor lives, so that a second start
//! neither overwrites nor removes it.
//!
//! All users can read the file, so they can lock it, too: by flock(2), and by fcntl(2) for reading. Only a lock for writing, which
//! needs a descriptor that can write, is another howdah's. A file that others have locked is replaced.

use crate::os::files::hanging::{TIMEOUT_AT_START, clean_up, within_if_it_may_hang};
use crate::os::system_error::error_text;
use howdah_protocol::trusted_path;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, unlinkat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file. It is removed on drop, unless another process has replaced it.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Locked; `None` when it is removed.
    file: Option<File>,
}

/// The mode of the file.
const MODE: u32 = 0o644;
/// The mode until it is locked: no other user can open it.
const PRIVATE_MODE: u32 = 0o600;
/// The most bytes of a file that are read.
const MAX_BYTES: u64 = 32;

// === impl PidFile ===

impl PidFile {
    /// Writes the file.
    ///
    /// # Errors
    /// A sentence, if the file cannot be written or belongs to another howdah.
    pub fn write(path: &Path) -> Result<PidFile, String> {
        let problem = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("--pid: {path:?} belongs to another howdah that is running; stop it, or choose another file")
            }
            _ => format!("--pid: {path:?} cannot be written: {}; choose another file", error_text(&error)),
        };
        let owned = path.to_owned();
        within_if_it_may_hang(path, TIMEOUT_AT_START, move |_| write(&owned)).map_err(problem)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // A file that stays is replaced by the next start.
            let path = self.path.clone();
            clean_up(&self.path, move || remove(&path, file));
        }
    }
}

/// Writes the file. `AddrInUse`: it belongs to another howdah.
fn write(path: &Path) -> io::Result<PidFile> {
    // Not blocking: a named pipe must not make the start wait.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
    let mut file = trusted_path::open(path, flags, Mode::from_raw_mode(MODE))?;
    if !lock(&file) {
        if is_locked_for_writing(&file) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        file = replace(path, &file)?.ok_or(io::ErrorKind::AddrInUse)?;
    }
    let text = format!("{}\n", std::process::id());
    file.set_len(0)?;
    file.write_all(text.as_bytes())?;
    Ok(PidFile { path: path.to_owned(), file: Some(file) })
}

/// Removes the file if it is ours, and closes it.
fn remove(path: &Path, lock: File) {
    let Ok((folder, name)) = trusted_path::folder(path) else { return };
    let mut text = String::new();
    if let Some(found) = find(folder.as_fd(), &name, &lock)
        && let Ok(ours) = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
        && ours.take(MAX_BYTES).read_to_string(&mut text).is_ok()
        && text.trim() == std::process::id().to_string()
    {
        let _ = unlinkat(&folder, &name, AtFlags::empty());
    }
}

/// Locks the file for writing. Returns false if another lock prevents it. A file system without locks does not prevent the start.
fn lock(file: &File) -> bool {
    let lock = whole_file(libc::F_WRLCK);
    !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&lock)), Err(nix::Error::EAGAIN | nix::Error::EACCES))
}

/// Whether another descriptor has a lock for writing: only this prevents one for reading.
fn is_locked_for_writing(file: &File) -> bool {
    let mut lock = whole_file(libc::F_RDLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
}

/// A lock of this kind, whatever the file's length is.
fn whole_file(kind: i32) -> libc::flock {
    // These constants are small.
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Makes a locked file with the same name and mode in the place of this one. `None` if another process has it already.
fn replace(path: &Path, former: &File) -> io::Result<Option<File>> {
    let (folder, name) = trusted_path::folder(path)?;
    if find(folder.as_fd(), &name, former).is_some() {
        tracing::warn!("another user has locked the pid file {path:?}; replacing it");
        unlinkat(&folder, &name, AtFlags::empty())?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = File::from(openat(&folder, &name, flags, Mode::from_raw_mode(PRIVATE_MODE))?);
    if !lock(&file) {
        return Ok(None);
    }
    fchmod(&file, Mode::from_raw_mode(former.metadata()?.mode() & MODE))?;
    Ok(Some(file))
}

/// This file, if it has this name. Another file is not opened: a device or a pipe may be there. A user who replaces the folder
/// meanwhile has no file of another folder removed.
fn find(folder: BorrowedFd<'_>, name: &OsStr, file: &File) -> Option<File> {
    let identity = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).ok();
    let found = File::from(openat(folder, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?);
    (identity(&found) == identity(file)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, FlockOperation, RenameFlags, flock, mknodat, renameat_with};
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
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
    fn locks_of_readers_do_not_prevent_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let read_lock = |file: &File| {
            fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_RDLCK))).unwrap();
        };
        let flocked = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).unwrap();
        for (attack, is_replaced) in [(&flocked as &dyn Fn(&File), false), (&read_lock, true)] {
            std::fs::write(&path, "99999999\n").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let reader = File::open(&path).unwrap();
            attack(&reader);
            let running = PidFile::write(&path).unwrap();
            let metadata = path.metadata().unwrap();
            assert_eq!(metadata.ino() != reader.metadata().unwrap().ino(), is_replaced);
            assert_eq!(metadata.mode() & 0o777, 0o640);
            assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
            let late = File::open(&path).unwrap();
            assert!(fcntl(&late, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_RDLCK))).is_err());
            assert!(PidFile::write(&path).unwrap_err().contains("another howdah that is running"));
            drop(running);
            assert!(!path.exists());
        }
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
