//! Work that blocks, on threads of its own: look-ups of names, file systems that hang, hashes of passwords. [`mounts`] knows whether a
//! file may hang.
//!
//! A [`Pool`] starts a thread if none is idle. An idle thread ends after ten seconds, but the last idle one stays. Therefore, a lack of
//! tasks (`pids.max`, `TasksMax`, `RLIMIT_NPROC`) makes work wait for the threads that the pool has. A process that needs a
//! pool starts its first thread at the beginning with [`Pool::start`], and does not start without it.
//!
//! - Work on a pool without any thread fails with [`Failure::NoThread`], and is dropped with all that it holds.
//! - Work that panics fails with [`Failure::Panicked`]. Its thread goes on.
//! - Work that has not begun is dropped with its [`Work`]. Work that has begun ends on its thread.
//!
//! The pool has no timeout: work that may hang has a pool of its own kind, and its callers have a timeout.
//!
//! tokio's `spawn_blocking` does not replace it (1.54, read in its source): its last thread ends, too; without a thread, it
//! panics, and keeps the closure in its queue, with all that it holds.

#![forbid(unsafe_code)]

pub mod mounts;
mod names;

pub use names::{NAMES, addresses, connect};

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Threads for one kind of work, in a `static`.
#[derive(Debug)]
pub struct Pool {
    /// The name of the threads.
    name: &'static str,
    state: Mutex<State>,
    woken: Condvar,
    /// Whether the machine has no task for another thread.
    #[cfg(test)]
    has_no_tasks: std::sync::atomic::AtomicBool,
}

/// Work on a pool: a future of its result.
#[derive(Debug)]
pub struct Work<T> {
    pool: &'static Pool,
    /// Its number in the queue, if it waits there; or why it did not begin.
    queued: io::Result<u64>,
    result: oneshot::Receiver<T>,
}

/// Why work has no result.
#[derive(Debug)]
pub enum Failure {
    /// It did not begin: the pool has no thread, and none can be started.
    NoThread(io::Error),
    /// It panicked.
    Panicked,
}

struct State {
    queue: VecDeque<(u64, Job)>,
    /// The number of the last work in the queue.
    last: u64,
    /// Threads that wait for work, without those that are woken.
    idle: usize,
    /// How many of the others are to wake.
    woken: usize,
    threads: usize,
}

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for more work before it ends.
const KEPT_IDLE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });
/// The most threads of a pool. Callers have lower limits, except for look-ups of very many names.
const MAX_THREADS: usize = 512;

// === impl Pool ===

impl Pool {
    /// A pool without threads. Their name is cut after 15 bytes.
    pub const fn new(name: &'static str) -> Pool {
        let state = State { queue: VecDeque::new(), last: 0, idle: 0, woken: 0, threads: 0 };
        Pool {
            name,
            state: Mutex::new(state),
            woken: Condvar::new(),
            #[cfg(test)]
            has_no_tasks: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Starts the thread that stays.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&'static self) -> io::Result<()> {
        let mut state = self.state();
        if state.threads == 0 {
            self.add_thread(&mut state)?;
        }
        Ok(())
    }

    /// Does work on a thread of the pool. It begins at once, and not when the future is polled.
    pub fn spawn<T: Send + 'static>(&'static self, work: impl FnOnce() -> T + Send + 'static) -> Work<T> {
        let (sender, result) = oneshot::channel();
        let queued = self.push(Box::new(move || drop(sender.send(work()))));
        Work { pool: self, queued, result }
    }

    /// Does work for which nothing waits. On a pool without any thread, it waits for one.
    pub fn spawn_detached(&'static self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.push(Box::new(work));
        // Later work starts a thread, and this work comes first.
        let _ = self.wake(&mut state);
    }

    /// Puts work into the queue. Returns its number.
    fn push(&'static self, job: Job) -> io::Result<u64> {
        let mut state = self.state();
        let number = state.push(job);
        let woken = self.wake(&mut state);
        let dropped = if woken.is_err() { state.withdraw(number) } else { None };
        drop(state);
        // Outside of the lock: it may hold a file, or permits.
        drop(dropped);
        woken.map(|()| number)
    }

    /// Wakes or starts a thread for more work in the queue.
    fn wake(&'static self, state: &mut State) -> io::Result<()> {
        if state.idle > 0 {
            state.idle -= 1;
            state.woken += 1;
            self.woken.notify_one();
            return Ok(());
        }
        if state.threads >= MAX_THREADS {
            return Ok(());
        }
        // Without another thread, those that are busy do the work later.
        self.add_thread(state).or_else(|error| if state.threads > 0 { Ok(()) } else { Err(error) })
    }

    fn add_thread(&'static self, state: &mut State) -> io::Result<()> {
        #[cfg(test)]
        if self.has_no_tasks.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        thread::Builder::new().name(self.name.to_owned()).spawn(|| self.run())?;
        state.threads += 1;
        Ok(())
    }

