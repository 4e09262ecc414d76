//! The records: a ring in memory, and on disk the same in two files.
//!
//! Records are appended to `history.jsonl`. When it has half of the bytes that are allowed, it becomes `history.1.jsonl` in
//! place of the former one. A crash loses its last line at most.
//!
//! One dashboard writes at a time: it holds a lock. A second one of the same howdah, and one whose disk is full, keeps its
//! history in memory.
//!
//! The folder is created and opened as [`trusted_path`] has it: a link of another user is not followed. It is opened once, and
//! its files by their names in it: a link that is put in the place of the folder or of a file later is not followed.

use crate::commands::dashboard::history::record::{Mark, Record, Sample};
use howdah_protocol::trusted_path;
use howdah_supervisor::system_error::error_text;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, mkdirat, openat, renameat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The records of the last hours.
#[derive(Debug)]
pub struct Store {
    /// The oldest first, each with the bytes of its line.
    records: VecDeque<(usize, Record)>,
    bytes: usize,
    max_bytes: usize,
    files: Result<Files, String>,
}

#[derive(Debug)]
struct Files {
    folder: PathBuf,
    opened: File,
    current: File,
    current_bytes: usize,
    _lock: File,
}

/// For 200 applications about four hours, for a few applications [`MAX_SECONDS`].
pub const MAX_BYTES: usize = 16 << 20;
/// The longest history.
pub const MAX_SECONDS: u64 = 24 * 3600;
const CURRENT: &str = "history.jsonl";
const FORMER: &str = "history.1.jsonl";
const LOCK: &str = "lock";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const APPENDED: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CREATE);

// === impl Store ===

impl Store {
    /// Opens the history of a folder; without one, it is in memory. `now` is in seconds since 1970.
    pub fn open(folder: Result<PathBuf, String>, max_bytes: usize, now: u64) -> Store {
        let mut store =
            Store { records: VecDeque::new(), bytes: 0, max_bytes, files: Err("it is in memory only".to_owned()) };
        store.files = folder.and_then(|folder| {
            let files = Files::open(&folder).map_err(|reason| format!("{}: {reason}", folder.display()))?;
            for name in [FORMER, CURRENT] {
                store.load(files.read(name).unwrap_or_default(), now);
            }
            Ok(files)
        });
        store
    }

    /// The folder of the files.
    ///
    /// # Errors
    /// The history is in memory only, for this reason.
    pub fn place(&self) -> Result<&Path, &str> {
        self.files.as_ref().map(|files| files.folder.as_path()).map_err(String::as_str)
    }

    /// Adds a record. A disk that fails is no error: the history is in memory from then on.
    pub fn add(&mut self, record: Record) {
        let Ok(mut line) = serde_json::to_vec(&record) else { return };
        line.push(b'\n');
        if let Ok(files) = &mut self.files
            && let Err(error) = files.append(&line, self.max_bytes / 2)
        {
            let reason = format!("{}: {}", files.folder.display(), error_text(&error));
            tracing::warn!("the history is in memory only from now on: {reason}");
            self.files = Err(reason);
        }
        let now = record.time();
        self.push(line.len(), record, now);
    }

    /// The samples that ended after this time, the oldest first.
    pub fn samples(&self, since: u64) -> impl Iterator<Item = &Sample> {
        self.records.iter().filter_map(move |(_, record)| match record {
            Record::Sample(sample) if sample.time > since => Some(sample),
            _ => None,
        })
    }

    /// The marks after this time, the oldest first.
    pub fn marks(&self, since: u64) -> impl DoubleEndedIterator<Item = &Mark> {
        self.records.iter().filter_map(move |(_, record)| match record {
            Record::Mark(mark) if mark.time > since => Some(mark),
            _ => None,
        })
    }

    fn load(&mut self, content: Vec<u8>, now: u64) {
        for line in content.split(|byte| *byte == b'\n') {
            let Ok(record) = serde_json::from_slice::<Record>(line) else { continue };
            // The clock may have been wrong.
            if record.time() <= now {
                self.push(line.len() + 1, record, now);
            }
        }
    }

    fn push(&mut self, bytes: usize, record: Record, now: u64) {
        self.records.push_back((bytes, record));
        self.bytes += bytes;
        while let Some((bytes, record)) = self.records.front()
            && (self.bytes > self.max_bytes || record.time() + MAX_SECONDS < now)
        {
            self.bytes -= bytes;
            self.records.pop_front();
        }
    }
}

