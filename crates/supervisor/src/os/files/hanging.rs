//! Operations on files that may hang, with a limit of time: the supervisor has one thread, and all else would wait with it.
//!
//! An operation that hangs is left to its thread, which ends when the file system answers. Until then, further operations in the
//! same folder fail at once: neither threads nor waits become more. On a machine with local file systems only, most operations
//! have no thread.

use howdah_blocking_work::mounts::are_all_local;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// The longest that the supervisor waits for a file.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// The same at its start, when nothing else waits for the supervisor, and the machine may be busy.
pub const TIMEOUT_AT_START: Duration = Duration::from_secs(10);

/// Whether the supervisor has given up an operation, which must not change anything any more.
#[derive(Clone, Debug, Default)]
pub struct GivenUp(Arc<AtomicBool>);

type Work = Box<dyn FnOnce() + Send>;

/// The folders in which an operation runs that was given up, and the work that follows it.
static HANGING: Mutex<BTreeMap<PathBuf, Vec<Work>>> = Mutex::new(BTreeMap::new());

/// Does this in the folder of `path` on a thread, and waits no longer than `timeout`. A late result is dropped on the thread.
///
/// # Errors
/// Of the operation, or when it takes too long, or when there is no thread.
pub fn within<T: Send + 'static>(
    path: &Path,
    timeout: Duration,
    operation: impl FnOnce(&GivenUp) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let folder = path.parent().unwrap_or(path).to_owned();
    if hanging().contains_key(&folder) {
        return Err(late());
    }
    let (sender, result) = mpsc::channel();
    let given_up = GivenUp::default();
    let (asked, of) = (given_up.clone(), folder.clone());
    let on_thread = move || {
        drop(sender.send(operation(&asked)));
        follow_up(&of, &asked);
    };
    std::thread::Builder::new().name("file".to_owned()).spawn(on_thread)?;
    result.recv_timeout(timeout).unwrap_or_else(|_| {
        let mut hanging = hanging();
        // It may have ended meanwhile.
        result.try_recv().unwrap_or_else(|_| {
            given_up.0.store(true, Ordering::Relaxed);
            hanging.entry(folder).or_default();
            Err(late())
        })
    })
}

/// The same, without a thread if all file systems are local.
///
/// # Errors
/// As above.
pub fn within_if_it_may_hang<T: Send + 'static>(
    path: &Path,
    timeout: Duration,
    operation: impl FnOnce(&GivenUp) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if are_all_local() { operation(&GivenUp::default()) } else { within(path, timeout, operation) }
}

/// Does this, which cleans up in the folder of `path`: at once, or when the file system answers.
pub fn clean_up(path: &Path, work: impl FnOnce() + Send + 'static) {
    let folder = path.parent().unwrap_or(path);
    if let Some(following) = hanging().get_mut(folder) {
        following.push(Box::new(work));
        return;
    }
    let _ = within_if_it_may_hang(path, TIMEOUT, move |_| {
        work();
        Ok(())
    });
}

/// Does what has come meanwhile, after an operation that was given up.
fn follow_up(folder: &Path, given_up: &GivenUp) {
    loop {
        let mut hanging = hanging();
        if !given_up.is_set() {
            return;
        }
        let Some(next) = hanging.get_mut(folder).and_then(Vec::pop) else {
            hanging.remove(folder);
            return;
        };
        drop(hanging);
        next();
    }
}

fn late() -> io::Error {
    io::Error::other("no answer from its file system")
}

fn hanging() -> MutexGuard<'static, BTreeMap<PathBuf, Vec<Work>>> {
    // The map is complete at any time.
    HANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl GivenUp ===

impl GivenUp {
    /// Whether it is so.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if it is so.
    ///
    /// # Errors
    /// The operation was given up.
    pub fn check(&self) -> io::Result<()> {
        if self.is_set() { Err(late()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn an_operation_has_a_limit_of_time() {
        let path = Path::new("/an/operation");
        assert_eq!(within(path, TIMEOUT_AT_START, |_| Ok(7)).unwrap(), 7);
        assert_eq!(within_if_it_may_hang(path, TIMEOUT, |_| Ok(7)).unwrap(), 7);
        let failed = within(path, TIMEOUT_AT_START, |_| Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_folder_that_hangs_costs_one_thread_and_one_wait() {
        let (path, other) = (Path::new("/hanging/a"), Path::new("/hanging/b"));
        let (release, hang) = mpsc::channel::<()>();
        let (sender, results) = mpsc::channel();
        let late = within(path, SHORT, move |given_up| {
            let _ = hang.recv();
            let _ = sender.send(given_up.is_set());
            given_up.check()
        });
        assert_eq!(late.unwrap_err().to_string(), "no answer from its file system");
        let began = Instant::now();
        assert!(
            within(other, 100 * SHORT, |_| Ok(())).is_err()
                && within(Path::new("/else/a"), 100 * SHORT, |_| Ok(())).is_ok()
        );
        let (done, follows) = mpsc::channel();
        clean_up(other, move || {
            let _ = done.send(());
        });
        assert!(follows.try_recv().is_err());
        drop(release);
        assert!(results.recv().unwrap(), "it may not change anything");
        follows.recv().unwrap();
        while within(other, 100 * SHORT, |_| Ok(())).is_err() {
            assert!(began.elapsed() < 200 * SHORT);
        }
    }
}
