//! Writes to the files of an application in development: inotify, with a watch for each folder.
//!
//! Files that are written together (a checkout, an install) are reported once, after the last write. If the kernel has
//! no more watches, that is logged once for each application, with what to do; the folders that are watched already
//! stay watched. An application has at most [`MAX_FOLDERS`] watches: its user must not take those of all other programs of
//! root by making folders. Writes of another machine to a network file system are not noticed.
//!
//! A file that was written after the generation was made, and before it was watched, is reported like an edit, also if the
//! application itself wrote it while it booted.
//!
//! A watch belongs to a folder, not to its path. If another folder takes the path of a watched one, that is reported
//! like an edit, and the new folder is watched.
//!
//! File systems may hang: each application has a thread of its own, so that it delays no other one. Its edits are noticed again when
//! the file system answers.
//!
//! Root opens these folders, and their owner may put links there: such a link leads to folders of this owner only
//! ([`trusted_path`]), so that those of others are neither listed nor watched.

#[cfg(test)]
mod tests;

use super::files::{counts_as_code, is_watched};
use super::messages::{DeployNotice, WatchedApplication};
use crate::os::system_error::error_text;
use howdah_protocol::plain_text::plain_and_short;
use howdah_protocol::{descriptor_path, trusted_path};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{DirEntry, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch::Receiver;

/// Edits are reported when no file has been written for this time...
const QUIET_TIME: Duration = Duration::from_millis(200);
/// ...or at the latest after this time.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// The time between two checks whether the folders of an application are still the same ones.
const FOLDER_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The time between two checks for orders.
const ORDER_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How much the time of a file may be behind the clock: the kernel's tick.
const FILE_TIME_DELAY: Duration = Duration::from_millis(10);
/// The folder of a project is at most this number of levels above the root. Its composer.json shows it.
const PROJECT_LEVELS: usize = 3;
/// The number of files that a report names.
const MAX_FILES: usize = 200;
/// The most folders of an application that are watched: 20 times those of a large project without its dependencies.
const MAX_FOLDERS: usize = 16_384;
/// The deepest folder that is watched. The folders above it are open while it is opened.
const MAX_LEVELS: usize = 64;
/// The longest path of a watched folder below the application's, in bytes. The paths stay in memory.
const MAX_PATH_BYTES: usize = 1024;
/// After this time of work, the thread pauses...
const BUSY_TIME: Duration = Duration::from_millis(50);
/// ...for this many times the time that it has worked...
const PAUSE_FACTOR: u32 = 4;
/// ...and at most for this time.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The most files and folders that are looked at in one turn: a file system of a user (FUSE) may list more and more.
const MAX_ENTRIES: usize = 1_000_000;
/// The most events that are handled before the next look at the clock and at orders: the kernel's default for a queue.
const MAX_EVENTS: usize = 16_384;
/// The most bytes of events that are read at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// One application.
struct Watching {
    watched: WatchedApplication,
    inotify: OwnedFd,
    /// By watch: the application's folder, and the watched folder in it.
    folders: HashMap<i32, (Rc<Path>, PathBuf)>,
    /// The application's folders, and the identities that they had when they were watched.
    tops: BTreeMap<PathBuf, Option<FolderId>>,
    checked: Instant,
    written: Option<PendingEdit>,
    /// No further folder is watched.
    exhausted: bool,
    /// How many files and folders may still be looked at in this turn.
    entries_left: usize,
    /// A folder that is too deep was logged.
    has_logged_depth: bool,
    /// A folder could not be read: those in it are not known.
    is_incomplete: bool,
}

/// A folder that is not watched yet.
struct NewFolder {
    path: PathBuf,
    /// The open folder above it.
    above: Option<Rc<OwnedFd>>,
}

/// Device and inode. They distinguish a folder from another one that takes its path.
type FolderId = (u64, u64);

/// Files that were written, and are not reported yet.
struct PendingEdit {
    files: Vec<PathBuf>,
    first: Instant,
    last: Instant,
}

/// Watches one application, until it is no longer watched or the supervisor ends.
pub fn run(mut orders: Receiver<WatchedApplication>, notices: &UnboundedSender<DeployNotice>) {
    orders.mark_changed();
    let (mut known, mut busy): (Option<Watching>, _) = (None, Duration::ZERO);
    loop {
        match orders.has_changed() {
            Ok(true) => {
                // The supervisor waits while the order is borrowed, and the file system may hang.
                let watched = orders.borrow_and_update().clone();
                known = follow(known, watched);
            }
            Ok(false) => {}
            // The application is no longer watched.
            Err(_) => return,
        }
        let Some(watching) = &mut known else {
            std::thread::sleep(ORDER_CHECK_INTERVAL);
            continue;
        };
        wait(watching);
        let began = Instant::now();
        watching.read();
        watching.check_folders(Instant::now());
        if let Some(notice) = watching.notice(Instant::now())
            && notices.send(notice).is_err()
        {
            return;
        }
        // An application may cause events without a pause: this thread is not among its processes, which have limits.
        busy += began.elapsed();
        if busy >= BUSY_TIME {
            std::thread::sleep((busy * PAUSE_FACTOR).min(MAX_PAUSE));
            busy = Duration::ZERO;
        }
    }
}

/// If the application's folders are still the same, it keeps its watches.
fn follow(known: Option<Watching>, watched: WatchedApplication) -> Option<Watching> {
    match known {
        Some(watching) if watching.watched.has_same_files_as(&watched) => Some(watching),
        Some(before) => Watching::begin(watched).map(|watching| watching.taking_over(before)),
        None => Watching::begin(watched),
    }
}

fn wait(watching: &Watching) {
    let mut sources = [PollFd::new(&watching.inotify, PollFlags::IN)];
    let pause = Timespec { tv_sec: 0, tv_nsec: ORDER_CHECK_INTERVAL.subsec_nanos().into() };
    // After an error, it is read all the same.
    let _ = poll(&mut sources, Some(&pause));
}

/// The folders of an application, without those that lie in another one: the folders of its paths, with their projects.
fn folders(watched: &WatchedApplication) -> BTreeSet<PathBuf> {
    let led_to = watched.led_to.iter().map(|pin| pin.leads_to.clone()).filter(|path| path.is_dir());
    let with_project = led_to.map(|folder| project(&folder).unwrap_or(folder));
    outermost(with_project.collect())
}

fn outermost(all: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    all.iter().filter(|path| !path.ancestors().skip(1).any(|above| all.contains(above))).cloned().collect()
}

fn project(folder: &Path) -> Option<PathBuf> {
    let above = folder.ancestors().take(PROJECT_LEVELS + 1);
    above.filter(|folder| folder.join("composer.json").is_file()).last().map(Path::to_owned)
}

/// Opens a folder that lies directly in this one, without access.
fn open_below(above: &OwnedFd, folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(above, folder.file_name().unwrap_or_default(), flags, Mode::empty())?)
}

