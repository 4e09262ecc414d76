//! The slow logs. The supervisor opens them, because it may be root, and reads their ends for the API; workers write
//! them.
//!
//! The content of a slow log comes from the application and its clients. It is passed on as it is, and not interpreted.

use super::logs::append_to;
use crate::os::hanging_threads::HangingThreads;
use crate::os::system_error::error_text;
use howdah_protocol::messages::prototype::SlowRequests;
use howdah_protocol::trusted_path;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A slow log.
#[derive(Clone, Debug)]
pub struct SlowLogFile {
    /// The file, in howdah's own folder, or at a configured path.
    path: PathBuf,
    is_in_our_folder: bool,
    file: Option<Arc<File>>,
    /// Which requests are logged, and in what detail.
    pub requests: SlowRequests,
    is_rotating: Arc<AtomicBool>,
}

/// Falls when it is dropped, also by a panic.
struct RotatingFlag(Arc<AtomicBool>);

/// The right to rotate a file, which one thread has at a time.
struct Turn(FileId);

/// The device and the inode of a file.
type FileId = (u64, u64);

/// The files that are being rotated. The lock is not held while one is: its disk may be slow, or hang.
static ROTATING: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

/// The threads that rotate.
static ROTATIONS: Mutex<HangingThreads> = Mutex::new(HangingThreads::new("slow log"));

const FOLDER_MODE: u32 = 0o700;
/// The bits of a mode that a copy gets. Without set-user-ID: the content is not ours.
const ACCESS: u32 = 0o777;
/// A longer file is renamed to `.1`. Workers stop writing at four times this length.
const ROTATE_BYTES: u64 = 16 << 20;
/// The end of the name of the former file.
const ROTATED: &str = ".1";
/// The most that a rotation copies of the file's end.
const MAX_COPIED_BYTES: u64 = 4 * ROTATE_BYTES;
/// How much of the end the API returns.
const TAIL_BYTES: u64 = 4 << 20;

// === impl SlowLogFile ===

impl SlowLogFile {
    /// A slow log that is not open yet. Its folder is created if it is ours.
    pub fn new(path: PathBuf, is_in_our_folder: bool, requests: SlowRequests) -> SlowLogFile {
        SlowLogFile { path, is_in_our_folder, file: None, requests, is_rotating: Arc::default() }
    }

    /// Opens the file for its writers. The file system may hang.
    ///
    /// # Errors
    /// With the path, the reason and what to do.
    pub fn open(&mut self) -> Result<(), String> {
        let opened = || {
            if let Some(folder) = self.path.parent().filter(|_| self.is_in_our_folder) {
                DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
            }
            let file = match append_to(&self.path) {
                // A named pipe without a reader.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => return Err(not_regular()),
                opened => opened?,
            };
            if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
        };
        self.file = Some(Arc::new(opened().map_err(|error| self.problem("opened", &error))?));
        Ok(())
    }

    /// The file, if it could be opened.
    pub fn file(&self) -> Option<&File> {
        self.file.as_deref()
    }

    /// Rotates the file if it has grown long: its content moves to a file with `.1` at the end of the name. That
    /// happens on a thread, because the file system may hang.
    pub fn rotate_if_long(&self, application: &str) {
        if self.is_rotating.swap(true, Ordering::SeqCst) {
            return;
        }
        let log = self.clone();
        let is_rotating = RotatingFlag(Arc::clone(&self.is_rotating));
        let rotate = move || {
            let _is_rotating = is_rotating;
            if let Err(error) = log.rotate() {
                tracing::warn!("{}", log.problem("rotated", &error));
            }
        };
        // Each generation has a file of its own: threads that hang count for the application. Without a thread, the flag is
        // dropped at once.
        ROTATIONS.lock().unwrap_or_else(PoisonError::into_inner).start(application, rotate);
    }