    /// A thread, to its end.
    fn run(&'static self) {
        let mut state = self.state();
        loop {
            while let Some((_, job)) = state.queue.pop_front() {
                drop(state);
                // The panic hook has logged it, and the caller gets no result.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state();
            }
            state.idle += 1;
            let since = Instant::now();
            while state.woken == 0 {
                if since.elapsed() >= KEPT_IDLE && state.idle > 1 {
                    state.idle -= 1;
                    state.threads -= 1;
                    return;
                }
                state = match state.idle {
                    // The last one stays: nothing is to be done until there is work.
                    1 => self.woken.wait(state).unwrap_or_else(PoisonError::into_inner),
                    _ => self.woken.wait_timeout(state, KEPT_IDLE).unwrap_or_else(PoisonError::into_inner).0,
                };
            }
            state.woken -= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is complete at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn push(&mut self, job: Job) -> u64 {
        self.last += 1;
        self.queue.push_back((self.last, job));
        self.last
    }

    /// Takes work out of the queue, if it has not begun.
    fn withdraw(&mut self, number: u64) -> Option<(u64, Job)> {
        let index = self.queue.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.queue.remove(index)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { queue, idle, threads, .. } = self;
        write!(formatter, "{} queued, {idle} of {threads} threads idle", queue.len())
    }
}

// === impl Work ===

impl<T> Work<T> {
    /// Drops the work, if it has not begun. Returns whether it has not: then there is no result.
    pub fn withdraw(&mut self) -> bool {
        // The work is dropped outside of the lock: it may hold a file, or permits.
        let withdrawn = self.queued.as_ref().ok().and_then(|number| self.pool.state().withdraw(*number));
        withdrawn.is_some()
    }
}

impl<T> Future for Work<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.result).poll(context));
        Poll::Ready(result.map_err(|_| match std::mem::replace(&mut self.queued, Ok(0)) {
            Ok(_) => Failure::Panicked,
            Err(error) => Failure::NoThread(error),
        }))
    }
}

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoThread(error) => {
                write!(formatter, "no thread can be started ({error}); see TasksMax or pids.max")
            }
            Failure::Panicked => formatter.write_str("a bug of howdah: see the line of the panic in its log"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        io::Error::other(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{self, Sender};

    /// A pool with one thread at most.
    fn pool(is_started: bool) -> &'static Pool {
        let pool: &Pool = Box::leak(Box::new(Pool::new("test")));
        if is_started {
            pool.start().unwrap();
        }
        pool.has_no_tasks.store(true, Ordering::Relaxed);
        pool
    }

    /// Work that waits until the sender is dropped.
    fn hanging(pool: &'static Pool) -> (Sender<()>, Work<()>) {
        let (release, released) = mpsc::channel::<()>();
        let wait = move || while released.recv().is_ok() {};
        (release, pool.spawn(wait))
    }

    #[tokio::test]
    async fn work_without_a_thread_fails_and_drops_what_it_holds() {
        let (pool, held) = (pool(false), Arc::new(()));
        pool.start().unwrap_err();
        for _ in 0..3 {
            let permit = Arc::clone(&held);
            let failure = pool.spawn(move || drop(permit)).await.unwrap_err();
            assert!(matches!(failure, Failure::NoThread(_)), "{failure}");
        }
        assert_eq!(Arc::strong_count(&held), 1);
        let permit = Arc::clone(&held);
        pool.spawn_detached(move || drop(permit));
        assert_eq!(Arc::strong_count(&held), 2, "it waits for a thread");
        pool.has_no_tasks.store(false, Ordering::Relaxed);
        pool.spawn(|| ()).await.unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn work_waits_for_the_thread_that_there_is() {
        let pool = pool(true);
        let (release, first) = hanging(pool);
        let second = pool.spawn(|| 7);
        drop(release);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), ((), 7));
        let panicked = pool.spawn(|| panic!("a bug")).await;
        assert!(matches!(panicked, Err::<(), _>(Failure::Panicked)));
        assert_eq!(pool.spawn(|| 8).await.unwrap(), 8, "the thread goes on");
        assert_eq!(pool.state().threads, 1);
    }

    #[tokio::test]
    async fn work_that_has_not_begun_is_withdrawn_with_its_future() {
        let (pool, held) = (pool(true), Arc::new(()));
        let (release, first) = hanging(pool);
        while pool.state().queue.front().is_some() {
            thread::yield_now();
        }
        let (permit, another) = (Arc::clone(&held), Arc::clone(&held));
        let mut second = pool.spawn(move || drop(permit));
        let third = pool.spawn(move || drop(another));
        assert!(second.withdraw() && !second.withdraw());
        drop(third);
        assert_eq!(Arc::strong_count(&held), 1);
        let mut first = first;
        assert!(!first.withdraw(), "it has begun");
        drop(first);
        drop(release);
        assert_eq!(pool.spawn(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn an_idle_thread_stays_beside_one_that_hangs() {
        let pool: &Pool = Box::leak(Box::new(Pool::new("test")));
        let (release, first) = hanging(pool);
        pool.spawn(|| ()).await.unwrap();
        pool.has_no_tasks.store(true, Ordering::Relaxed);
        tokio::time::sleep(2 * KEPT_IDLE).await;
        pool.spawn(|| ()).await.unwrap();
        drop(release);
        first.await.unwrap();
        while pool.state().threads > 1 {
            tokio::time::sleep(KEPT_IDLE / 10).await;
        }
        pool.spawn(|| ()).await.unwrap();
    }
}
