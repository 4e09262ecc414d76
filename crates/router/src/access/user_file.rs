//! Files with users, as `htpasswd` writes them: `NAME:HASH`, a line each.
//!
//! A file is read when a configuration is applied, and again when it was changed; a file that cannot be read then has
//! no valid password. A line that is not valid is left out, with a line in the log.

use crate::resources::processors::processors;
use howdah_config::{Configuration, PasswordHash};
use howdah_protocol::trusted_path;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The files of a configuration.
#[derive(Clone, Debug, Default)]
pub struct UserFiles {
    files: HashMap<PathBuf, Arc<UserFile>>,
}

/// One file.
#[derive(Debug)]
pub struct UserFile {
    path: PathBuf,
    /// The users of the version that was read last.
    read: Mutex<Option<(FileVersion, Arc<Users>)>>,
    /// The places for verifications that wait, and for those that run.
    places: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// The users of a file, by name.
pub type Users = HashMap<String, PasswordHash>;

/// Distinguishes versions of a file: device, inode, length, and the time of the last change in seconds and nanoseconds.
type FileVersion = (u64, u64, u64, i64, i64);

/// How many verifications for one of several files wait, of 100 for all.
const MOST_OF_ONE: usize = 50;
const MAX_BYTES: u64 = 16 << 20;
/// How many lines that are not valid are logged.
const MAX_LOGGED: usize = 10;

// === impl UserFiles ===

impl UserFiles {
    /// The files that a configuration names.
    pub fn of(configuration: &Configuration) -> UserFiles {
        let options = || configuration.routes.actions().filter_map(|action| action.basic_auth.as_ref());
        let paths: HashSet<PathBuf> = options().filter_map(|basic_auth| basic_auth.user_file.clone()).collect();
        let has_others = paths.len() > 1 || options().any(|basic_auth| !basic_auth.users.is_empty());
        let file = |path: PathBuf| (path.clone(), Arc::new(UserFile::new(path, has_others)));
        UserFiles { files: paths.into_iter().map(file).collect() }
    }

    /// Reads all files. A tolerated one may be read later.
    ///
    /// # Errors
    /// The file that cannot be read, and why.
    pub fn read(&self, tolerated: &HashSet<PathBuf>) -> Result<(), String> {
        self.files.values().try_for_each(|file| match file.users().map_err(|error| file.problem(&error)) {
            Err(problem) if tolerated.contains(&file.path) => {
                tracing::error!("{problem}; requests with a password are answered 500 until then");
                Ok(())
            }
            read => read.map(drop),
        })
    }

    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys()
    }

    /// The file with this path.
    pub fn find(&self, path: &Path) -> Option<&Arc<UserFile>> {
        self.files.get(path)
    }
}

// === impl UserFile ===

impl UserFile {
    /// `has_others` is whether there are other passwords.
    fn new(path: PathBuf, has_others: bool) -> UserFile {
        // The owner of a file chooses how long a verification takes, up to seconds: one processor is for those of others.
        let (places, turns) = match has_others {
            true => (MOST_OF_ONE, processors().saturating_sub(1).max(1)),
            false => (Semaphore::MAX_PERMITS, processors()),
        };
        let [places, turns] = [places, turns].map(|permits| Arc::new(Semaphore::new(permits)));
        UserFile { path, read: Mutex::default(), places, turns }
    }

    /// A place to wait for a turn; `None` if too many wait.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The turn to verify a password of this file.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// The users of the file as it is now. This may block.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn users(&self) -> io::Result<Arc<Users>> {
        // The value is complete at any time.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Another user's link must not make the users of other sites those of this one.
        let mut file = trusted_path::read(&self.path)?;
        let metadata = file.metadata()?;
        let version = (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        if let Some((known, users)) = &*read
            && *known == version
        {
            return Ok(Arc::clone(users));
        }
        let mut text = String::new();
        if file.by_ref().take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
            return Err(io::Error::other(format!("it is longer than {MAX_BYTES} bytes")));
        }
        let users = Arc::new(parse(&text, &self.path));
        *read = Some((version, Arc::clone(&users)));
        Ok(users)
    }

    /// The path in the configuration.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error for the operator.
    pub fn problem(&self, error: &io::Error) -> String {
        let advice = "correct the path, or let the router's user read the file";
        format!("basic_auth/user_file: {:?} cannot be read: {error}; {advice}", self.path)
    }
}

