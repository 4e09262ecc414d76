//! Whether a file of an application in development is written: inotify, with a watch for each folder.
//!
//! What is written together (a checkout, an install) is told once, when it has come to rest. When the kernel gives no more
//! watches it is said once for each application, with what to do; the folders that are watched already stay so. What
//! another machine writes on a network file system is not seen.
//!
//! A watch is of a folder, not of its path: when another folder has taken the place of an application's, that is told like an
//! edit, and the new one is watched.

use super::files::{is_watched, matters};
use super::{Notice, Watched};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long nothing is written before it is told.
const REST: Duration = Duration::from_millis(200);
/// When it is told in any case.
const LONGEST_UNREST: Duration = Duration::from_secs(10);
/// How often it is looked whether the folders of an application are still the same.
const LOOK: Duration = Duration::from_millis(500);
/// How often orders are looked for.
const PAUSE: Duration = Duration::from_millis(100);
/// How far above the root a project may begin, as its composer.json shows.
const PROJECT_LEVELS: usize = 3;
const BUFFER_BYTES: usize = 16 * 1024;

/// One application.
struct Watching {
    watched: Watched,
    inotify: OwnedFd,
    /// By watch: the application's folder, and what is watched below it.
    folders: HashMap<i32, (PathBuf, PathBuf)>,
    /// The application's folders, and which ones they were when they were watched.
    tops: BTreeMap<PathBuf, Option<Identity>>,
    looked: Instant,
    written: Option<Written>,
    exhausted: bool,
}

/// Device and inode: another folder has another one.
type Identity = (u64, u64);

/// Files that were written, and have not been told yet.
struct Written {
    file: PathBuf,
    first: Instant,
    last: Instant,
}