/// A path for a log line.
fn logged(folder: &Path) -> String {
    plain_and_short(&folder.to_string_lossy())
}

fn folder_id(folder: &Path) -> Option<FolderId> {
    folder.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Whether a file was written, or moved to its place, after this time.
fn is_newer(file: &DirEntry, time: SystemTime) -> bool {
    let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = |metadata: Metadata| (metadata.ctime(), metadata.ctime_nsec());
    file.metadata()
        .is_ok_and(|metadata| changed(metadata) >= (time.as_secs().cast_signed(), time.subsec_nanos().into()))
}

// === impl Watching ===

impl Watching {
    fn begin(watched: WatchedApplication) -> Option<Watching> {
        let tops = folders(&watched);
        Watching::begin_at(watched, tops)
    }

    fn begin_at(watched: WatchedApplication, tops: BTreeSet<PathBuf>) -> Option<Watching> {
        let inotify = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => inotify,
            Err(error) => {
                tracing::warn!(
                    "cannot watch the files of {:?} for changes: inotify: {error}; see `sysctl \
                     fs.inotify.max_user_instances` and `ulimit -n`",
                    watched.name
                );
                return None;
            }
        };
        let mut watching = Watching {
            watched,
            inotify,
            folders: HashMap::new(),
            tops: tops.iter().map(|folder| (folder.clone(), folder_id(folder))).collect(),
            checked: Instant::now(),
            written: None,
            exhausted: false,
            entries_left: MAX_ENTRIES,
            has_logged_depth: false,
            is_incomplete: false,
        };
        let made = SystemTime::now()
            .checked_sub(watching.watched.made.elapsed() + FILE_TIME_DELAY)
            .unwrap_or(SystemTime::UNIX_EPOCH);
        for folder in tops {
            for file in watching.add(&Rc::from(&*folder), &folder, |file| is_newer(file, made)) {
                watching.record_write(file);
            }
        }
        Some(watching)
    }

    /// Watches the folders that have taken the paths of watched ones.
    fn check_folders(&mut self, now: Instant) {
        if now.saturating_duration_since(self.checked) < FOLDER_CHECK_INTERVAL {
            return;
        }
        self.checked = now;
        let mut tops = self.tops.iter().map(|(folder, before)| (folder, before, folder_id(folder)));
        let Some((replaced, ..)) = tops.find(|(_, before, now)| now.is_some() && now != *before) else { return };
        let replaced = replaced.clone();
        // The new project may not be complete yet, so the former folders are watched too.
        let tops = outermost(self.tops.keys().cloned().chain(folders(&self.watched)).collect());
        let Some(mut replacement) = Watching::begin_at(self.watched.clone(), tops) else { return };
        replacement.written = self.written.take();
        replacement.record_write(replaced);
        *self = replacement;
    }

    fn record_write(&mut self, file: PathBuf) {
        let now = Instant::now();
        let written = self.written.get_or_insert(PendingEdit { files: Vec::new(), first: now, last: now });
        written.last = now;
        if written.files.len() < MAX_FILES && !written.files.contains(&file) {
            written.files.push(file);
        }
    }

    /// Takes over the writes that the former watches have noticed.
    fn taking_over(self, mut before: Watching) -> Watching {
        before.read();
        Watching { written: before.written, ..self }
    }

    /// Watches a folder and its subfolders. Returns the files in them that count as code and are new.
    fn add(&mut self, application: &Rc<Path>, folder: &Path, is_new: impl Fn(&DirEntry) -> bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = Vec::new();
        self.choose(application, NewFolder { path: folder.to_owned(), above: None }, &mut left);
        while let Some(NewFolder { path: folder, above }) = left.pop() {
            let opened = match &above {
                None => trusted_path::open_folder(&folder),
                Some(above) => open_below(above, &folder),
            };
            let opened = match opened {
                Ok(opened) => Rc::new(opened),
                Err(error) => {
                    self.is_incomplete |= error.kind() != io::ErrorKind::NotFound;
                    if folder == **application && error.kind() != io::ErrorKind::NotFound {
                        self.log_refusal(&folder, &error);
                    }
                    continue;
                }
            };
            let flags = WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::ONLYDIR;
            let path = descriptor_path(&opened);
            match inotify::add_watch(&self.inotify, &path, flags) {
                Ok(watch) => drop(self.folders.insert(watch, (Rc::clone(application), folder.clone()))),
                Err(Errno::NOSPC | Errno::NOMEM) => {
                    self.log_exhaustion(&folder);
                    break;
                }
                // It may not be read.
                Err(_) => continue,
            }
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                if self.entries_left == 0 {
                    self.log_limit(&folder);
                    return found;
                }
                self.entries_left -= 1;
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => {
                        let new = NewFolder { path: folder.join(entry.file_name()), above: Some(Rc::clone(&opened)) };
                        self.choose(application, new, &mut left);
                    }
                    Ok(_)
                        if found.len() < MAX_FILES
                            && entry.file_name().to_str().is_some_and(counts_as_code)
                            && is_new(&entry) =>
                    {
                        found.push(folder.join(entry.file_name()));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Puts a folder among those that are left to watch, if it is to be watched and there is room for it. An application may make
    /// any number of folders, at any depth.
    fn choose(&mut self, application: &Path, new: NewFolder, left: &mut Vec<NewFolder>) {
        let inside = new.path.strip_prefix(application).unwrap_or(&new.path);
        if self.exhausted || !is_watched(inside) {
            return;
        }
        if inside.components().count() > MAX_LEVELS || inside.as_os_str().len() > MAX_PATH_BYTES {
            self.log_depth(&new.path);
        } else if self.folders.len() + left.len() >= MAX_FOLDERS {
            self.log_limit(&new.path);
        } else {
            left.push(new);
        }
    }

    // Log lines are limited for each application, the first name in quotes. Its user chooses the paths.

    fn log_limit(&mut self, folder: &Path) {
        self.exhausted = true;
        tracing::warn!(
            "the application {:?} has more than {MAX_FOLDERS} folders, or {MAX_ENTRIES} files in them: changes in {} \
             and in others are not noticed; move folders without code out of the project",
            self.watched.name,
            logged(folder)
        );
    }

    fn log_depth(&mut self, folder: &Path) {
        if self.has_logged_depth {
            return;
        }
        self.has_logged_depth = true;
        tracing::warn!(
            "the application {:?} has folders more than {MAX_LEVELS} levels deep, or with a path of more than \
             {MAX_PATH_BYTES} bytes: changes in {}, and in others like it, are not noticed; move them up",
            self.watched.name,
            logged(folder)
        );
    }

    fn log_refusal(&self, folder: &Path, error: &io::Error) {
        tracing::warn!(
            "the application {:?}: cannot watch {} for changes: {}; run `howdah restart {:?}` to load changes",
            self.watched.name,
            logged(folder),
            error_text(error),
            self.watched.name
        );
    }

    fn log_exhaustion(&mut self, folder: &Path) {
        self.exhausted = true;
        tracing::warn!(
            "the application {:?}: the kernel's inotify watches ran out at {}: changes there, and in other folders, are not \
             noticed; allow more with `sysctl fs.inotify.max_user_watches=524288`, or watch fewer folders",
            self.watched.name,
            logged(folder)
        );
    }

    /// Handles the events, as many as a full queue has. Another program may make events as fast as they are read.
    fn read(&mut self) {
        self.entries_left = MAX_ENTRIES;
        let mut handled = 0;
        while handled < MAX_EVENTS {
            match self.read_some() {
                0 => return,
                events => handled += events,
            }
        }
    }

    /// Handles the events of one buffer, and returns their number.
    fn read_some(&mut self) -> usize {
        let mut new_folders = Vec::new();
        let mut files = Vec::new();
        let mut gone = Vec::new();
        let (mut events, mut has_lost_events) = (0, false);
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            events += 1;
            let kind = event.events();
            if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                has_lost_events = true;
            }
            if kind.contains(ReadFlags::IGNORED) {
                gone.push(event.wd());
            }
            if let Some((application, folder)) = self.folders.get(&event.wd())
                && let Some(name) = event.file_name().and_then(|name| name.to_str().ok())
            {
                if kind.contains(ReadFlags::ISDIR) {
                    if kind.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                        new_folders.push((Rc::clone(application), folder.join(name)));
                    }
                } else if counts_as_code(name) {
                    files.push(folder.join(name));
                }
            }
            if reader.is_buffer_empty() {
                break;
            }
        }
        for (_, folder) in gone.iter().filter_map(|watch| self.folders.remove(watch)) {
            // A new folder with this path may have the same inode.
            self.tops.entry(folder).and_modify(|folder_id| *folder_id = None);
        }
        for (application, folder) in new_folders {
            files.extend(self.add(&application, &folder, |_| true));
        }
        if has_lost_events {
            files.extend(self.add_again());
        }
        for file in files {
            self.record_write(file);
        }
        events
    }

    /// Watches the folders that are there now, after events were lost: some may be new. A folder that is watched already keeps its
    /// watch. Returns a folder for the report.
    fn add_again(&mut self) -> Option<PathBuf> {
        let tops: Vec<PathBuf> = self.tops.keys().cloned().collect();
        if !self.exhausted {
            let before = std::mem::take(&mut self.folders);
            self.is_incomplete = false;
            for top in &tops {
                self.add(&Rc::from(&**top), top, |_| false);
            }
            let found: BTreeSet<Rc<Path>> =
                self.folders.values().map(|(application, _)| Rc::clone(application)).collect();
            for (watch, folder) in before {
                if self.exhausted || self.is_incomplete || !found.contains(&folder.0) {
                    // The walk has not come to all of them: they stay watched.
                    self.folders.entry(watch).or_insert(folder);
                } else if !self.folders.contains_key(&watch) {
                    // The folder was moved away, or removed. Its watch would not count any more, but it is one of those of all
                    // programs of root.
                    let _ = inotify::remove_watch(&self.inotify, watch);
                }
            }
        }
        tops.into_iter().next()
    }

    /// The notice that is due.
    fn notice(&mut self, now: Instant) -> Option<DeployNotice> {
        let ready = |written: &mut PendingEdit| now >= written.last + QUIET_TIME || now >= written.first + MAX_DELAY;
        let written = self.written.take_if(ready)?;
        Some(DeployNotice::Edited { application: self.watched.name.clone(), files: written.files, at: written.last })
    }
}
