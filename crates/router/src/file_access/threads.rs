//! Threads for file operations that may wait for long.
//!
//! Each [`Place`] has a few of them, and all places together have a limit, so that a file system that hangs leaves
//! threads for the others. An operation has a timeout. Its thread is released only when the kernel lets it go: if all
//! threads of a place wait for longer than the timeout, further operations there fail at once.
//!
//! Fails with [`FilesUnavailable`]; [`on_file_thread`] logs the place once a minute.

use crate::file_access::at_once::WouldWait;
use crate::report::OncePerMinute;
use howdah_blocking_work::{Failure, Pool};
use howdah_protocol::test_time::divided;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Operations that share a few threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A file or folder of the configuration.
    Path(Box<Path>),
    /// The device of open files: its number.
    Device(u64),
}

/// Why a file operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesUnavailable {
    /// It took longer than the timeout.
    Hanging,
    /// No thread was free for it.
    Busy,
    /// It panicked.
    Panicked,
}

/// The threads of a place.
#[derive(Debug)]
struct PlaceThreads {
    count: usize,
    free: Arc<Semaphore>,
    /// When the running operations began.
    running: Mutex<Vec<Instant>>,
}

/// An operation, while it runs.
struct Running {
    threads: Arc<PlaceThreads>,
    began: Instant,
}

/// The most threads of a path.
const PATH_THREADS: usize = 16;
/// The most threads of a device, on which any number of files are sent.
const DEVICE_THREADS: usize = 32;
/// The most threads of all places.
const ALL_THREADS: usize = 256;
/// How long an operation may take, the wait for a thread included.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Places without an operation are forgotten beyond this number.
const MAX_IDLE_PLACES: usize = 256;

/// The threads of all places.
pub static FILE_THREADS: Pool = Pool::new("files");
static ALL_FREE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(ALL_THREADS)));
static PLACES: LazyLock<Mutex<HashMap<Place, Arc<PlaceThreads>>>> = LazyLock::new(Mutex::default);
static PROBLEMS: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

/// Runs a file operation on a thread that may wait, and waits for its result without blocking the event loop.
///
/// # Errors
/// When there is no result within the timeout.
pub async fn on_file_thread<T: Send + 'static>(
    place: Place,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FilesUnavailable> {
    let result = on_file_thread_unlogged(&place, operation).await;
    if let Err(error @ (FilesUnavailable::Hanging | FilesUnavailable::Busy)) = result
        && PROBLEMS.is_due(&place)
    {
        tracing::error!(
            "{error} {place} in {} s; does its file system hang? Answering {}",
            divided(TIMEOUT).as_secs_f32(),
            error.status()
        );
    }
    result
}

/// The same for a caller that logs a failure itself.
///
/// # Errors
/// When there is no result within the timeout.
pub async fn on_file_thread_unlogged<T: Send + 'static>(
    place: &Place,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FilesUnavailable> {
    run(PlaceThreads::of(place), divided(TIMEOUT), operation).await
}

/// Closes a file, which may wait, too: FUSE asks the file system first. Nothing waits for the close.
pub fn close_on_file_thread<F: Send + 'static>(place: &Place, file: F) {
    start_on_file_thread(place, move || drop(file));
}

/// Starts an operation without a result. Nothing waits for it.
pub fn start_on_file_thread(place: &Place, operation: impl FnOnce() + Send + 'static) {
    // Outside of a runtime there is no event loop to stop.
    let Ok(runtime) = Handle::try_current() else { return operation() };
    let threads = PlaceThreads::of(place);
    runtime.spawn(async move {
        if let Ok((of_place, of_all)) = threads.permits().await {
            let running = threads.begin(Instant::now());
            FILE_THREADS.spawn_detached(move || {
                let _held = (running, of_place, of_all);
                operation();
            });
        }
    });
}

async fn run<T: Send + 'static>(
    threads: Arc<PlaceThreads>,
    timeout: Duration,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FilesUnavailable> {
    let began = Instant::now();
    let deadline = began + timeout;
    if threads.all_hang(began, timeout) {
        return Err(FilesUnavailable::Busy);
    }
    let Ok(Ok((of_place, of_all))) = timeout_at(deadline, threads.permits()).await else {
        return Err(FilesUnavailable::Busy);
    };
    let running = threads.begin(Instant::now());
    // The permits are released when an operation that has begun has ended, also if the client left or the time was over before.
    let mut ended = FILE_THREADS.spawn(move || {
        let _held = (running, of_place, of_all);
        operation()
    });
    match timeout_at(deadline, &mut ended).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(Failure::NoThread(_))) => Err(FilesUnavailable::Busy),
        Ok(Err(Failure::Panicked)) => Err(FilesUnavailable::Panicked),
        // A lack of tasks, and other operations hang.
        Err(_) if ended.withdraw() => Err(FilesUnavailable::Busy),
        Err(_) => Err(FilesUnavailable::Hanging),
    }
}

// === impl Place ===

