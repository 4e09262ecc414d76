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

use super::files::{counts_as_code, is_watched};
use super::messages::{DeployNotice, WatchedApplication};
use crate::os::system_error::error_text;
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
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::UnboundedSender;

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
const BUFFER_BYTES: usize = 16 * 1024;

/// One application.
struct Watching {
    watched: WatchedApplication,
    inotify: OwnedFd,
    /// By watch: the application's folder, and the watched folder in it.
    folders: HashMap<i32, (PathBuf, PathBuf)>,
    /// The application's folders, and the identities that they had when they were watched.
    tops: BTreeMap<PathBuf, Option<FolderId>>,
    checked: Instant,
    written: Option<PendingEdit>,
    exhausted: bool,
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
pub fn run(orders: &Receiver<WatchedApplication>, notices: &UnboundedSender<DeployNotice>) {
    let mut known: Option<Watching> = None;
    loop {
        let order = match known.is_none() {
            true => orders.recv().map_err(|_| TryRecvError::Disconnected),
            false => orders.try_recv(),
        };
        match order {
            Ok(watched) => known = follow(known, watched),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        let Some(watching) = &mut known else { continue };
        wait(watching);
        watching.read();
        watching.check_folders(Instant::now());
        if let Some(notice) = watching.notice(Instant::now())
            && notices.send(notice).is_err()
        {
            return;
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
        };
        let made = SystemTime::now()
            .checked_sub(watching.watched.made.elapsed() + FILE_TIME_DELAY)
            .unwrap_or(SystemTime::UNIX_EPOCH);
        for folder in tops {
            for file in watching.add(&folder, &folder, |file| is_newer(file, made)) {
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
    fn add(&mut self, application: &Path, folder: &Path, is_new: impl Fn(&DirEntry) -> bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left: Vec<(PathBuf, Option<Rc<OwnedFd>>)> = vec![(folder.to_owned(), None)];
        while let Some((folder, above)) = left.pop() {
            let inside = folder.strip_prefix(application).unwrap_or(&folder);
            if self.exhausted || !is_watched(inside) {
                continue;
            }
            if inside.components().count() > MAX_LEVELS {
                self.log_depth(&folder);
                continue;
            }
            let flags = WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::ONLYDIR;
            if self.folders.len() >= MAX_FOLDERS {
                self.log_limit(&folder);
                continue;
            }
            let opened = match &above {
                None => trusted_path::open_folder(&folder),
                Some(above) => open_below(above, &folder),
            };
            let opened = match opened {
                Ok(opened) => Rc::new(opened),
                Err(error) => {
                    if folder == application && error.kind() != io::ErrorKind::NotFound {
                        self.log_refusal(&folder, &error);
                    }
                    continue;
                }
            };
            let path = descriptor_path(&opened);
            match inotify::add_watch(&self.inotify, &path, flags) {
                Ok(watch) => drop(self.folders.insert(watch, (application.to_owned(), folder.clone()))),
                Err(Errno::NOSPC | Errno::NOMEM) => self.log_exhaustion(&folder),
                // It may not be read.
                Err(_) => continue,
            }
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => left.push((folder.join(entry.file_name()), Some(Rc::clone(&opened)))),
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

    fn log_limit(&mut self, folder: &Path) {
        self.exhausted = true;
        tracing::warn!(
            "the application {:?} has more than {MAX_FOLDERS} folders: changes in {} and in others are not noticed; move \
             folders without code out of the project",
            self.watched.name,
            folder.display()
        );
    }

    fn log_depth(&self, folder: &Path) {
        tracing::warn!(
            "the folder {} of {:?} is more than {MAX_LEVELS} levels deep: changes in it are not noticed; move it up",
            folder.display(),
            self.watched.name
        );
    }

    fn log_refusal(&self, folder: &Path, error: &io::Error) {
        tracing::warn!(
            "cannot watch {} for changes: {}; run `howdah restart {:?}` to load them",
            folder.display(),
            error_text(error),
            self.watched.name
        );
    }

    fn log_exhaustion(&mut self, folder: &Path) {
        self.exhausted = true;
        tracing::warn!(
            "the kernel's inotify watches ran out at {}: changes there, and in other folders of {:?}, are not noticed; \
             allow more with `sysctl fs.inotify.max_user_watches=524288`, or watch fewer folders",
            folder.display(),
            self.watched.name
        );
    }

    /// Reads the events.
    fn read(&mut self) {
        let mut new_folders = Vec::new();
        let mut files = Vec::new();
        let mut gone = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let kind = event.events();
            if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                files.extend(self.folders.values().next().map(|(application, _)| application.clone()));
            }
            if kind.contains(ReadFlags::IGNORED) {
                gone.push(event.wd());
            }
            let Some((application, folder)) = self.folders.get(&event.wd()) else { continue };
            let Some(name) = event.file_name().and_then(|name| name.to_str().ok()) else { continue };
            if kind.contains(ReadFlags::ISDIR) {
                if kind.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    new_folders.push((application.clone(), folder.join(name)));
                }
            } else if counts_as_code(name) {
                files.push(folder.join(name));
            }
        }
        for (_, folder) in gone.iter().filter_map(|watch| self.folders.remove(watch)) {
            // A new folder with this path may have the same inode.
            self.tops.entry(folder).and_modify(|folder_id| *folder_id = None);
        }
        for (application, folder) in new_folders {
            files.extend(self.add(&application, &folder, |_| true));
        }
        for file in files {
            self.record_write(file);
        }
    }

    /// The notice that is due.
    fn notice(&mut self, now: Instant) -> Option<DeployNotice> {
        let ready = |written: &mut PendingEdit| now >= written.last + QUIET_TIME || now >= written.first + MAX_DELAY;
        let written = self.written.take_if(ready)?;
        Some(DeployNotice::Edited { application: self.watched.name.clone(), files: written.files, at: written.last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use howdah_protocol::messages::generation_paths::PinnedLink;

    fn watched(root: &Path) -> WatchedApplication {
        let text = serde_json::json!({"applications": {"x": {"type": "php", "root": root, "reload": "on-change"}}});
        let application = Configuration::parse(&text.to_string()).unwrap().applications["x"].as_php().unwrap().clone();
        let led_to = vec![PinnedLink { link: root.to_owned(), leads_to: root.to_owned() }];
        WatchedApplication { name: "x".to_owned(), generation: 1, made: Instant::now(), application, led_to }
    }

    fn next(watching: &mut Watching) -> Option<PathBuf> {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            wait(watching);
            watching.read();
            watching.check_folders(Instant::now());
            if let Some(DeployNotice::Edited { files, .. }) = watching.notice(Instant::now()) {
                return files.into_iter().next();
            }
        }
        None
    }

    #[test]
    fn edits_below_the_project_are_reported_once_after_the_last_write() {
        let folder = tempfile::tempdir().unwrap();
        let project = std::fs::canonicalize(folder.path()).unwrap();
        for below in ["public", "src", "var/cache", "vendor/x", "vendor/composer"] {
            std::fs::create_dir_all(project.join(below)).unwrap();
        }
        std::fs::write(project.join("composer.json"), "{}").unwrap();
        let mut watching = Watching::begin(watched(&project.join("public"))).unwrap();
        assert_eq!(watching.folders.len(), 5, "{:?}", watching.folders);

        for ignored in ["var/cache/a.php", "vendor/x/a.php", "public/a.css"] {
            std::fs::write(project.join(ignored), "").unwrap();
        }
        std::fs::write(project.join("src/a.php"), "").unwrap();
        std::fs::write(project.join("src/b.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(project.join("src/a.php")));
        assert!(watching.written.is_none(), "the other one was reported with it");

        // A new folder, with the files in it, and files that are added to it later.
        std::fs::create_dir_all(project.join("src/new/deep")).unwrap();
        std::fs::write(project.join("src/new/deep/c.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(project.join("src/new/deep/c.php")));
        std::fs::write(project.join("src/new/deep/d.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(project.join("src/new/deep/d.php")));
        std::fs::rename(project.join("src/new"), project.join("src/renamed")).unwrap();
        std::fs::write(project.join("vendor/composer/installed.php"), "").unwrap();
        assert!(next(&mut watching).is_some());
    }

    #[test]
    fn edits_before_the_watch_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir(root.join("src")).unwrap();
        for name in ["old.php", "src/edited.php", "src/moved.php.new"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        // The kernel's time of a file is some milliseconds old.
        std::thread::sleep(Duration::from_millis(50));
        let watched = watched(&root);
        std::thread::sleep(Duration::from_millis(50));
        std::fs::write(root.join("src/edited.php"), "<?php").unwrap();
        std::fs::rename(root.join("src/moved.php.new"), root.join("src/moved.php")).unwrap();
        let mut watching = Watching::begin(watched).unwrap();
        let mut files = watching.written.take().map(|written| written.files).unwrap_or_default();
        files.sort();
        assert_eq!(files, [root.join("src/edited.php"), root.join("src/moved.php")]);
    }

    #[test]
    fn a_folder_that_takes_the_path_of_another_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| std::fs::canonicalize(folder.path()).unwrap().join(name);
        for name in ["app", "new"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let mut watching = Watching::begin(watched(&at("app"))).unwrap();
        std::fs::rename(at("app"), at("old")).unwrap();
        std::fs::rename(at("new"), at("app")).unwrap();
        assert_eq!(next(&mut watching), Some(at("app")));
        std::fs::write(at("old/a.php"), "").unwrap();
        std::fs::write(at("app/b.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(at("app/b.php")));

        std::fs::remove_dir_all(at("app")).unwrap();
        std::fs::create_dir(at("app")).unwrap();
        watching.checked = Instant::now().checked_sub(FOLDER_CHECK_INTERVAL).unwrap();
        assert_eq!(next(&mut watching), Some(at("app/b.php")), "the folder is reported with it");
        std::fs::write(at("app/c.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(at("app/c.php")));
    }

    #[test]
    fn a_project_that_comes_back_piece_by_piece_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let project = std::fs::canonicalize(folder.path()).unwrap().join("project");
        let make = |names: &[&str]| {
            for name in names {
                match name.ends_with(".json") {
                    true => std::fs::write(project.join(name), "{}").unwrap(),
                    false => std::fs::create_dir(project.join(name)).unwrap(),
                }
            }
        };
        make(&["", "composer.json", "public", "src"]);
        let mut watching = Watching::begin(watched(&project.join("public"))).unwrap();
        std::fs::remove_dir_all(&project).unwrap();
        watching.read();
        make(&[""]);
        assert_eq!(next(&mut watching), Some(project.clone()));
        make(&["src", "public", "composer.json"]);
        std::fs::write(project.join("src/a.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(project.join("src/a.php")));
    }

    #[test]
    fn folders_behind_links_of_their_owner_are_neither_listed_nor_watched() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| std::fs::canonicalize(folder.path()).unwrap().join(name);
        for name in ["app/src", "private/conf"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let put_link = |place: &str| {
            std::os::unix::fs::symlink(at("private"), at(place)).unwrap();
            std::os::unix::fs::lchown(at(place), Some(65534), None).unwrap();
        };
        let mut watching = Watching::begin(watched(&at("app"))).unwrap();
        std::fs::write(at("private/conf/secret.php"), "").unwrap();
        // It is made, and reported; then a link takes the place of the folder above it.
        std::fs::create_dir(at("app/src/conf")).unwrap();
        std::fs::rename(at("app/src"), at("app/.s")).unwrap();
        put_link("app/src");
        watching.read();
        std::fs::write(at("private/conf/other.php"), "").unwrap();
        watching.read();
        let is_private = |(_, folder): &(PathBuf, PathBuf)| folder.ends_with("src/conf");
        assert!(!watching.folders.values().any(is_private), "{:?}", watching.folders);
        assert!(watching.written.is_none());

        // The same above the root.
        let mut watching = Watching::begin(watched(&at("app/.s/conf"))).unwrap();
        std::fs::rename(at("app/.s"), at("app/was")).unwrap();
        put_link("app/.s");
        assert_eq!(next(&mut watching), Some(at("app/.s/conf")));
        std::fs::write(at("private/conf/third.php"), "").unwrap();
        watching.read();
        assert!(watching.written.is_none() && watching.folders.is_empty());
    }

    #[test]
    fn a_root_in_a_rootfs_whose_path_has_a_link_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| std::fs::canonicalize(folder.path()).unwrap().join(name);
        std::fs::create_dir_all(at("rootfs/app/src")).unwrap();
        std::os::unix::fs::symlink(at("rootfs"), at("link")).unwrap();
        let mut watched = watched(&at("link/app"));
        watched.application.isolation.rootfs = Some(at("link"));
        let mut watching = Watching::begin(watched).unwrap();
        std::fs::write(at("rootfs/app/src/a.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(at("link/app/src/a.php")));
    }

    #[test]
    fn an_application_does_not_take_all_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let (mut deep, mut watched_folders) = (root.clone(), 1);
        for level in 1..=100 {
            for name in ["a", "b"] {
                std::fs::create_dir(deep.join(name)).unwrap();
                watched_folders += usize::from(level <= MAX_LEVELS);
            }
            deep.push("a");
        }
        let watching = Watching::begin(watched(&root)).unwrap();
        assert_eq!(watching.folders.len(), watched_folders);
    }

    #[test]
    fn an_application_does_not_take_all_watches() {
        let folder = tempfile::tempdir().unwrap();
        let project = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::write(project.join("composer.json"), "{}").unwrap();
        for number in 0..=MAX_FOLDERS {
            std::fs::create_dir(project.join(number.to_string())).unwrap();
        }
        let mut watching = Watching::begin(watched(&project)).unwrap();
        std::fs::create_dir(project.join("more")).unwrap();
        watching.read();
        assert_eq!(watching.folders.len(), MAX_FOLDERS);
        std::fs::write(project.join("a.php"), "").unwrap();
        assert_eq!(next(&mut watching), Some(project.join("a.php")));
    }
}