/// Runs until the supervisor ends.
pub fn run(orders: &Receiver<Vec<Watched>>, notices: &UnboundedSender<Notice>) {
    let mut all: Vec<Watching> = Vec::new();
    loop {
        let order = match all.is_empty() {
            true => orders.recv().map_err(|_| TryRecvError::Disconnected),
            false => orders.try_recv(),
        };
        match order {
            Ok(applications) => all = follow(all, applications),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        wait(&all);
        for watching in &mut all {
            watching.read();
            watching.look(Instant::now());
            if let Some(notice) = watching.notice(Instant::now())
                && notices.send(notice).is_err()
            {
                return;
            }
        }
    }
}

/// An application whose folders are still the same keeps its watches.
fn follow(known: Vec<Watching>, applications: Vec<Watched>) -> Vec<Watching> {
    let mut known: HashMap<String, Watching> =
        known.into_iter().map(|watching| (watching.watched.name.clone(), watching)).collect();
    let follow_one = |watched: Watched| match known.remove(&watched.name) {
        Some(watching) if watching.watched.is_like(&watched) => Some(watching),
        Some(before) => Watching::begin(watched).map(|watching| watching.after(before)),
        None => Watching::begin(watched),
    };
    applications.into_iter().filter_map(follow_one).collect()
}

fn wait(all: &[Watching]) {
    let mut sources: Vec<_> = all.iter().map(|watching| PollFd::new(&watching.inotify, PollFlags::IN)).collect();
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    // An error is one more look.
    let _ = poll(&mut sources, Some(&pause));
}

/// The folders of an application, none of which lies in another: those of its paths, and the project that they are of.
fn folders(watched: &Watched) -> BTreeSet<PathBuf> {
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

fn identity(folder: &Path) -> Option<Identity> {
    folder.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

// === impl Watching ===

impl Watching {
    fn begin(watched: Watched) -> Option<Watching> {
        let tops = folders(&watched);
        Watching::begin_at(watched, tops)
    }

    fn begin_at(watched: Watched, tops: BTreeSet<PathBuf>) -> Option<Watching> {
        let inotify = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => inotify,
            Err(error) => {
                tracing::warn!(
                    "changes of the files of {:?} are not seen: inotify cannot be used ({error}); see `sysctl \
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
            tops: tops.iter().map(|folder| (folder.clone(), identity(folder))).collect(),
            looked: Instant::now(),
            written: None,
            exhausted: false,
        };
        for folder in tops {
            watching.add(&folder, &folder);
        }
        Some(watching)
    }

    /// Watches the folders that have taken the place of those that were watched.
    fn look(&mut self, now: Instant) {
        if now.saturating_duration_since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let mut tops = self.tops.iter().map(|(folder, before)| (folder, before, identity(folder)));
        let Some((replaced, ..)) = tops.find(|(_, before, now)| now.is_some() && now != *before) else { return };
        let replaced = replaced.clone();
        // What is not all there yet is where it was.
        let tops = outermost(self.tops.keys().cloned().chain(folders(&self.watched)).collect());
        let Some(mut anew) = Watching::begin_at(self.watched.clone(), tops) else { return };
        anew.written = self.written.take();
        anew.enter(replaced);
        *self = anew;
    }

    fn enter(&mut self, file: PathBuf) {
        let now = Instant::now();
        let written = self.written.get_or_insert(Written { file, first: now, last: now });
        written.last = now;
    }

    /// What was written until this one watches is told, too.
    fn after(self, mut before: Watching) -> Watching {
        before.read();
        Watching { written: before.written, ..self }
    }

    /// Watches a folder and those in it; says whether there is a file that matters.
    fn add(&mut self, application: &Path, folder: &Path) -> Option<PathBuf> {
        let mut found = None;
        let mut left = vec![folder.to_owned()];
        while let Some(folder) = left.pop() {
            if self.exhausted || !is_watched(folder.strip_prefix(application).unwrap_or(&folder)) {
                continue;
            }
            let flags = WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::ONLYDIR
                | WatchFlags::DONT_FOLLOW;
            match inotify::add_watch(&self.inotify, &folder, flags) {
                Ok(watch) => drop(self.folders.insert(watch, (application.to_owned(), folder.clone()))),
                Err(Errno::NOSPC | Errno::NOMEM) => self.run_out(&folder),
                // It is gone, or not for us.
                Err(_) => continue,
            }
            for entry in folder.read_dir().into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => left.push(entry.path()),
                    Ok(_) if found.is_none() && entry.file_name().to_str().is_some_and(matters) => {
                        found = Some(entry.path());
                    }
                    _ => {}
                }
            }
        }
        found
    }

    fn run_out(&mut self, folder: &Path) {
        self.exhausted = true;
        tracing::warn!(
            "the kernel's inotify watches ran out at {}: changes there, and in other folders of {:?}, are not seen; \
             allow more with `sysctl fs.inotify.max_user_watches=524288`, or watch fewer folders",
            folder.display(),
            self.watched.name
        );
    }

    /// Takes in what was written.
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
            } else if matters(name) {
                files.push(folder.join(name));
            }
        }
        for (_, folder) in gone.iter().filter_map(|watch| self.folders.remove(watch)) {
            // One that comes in its place may have its inode.
            self.tops.entry(folder).and_modify(|identity| *identity = None);
        }
        for (application, folder) in new_folders {
            files.extend(self.add(&application, &folder));
        }
        for file in files {
            self.enter(file);
        }
    }

    /// What is to be told, if it is time.
    fn notice(&mut self, now: Instant) -> Option<Notice> {
        let ready = |written: &mut Written| now >= written.last + REST || now >= written.first + LONGEST_UNREST;
        let written = self.written.take_if(ready)?;
        Some(Notice::Edited { application: self.watched.name.clone(), file: written.file, at: written.last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use howdah_protocol::generation_paths::PinnedLink;

    fn watched(root: &Path) -> Watched {
        let text = serde_json::json!({"applications": {"x": {"type": "php", "root": root, "reload": "on-change"}}});
        let application = Configuration::parse(&text.to_string()).unwrap().applications.remove("x").unwrap();
        let led_to = vec![PinnedLink { link: root.to_owned(), leads_to: root.to_owned() }];
        Watched { name: "x".to_owned(), generation: 1, application, led_to }
    }

    fn next(watching: &mut Watching) -> Option<PathBuf> {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            wait(std::slice::from_ref(watching));
            watching.read();
            watching.look(Instant::now());
            if let Some(Notice::Edited { file, .. }) = watching.notice(Instant::now()) {
                return Some(file);
            }
        }
        None
    }

    #[test]
    fn edits_below_the_project_are_told_once_they_rest() {
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
        assert!(watching.written.is_none(), "the other was told with it");

        // A folder that is new, with what is in it, and what comes into it.
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
    fn a_folder_that_takes_the_place_of_another_is_watched() {
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
        watching.looked = Instant::now().checked_sub(LOOK).unwrap();
        assert_eq!(next(&mut watching), Some(at("app/b.php")), "the folder is told with it");
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
}