    /// Workers keep the file open and append to it, so its end is copied, and then it is emptied. Lines that are
    /// written between these two steps are lost. Code of the application may have written more than workers do. Other
    /// users may be able to write to the folder, or own the file: no link is followed, all is done in one folder, only the
    /// file that is written is emptied, and a copy, which belongs to us, is no program that runs as its owner. The former
    /// `.1` is replaced only by a complete file.
    fn rotate(&self) -> io::Result<()> {
        let Some(written) = &self.file else { return Ok(()) };
        if !std::fs::symlink_metadata(&self.path).is_ok_and(|it| it.is_file() && it.len() > ROTATE_BYTES) {
            return Ok(());
        }
        let written = id(&written.metadata()?);
        // Two applications may have the same log.
        let Some(_turn) = Turn::of(written) else { return Ok(()) };
        let (folder, name) = trusted_path::folder(&self.path)?;
        let open = |name: &OsStr, flags: OFlags, mode: u32| {
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            openat(&folder, name, flags, Mode::from_raw_mode(mode)).map(File::from)
        };
        let mut file = open(&name, OFlags::RDWR, 0)?;
        let metadata = file.metadata()?;
        if id(&metadata) != written || metadata.len() <= ROTATE_BYTES {
            return Ok(());
        }
        let (rotated, temporary) = (with_suffix(&name, ROTATED), with_suffix(&name, ".1.new"));
        let remove_temporary = || unlinkat(&folder, &temporary, AtFlags::empty());
        let _ = remove_temporary();
        file.seek(SeekFrom::Start(metadata.len().saturating_sub(MAX_COPIED_BYTES)))?;
        let mode = metadata.permissions().mode() & ACCESS;
        let copied = open(&temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)
            .map_err(io::Error::from)
            .and_then(|mut copy| io::copy(&mut (&file).take(MAX_COPIED_BYTES), &mut copy))
            .and_then(|_| Ok(renameat(&folder, &temporary, &folder, &rotated)?));
        if copied.is_err() {
            let _ = remove_temporary();
        }
        copied?;
        file.set_len(0)
    }

    fn rotated_path(&self) -> PathBuf {
        with_suffix(self.path.as_os_str(), ROTATED).into()
    }

    /// The last complete lines, after those of the rotated file if there is room for these.
    ///
    /// # Errors
    /// With the path and the reason.
    pub fn tail(&self) -> Result<Vec<u8>, String> {
        let last = tail(&self.path, TAIL_BYTES).map_err(|error| self.problem("read", &error))?;
        let room = TAIL_BYTES.saturating_sub(last.len() as u64);
        let before = tail(&self.rotated_path(), room).unwrap_or_default();
        Ok([before, last].concat())
    }

    fn problem(&self, what: &str, error: &io::Error) -> String {
        let advice = match error.kind() {
            io::ErrorKind::NotFound if self.file.is_some() => {
                "`howdah restart` of its application opens it again, if it was moved away"
            }
            _ => "choose another file with \"path\"",
        };
        format!("{:?} cannot be {what}: {}; {advice}", self.path, error_text(error))
    }
}

fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = trusted_path::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(not_regular());
    }
    let len = metadata.len();
    let from = len.saturating_sub(most);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    if from > 0 {
        let cut = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        bytes.drain(..cut);
    }
    Ok(bytes)
}

/// The file is read too, and grows without end: it must not be a pipe or a device.
fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file")
}

// === impl RotatingFlag ===

impl Drop for RotatingFlag {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

// === impl Turn ===

impl Turn {
    /// `None` while another thread rotates the file.
    fn of(file: FileId) -> Option<Turn> {
        let is_free = Turn::rotating().insert(file);
        is_free.then(|| Turn(file))
    }

    fn rotating() -> MutexGuard<'static, BTreeSet<FileId>> {
        // The set is complete at any time.
        ROTATING.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        Turn::rotating().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn log(path: PathBuf) -> SlowLogFile {
        let requests = SlowRequests { threshold_ms: 1, samples: 1 };
        SlowLogFile::new(path, false, requests)
    }