// === impl Record ===

impl Record {
    /// In seconds since 1970.
    fn time(&self) -> u64 {
        match self {
            Record::Mark(mark) => mark.time,
            Record::Sample(sample) => sample.time,
        }
    }
}

// === impl Files ===

impl Files {
    fn open(folder: &Path) -> Result<Files, String> {
        let sentence = |error: io::Error| error_text(&error).to_string();
        create(folder).map_err(sentence)?;
        let (found, _) = trusted_path::folder(&folder.join(LOCK)).map_err(sentence)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(found, ".", flags, Mode::empty()).map_err(|error| sentence(error.into()))?;
        let opened = File::from(opened);
        // The configuration's differences are in the history.
        let metadata = opened.metadata().map_err(sentence)?;
        let owner = trusted_path::owner_of_opened(&opened).map_err(sentence)?;
        if owner != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err("other users can enter the folder; choose another with --history".to_owned());
        }
        let lock = open_in(&opened, LOCK, OFlags::WRONLY | OFlags::CREATE).map_err(sentence)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| "another dashboard of the same howdah writes there".to_owned())?;
        let mut current = open_in(&opened, CURRENT, APPENDED).map_err(sentence)?;
        // The end of a line that a crash has cut off.
        current.write_all(b"\n").map_err(sentence)?;
        let current_bytes = current.metadata().map_err(sentence)?.len();
        let current_bytes = usize::try_from(current_bytes).unwrap_or(usize::MAX);
        Ok(Files { folder: folder.to_owned(), opened, current, current_bytes, _lock: lock })
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // howdah's own files have half of that.
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        open_in(&self.opened, name, OFlags::RDONLY)?.take(most).read_to_end(&mut content)?;
        Ok(content)
    }

    /// One write: a line is on disk whole, or its end is missing.
    fn append(&mut self, line: &[u8], max_bytes: usize) -> io::Result<()> {
        if self.current_bytes.saturating_add(line.len()) > max_bytes {
            renameat(&self.opened, CURRENT, &self.opened, FORMER)?;
            self.current = open_in(&self.opened, CURRENT, APPENDED)?;
            self.current_bytes = 0;
        }
        self.current.write_all(line)?;
        self.current_bytes += line.len();
        Ok(())
    }
}

/// Creates the folder with those that it is in, where they do not exist.
fn create(folder: &Path) -> io::Result<()> {
    let Some(parent) = folder.parent() else { return Ok(()) };
    let (parent, name) = match trusted_path::folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(parent)?;
            trusted_path::folder(folder)?
        }
        found => found?,
    };
    match mkdirat(&parent, &name, Mode::from_raw_mode(FOLDER_MODE)) {
        Err(Errno::EXIST) => Ok(()),
        made => Ok(made?),
    }
}