impl Place {
    /// The place of a path of the configuration.
    pub fn of(path: impl AsRef<Path>) -> Place {
        Place::Path(path.as_ref().into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Path(path) => write!(formatter, "{path:?}"),
            Place::Device(number) => {
                let (major, minor) = (rustix::fs::major(*number), rustix::fs::minor(*number));
                write!(formatter, "a file on the device {major}:{minor} (see /proc/self/mountinfo)")
            }
        }
    }
}

// === impl FilesUnavailable ===

impl FilesUnavailable {
    /// The status of the response, if it has not begun.
    pub fn status(self) -> u16 {
        match self {
            FilesUnavailable::Hanging => 504,
            FilesUnavailable::Busy => 503,
            FilesUnavailable::Panicked => 500,
        }
    }
}

/// An operation on a thread of its own may wait, and does not fail in this way.
impl From<WouldWait> for FilesUnavailable {
    fn from(WouldWait: WouldWait) -> FilesUnavailable {
        FilesUnavailable::Hanging
    }
}

impl fmt::Display for FilesUnavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            FilesUnavailable::Hanging => "no answer from",
            FilesUnavailable::Busy => "no thread was free for",
            FilesUnavailable::Panicked => "a bug of howdah in an access to",
        })
    }
}

// === impl PlaceThreads ===

impl PlaceThreads {
    fn new(count: usize) -> PlaceThreads {
        PlaceThreads { count, free: Arc::new(Semaphore::new(count)), running: Mutex::default() }
    }

    fn of(place: &Place) -> Arc<PlaceThreads> {
        // The map is complete at any time.
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() > MAX_IDLE_PLACES {
            places.retain(|_, threads| Arc::strong_count(threads) > 1);
        }
        let count = match place {
            Place::Path(_) => PATH_THREADS,
            Place::Device(_) => DEVICE_THREADS,
        };
        Arc::clone(places.entry(place.clone()).or_insert_with(|| Arc::new(PlaceThreads::new(count))))
    }

    /// Waits for a free thread. The place comes first: operations of one that hangs must not hold what others need.
    async fn permits(&self) -> Result<(OwnedSemaphorePermit, OwnedSemaphorePermit), AcquireError> {
        let of_place = Arc::clone(&self.free).acquire_owned().await?;
        Ok((of_place, Arc::clone(&ALL_FREE).acquire_owned().await?))
    }

    fn begin(self: &Arc<Self>, now: Instant) -> Running {
        self.running().push(now);
        Running { threads: Arc::clone(self), began: now }
    }

    /// Whether each thread has been waiting for longer than the timeout.
    fn all_hang(&self, now: Instant, timeout: Duration) -> bool {
        let running = self.running();
        running.len() >= self.count && running.iter().all(|began| now.saturating_duration_since(*began) >= timeout)
    }

    fn running(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.threads.running();
        if let Some(index) = running.iter().position(|began| *began == self.began) {
            running.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_operation_runs_on_another_thread() {
        let here = std::thread::current().id();
        let there = on_file_thread(Place::of("/a"), || std::thread::current().id()).await;
        assert!(there.is_ok_and(|there| there != here));
        let panicked = on_file_thread(Place::of("/a"), || panic!("a bug")).await;
        assert_eq!(panicked, Err::<(), _>(FilesUnavailable::Panicked));
    }

    #[tokio::test]
    async fn a_place_that_hangs_keeps_its_threads_and_no_others() {
        let (hanging, other) = (Arc::new(PlaceThreads::new(4)), Arc::new(PlaceThreads::new(4)));
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let operation = |threads: &Arc<PlaceThreads>, timeout| {
            let released = Arc::clone(&released);
            run(Arc::clone(threads), timeout, move || drop(released.lock().map(|released| released.recv())))
        };
        // An operation that does not begin in time does not hang.
        while hanging.running().len() < 4 {
            let failed = operation(&hanging, Duration::from_millis(10)).await;
            assert!(matches!(failed, Err(FilesUnavailable::Hanging | FilesUnavailable::Busy)));
        }
        assert_eq!(run(Arc::clone(&hanging), Duration::ZERO, || ()).await, Err(FilesUnavailable::Busy));
        assert_eq!(run(Arc::clone(&other), LONG, || 7).await, Ok(7));
        drop(release);
        assert_eq!(run(Arc::clone(&hanging), LONG, || 7).await, Ok(7), "it waits for a thread");
        while !hanging.running().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn only_threads_that_wait_for_longer_than_the_timeout_hang() {
        let (threads, start) = (Arc::new(PlaceThreads::new(4)), Instant::now());
        let mut running: Vec<_> = (1..4).map(|_| threads.begin(start)).collect();
        assert!(!threads.all_hang(start + LONG, LONG), "one is free");
        running.push(threads.begin(start + Duration::from_secs(1)));
        assert!(!threads.all_hang(start + LONG, LONG), "one is not late");
        assert!(threads.all_hang(start + LONG + Duration::from_secs(1), LONG));
        running.pop();
        assert!(!threads.all_hang(start + 2 * LONG, LONG));
    }
}