    #[test]
    fn a_tail_has_complete_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "first\nsecond\nthird\n").unwrap();
        assert_eq!(tail(&path, 100).unwrap(), b"first\nsecond\nthird\n");
        assert_eq!(tail(&path, 10).unwrap(), b"third\n");
        assert_eq!(tail(&path, 3).unwrap(), b"");
    }

    #[test]
    fn a_pipe_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let mut log = log(path);
        for problem in [log.open().unwrap_err(), log.tail().unwrap_err()] {
            assert!(problem.contains("it is not a regular file; choose another"), "{problem}");
        }
    }

    #[test]
    fn a_long_file_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = log(path);
        log.open().unwrap();
        let mut writer = log.file().unwrap().try_clone().unwrap();
        writer.set_len(ROTATE_BYTES).unwrap();
        log.rotate().unwrap();
        assert_eq!(writer.metadata().unwrap().len(), ROTATE_BYTES);
        writer.write_all(b"\nold\n").unwrap();
        log.rotate().unwrap();
        writer.write_all(b"new\n").unwrap();
        assert_eq!(writer.metadata().unwrap().len(), 4, "it is the same file");
        assert_eq!(log.tail().unwrap(), b"old\nnew\n");
    }

    #[test]
    fn a_file_is_rotated_once_at_a_time_and_others_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other_path) = (folder.path().join("log"), folder.path().join("other"));
        let [mut one, mut same, mut other] = [path.clone(), path, other_path].map(log);
        for log in [&mut one, &mut same, &mut other] {
            log.open().unwrap();
            log.file().unwrap().set_len(ROTATE_BYTES + 1).unwrap();
        }
        let length = |log: &SlowLogFile| log.file().unwrap().metadata().unwrap().len();
        let turn = Turn::of(id(&one.file().unwrap().metadata().unwrap())).unwrap();
        [&same, &other].into_iter().for_each(|log| log.rotate().unwrap());
        assert_eq!((length(&same), length(&other)), (ROTATE_BYTES + 1, 0));
        drop(turn);
        same.rotate().unwrap();
        assert_eq!(length(&one), 0);
    }

    #[test]
    fn a_rotation_copies_no_more_than_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = log(path);
        log.open().unwrap();
        let mut writer = log.file().unwrap().try_clone().unwrap();
        // A hole takes no space.
        writer.set_len(1 << 40).unwrap();
        writer.write_all(b"\nlast\n").unwrap();
        log.rotate().unwrap();
        let copy = std::fs::metadata(log.rotated_path()).unwrap();
        assert_eq!((writer.metadata().unwrap().len(), copy.len()), (0, MAX_COPIED_BYTES));
        assert_eq!(log.tail().unwrap(), b"last\n");
    }

    #[test]
    fn the_owner_of_a_log_gets_no_program_that_runs_as_us() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = log(path.clone());
        log.open().unwrap();
        let writer = log.file().unwrap().try_clone().unwrap();
        writer.set_len(ROTATE_BYTES + 1).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6755)).unwrap();
        log.rotate().unwrap();
        assert_eq!(std::fs::metadata(log.rotated_path()).unwrap().permissions().mode() & 0o7000, 0);
    }

    #[test]
    fn only_the_file_that_is_written_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("log"), folder.path().join("victim"));
        let mut log = log(path.clone());
        log.open().unwrap();
        File::create(&victim).unwrap().set_len(ROTATE_BYTES + 1).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&victim, &path).unwrap();
        log.rotate().unwrap();
        assert_eq!(std::fs::metadata(&victim).unwrap().len(), ROTATE_BYTES + 1);
        assert!(!log.rotated_path().exists());
    }

    #[test]
    fn a_link_in_place_of_the_folder_makes_no_file_elsewhere() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (logs, secret) = (folder.path().join("logs"), folder.path().join("secret"));
        [&logs, &secret].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let mut log = log(logs.join("log"));
        log.open().unwrap();
        log.file().unwrap().set_len(ROTATE_BYTES + 1).unwrap();
        // As if the user was faster than the rotation: it has looked at the file, and makes its copy now.
        std::fs::hard_link(logs.join("log"), secret.join("log")).unwrap();
        std::fs::rename(&logs, folder.path().join("old")).unwrap();
        std::os::unix::fs::symlink(&secret, &logs).unwrap();
        std::os::unix::fs::lchown(&logs, Some(65534), None).unwrap();
        log.rotate().unwrap_err();
        assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 1, "no copy is here");
        assert_eq!(log.file().unwrap().metadata().unwrap().len(), ROTATE_BYTES + 1);
    }
}