/// Reads the lines. The first line of a user counts, as in nginx and Apache.
fn parse(text: &str, path: &Path) -> Users {
    let mut users = Users::new();
    let mut ignored = 0;
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let problem = match line.split_once(':') {
            None => "there is no colon after a user's name".to_owned(),
            // A second colon begins a comment.
            Some((name, rest)) => match PasswordHash::parse(rest.split(':').next().unwrap_or_default().trim_end()) {
                Ok(hash) => {
                    users.entry(name.to_owned()).or_insert(hash);
                    continue;
                }
                Err(problem) => problem,
            },
        };
        ignored += 1;
        if ignored <= MAX_LOGGED {
            tracing::warn!("{}, line {}: {problem}; this line is ignored", path.display(), index + 1);
        }
    }
    if ignored > MAX_LOGGED {
        tracing::warn!("{}: {} more lines are ignored", path.display(), ignored - MAX_LOGGED);
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::sync::mpsc;
    use std::time::Duration;

    const ANN: &str = "$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/";
    const BOB: &str = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=";

    #[test]
    fn a_line_is_a_user_and_a_hash() {
        let text = format!("# staff\n\nann:{ANN}\r\nbob:{BOB}:a comment\nann:{BOB}\nold:rl0LnbXrpLlU.\nnothing\n");
        let users = parse(&text, Path::new("/x"));
        let hashes = users.iter().map(|(name, hash)| (name.as_str(), hash.as_str()));
        let mut hashes: Vec<_> = hashes.collect();
        hashes.sort_unstable();
        assert_eq!(hashes, [("ann", ANN), ("bob", BOB)]);
    }

    #[test]
    fn a_file_is_read_again_when_it_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("htpasswd");
        let basic_auth = format!(r#"{{"realm": "x", "user_file": {path:?}}}"#);
        let text = format!(r#"{{"routes": [{{"action": {{"return": 200, "basic_auth": {basic_auth}}}}}]}}"#);
        let files = UserFiles::of(&Configuration::parse(&text).unwrap());
        let problem = files.read(&HashSet::new()).unwrap_err();
        assert!(problem.contains("htpasswd\" cannot be read: No such file"), "{problem}");
        let file = files.find(&path).unwrap();
        fs::write(&path, format!("ann:{ANN}\n")).unwrap();
        let first = file.users().unwrap();
        assert!(first.contains_key("ann") && Arc::ptr_eq(&first, &file.users().unwrap()));
        fs::write(&path, format!("ann:{ANN}\nbob:{BOB}\n")).unwrap();
        assert!(file.users().unwrap().contains_key("bob"));
        fs::remove_file(&path).unwrap();
        assert!(file.users().is_err(), "no password is valid without the file");
        assert!(files.find(Path::new("/other")).is_none());
    }

    #[test]
    fn a_named_pipe_keeps_no_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("htpasswd");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let file = UserFile::new(path, false);
        let (sender, result) = mpsc::channel();
        std::thread::spawn(move || sender.send(file.users().map(drop).map_err(|error| error.to_string())));
        assert_eq!(result.recv_timeout(Duration::from_secs(10)), Ok(Err("it is not a regular file".to_owned())));
    }

    #[tokio::test]
    async fn one_file_has_a_part_of_the_places_and_of_the_processors() {
        let alone = UserFile::new("/etc/users".into(), false);
        assert_eq!(alone.turns.available_permits(), processors());
        let _waiting: Vec<_> = (0..2 * MOST_OF_ONE).map(|_| alone.place().unwrap()).collect();
        let file = UserFile::new("/etc/users".into(), true);
        let waiting: Vec<_> = (0..MOST_OF_ONE).map(|_| file.place().unwrap()).collect();
        assert!(file.place().is_none());
        drop(waiting);
        assert!(file.place().is_some());
        let mut turns = Vec::new();
        for _ in 0..processors().saturating_sub(1).max(1) {
            turns.push(file.turn().await.unwrap());
        }
        assert_eq!(file.turns.available_permits(), 0);
    }
}