/// A regular file in this folder.
fn open_in(folder: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::from_raw_mode(FILE_MODE))?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other(format!("{name} is not a file"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dashboard::history::record::MarkKind;
    use std::fs::OpenOptions;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    fn sample(time: u64) -> Record {
        Record::Sample(Sample { time, seconds: 5.0, ..Sample::default() })
    }

    fn times(store: &Store) -> Vec<u64> {
        store.samples(0).map(|sample| sample.time).collect()
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a/b");
        (place, folder)
    }

    #[test]
    fn the_history_survives_a_restart_and_a_crash() {
        let (_place, folder) = folder();
        let mut store = Store::open(Ok(folder.clone()), MAX_BYTES, 1000);
        assert_eq!(store.place(), Ok(folder.as_path()));
        store.add(sample(1000));
        let mark =
            Mark { time: 1001, kind: MarkKind::Lost, application: None, text: "x".into(), etag: None, changes: vec![] };
        store.add(Record::Mark(mark));
        store.add(sample(1005));
        drop(store);
        // A crash within a line, and a line of another program.
        let mut file = OpenOptions::new().append(true).open(folder.join(CURRENT)).unwrap();
        file.write_all(b"{\"t\": \xff}\n{\"t\":1007,\"s\":5").unwrap();
        let mut store = Store::open(Ok(folder.clone()), MAX_BYTES, 1010);
        assert_eq!((times(&store), store.marks(0).count(), store.marks(1001).count()), (vec![1000, 1005], 1, 0));
        store.add(sample(1010));
        drop(store);
        assert_eq!(times(&Store::open(Ok(folder.clone()), MAX_BYTES, 1010)), [1000, 1005, 1010]);
        let modes =
            [folder.clone(), folder.join(CURRENT)].map(|path| path.metadata().unwrap().permissions().mode() & 0o777);
        assert_eq!(modes, [FOLDER_MODE, FILE_MODE]);
    }

    #[test]
    fn memory_and_disk_are_bounded() {
        let (_place, folder) = folder();
        let mut store = Store::open(Ok(folder.clone()), 2000, 0);
        for time in 0..1000 {
            store.add(sample(time));
        }
        let on_disk: u64 = [CURRENT, FORMER].iter().map(|name| folder.join(name).metadata().unwrap().len()).sum();
        assert!(on_disk <= 2000 && store.bytes <= 2000, "{on_disk} {}", store.bytes);
        let kept = times(&store);
        assert!(kept.len() > 20 && kept.last() == Some(&999), "{kept:?}");
        drop(store);
        let reopened = Store::open(Ok(folder), 2000, 1000);
        assert!(times(&reopened).len() > 20 && times(&reopened).last() == Some(&999));
    }

    #[test]
    fn old_and_future_records_are_dropped() {
        let (_place, folder) = folder();
        let mut store = Store::open(Ok(folder.clone()), MAX_BYTES, 0);
        for time in [10, MAX_SECONDS, MAX_SECONDS + 11] {
            store.add(sample(time));
        }
        assert_eq!(times(&store), [MAX_SECONDS, MAX_SECONDS + 11]);
        drop(store);
        assert_eq!(times(&Store::open(Ok(folder), MAX_BYTES, MAX_SECONDS)), [10, MAX_SECONDS]);
    }

    #[test]
    fn links_that_are_put_in_its_place_are_not_followed() {
        let (place, folder) = folder();
        let (moved, other) = (place.path().join("moved"), place.path().join("other"));
        let mut store = Store::open(Ok(folder.clone()), 400, 0);
        std::fs::rename(&folder, &moved).unwrap();
        std::fs::create_dir(&other).unwrap();
        symlink(&other, &folder).unwrap();
        for time in 0..100 {
            store.add(sample(time));
        }
        assert!(store.place().is_ok() && moved.join(FORMER).exists());
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
        drop(store);
        std::fs::remove_file(moved.join(CURRENT)).unwrap();
        symlink(other.join("file"), moved.join(CURRENT)).unwrap();
        assert!(Store::open(Ok(moved), 400, 0).place().is_err() && !other.join("file").exists());
    }

    #[test]
    fn links_of_another_user_are_not_followed_at_the_start() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (place, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (place.path().join("ours"), place.path().join("theirs"));
        std::fs::set_permissions(&target, PermissionsExt::from_mode(FOLDER_MODE)).unwrap();
        for link in [&ours, &theirs] {
            symlink(target.path(), link).unwrap();
        }
        lchown(&theirs, Some(65534), None).unwrap();
        for folder in [theirs.clone(), theirs.join("a"), theirs.join("a/b")] {
            let store = Store::open(Ok(folder), MAX_BYTES, 0);
            assert!(store.place().unwrap_err().contains("symbolic link of user id 65534"), "{:?}", store.place());
        }
        assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
        // Links of this user lead anywhere.
        for folder in [ours.clone(), ours.join("a/b")] {
            Store::open(Ok(folder), MAX_BYTES, 0).place().unwrap();
        }
        assert!(target.path().join("a/b").join(CURRENT).exists());
    }

    #[test]
    fn without_a_folder_it_is_in_memory() {
        let (_place, folder) = folder();
        let first = Store::open(Ok(folder.clone()), MAX_BYTES, 0);
        let mut second = Store::open(Ok(folder.clone()), MAX_BYTES, 0);
        assert!(second.place().unwrap_err().ends_with("another dashboard of the same howdah writes there"));
        second.add(sample(1));
        assert_eq!(times(&second), [1]);
        drop(first);
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        let open = Store::open(Ok(folder), MAX_BYTES, 0);
        assert!(open.place().unwrap_err().contains("other users can enter the folder"));
        assert!(Store::open(Ok("/proc/none".into()), MAX_BYTES, 0).place().is_err());
    }
}
