//! Which request gets which worker: the idle workers, and the requests that wait for one, each in the line of its thread.
//!
//! Moving a worker from the event loop of one thread to that of another costs system calls. Therefore a request takes an
//! idle worker of its own thread first, and a worker that has finished its request goes to the next request of its thread.
//! It goes to the oldest request of all threads if that is older by more than [`LOCALITY`]: a request is overtaken only by
//! requests that came within this time after it.
//!
//! Of several idle workers, the one that became idle last is next, so that memory and code that are warm are used first.

use crate::backends::admission::{Ticket, Waiting};
use crate::backends::roadrunner::worker::Worker;
use howdah_protocol::messages::router::RoadRunnerWorker;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The idle workers and the waiting requests of a generation, for all threads.
#[derive(Debug, Default)]
pub struct WorkerLine(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// While a worker is idle, no request waits.
    idle: Vec<Worker>,
    threads: Vec<ThreadLine>,
    last_number: u64,
}

/// The waiting requests of a thread, in the order of their tickets.
#[derive(Debug)]
struct ThreadLine {
    thread: ThreadId,
    requests: VecDeque<(Ticket, oneshot::Sender<Worker>)>,
}

/// How much earlier a request of another thread must have come to get a worker first.
const LOCALITY: Duration = Duration::from_millis(5);

// === impl WorkerLine ===

impl WorkerLine {
    /// An idle worker for a request of this thread that waits since then, or its ticket in the line.
    pub fn join(&self, since: Instant) -> Result<Worker, Waiting<Worker>> {
        let mut state = self.lock();
        if let Some(worker) = state.take_idle(thread::current().id()) {
            return Ok(worker);
        }
        state.last_number += 1;
        let ticket = (since, state.last_number);
        let (sender, turn) = oneshot::channel();
        let requests = &mut state.of_this_thread().requests;
        // Nearly always, this is the end.
        let index = requests.partition_point(|(other, _)| *other < ticket);
        requests.insert(index, (ticket, sender));
        Err(Waiting { ticket, turn })
    }

    /// A request of this thread has left the line.
    pub fn leave(&self, ticket: Ticket) {
        let mut state = self.lock();
        let requests = &mut state.of_this_thread().requests;
        if let Ok(index) = requests.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            requests.remove(index);
        }
    }

    /// A worker gets the next request that waits, or is idle. Returns the worker if it must retire instead.
    pub fn add(&self, mut worker: Worker) -> Option<Worker> {
        // A thread that takes a report of the supervisor changes the status first, and then looks among the idle workers.
        let mut state = self.lock();
        if worker.is_gone() {
            return None;
        }
        if worker.must_retire() {
            return Some(worker);
        }
        while let Some(sender) = state.next_request(thread::current().id()) {
            match sender.send(worker) {
                Ok(()) => return None,
                // This request was cancelled.
                Err(refused) => worker = refused,
            }
        }
        worker.idle_since = Instant::now();
        state.idle.push(worker);
        None
    }

    /// Takes this worker out if it is idle.
    pub fn remove(&self, name: RoadRunnerWorker) -> Option<Worker> {
        let mut state = self.lock();
        let index = state.idle.iter().position(|worker| worker.status.name == name)?;
        Some(state.idle.remove(index))
    }

    /// Takes out the worker that is idle for the longest time, if that is `ttl` or more.
    pub fn remove_idle(&self, ttl: Duration, now: Instant) -> Option<Worker> {
        let mut state = self.lock();
        let (index, worker) = state.idle.iter().enumerate().min_by_key(|(_, worker)| worker.idle_since)?;
        (worker.idle_since + ttl <= now).then(|| state.idle.remove(index))
    }

    /// The state is complete at any time.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn take_idle(&mut self, thread: ThreadId) -> Option<Worker> {
        match self.idle.iter().rposition(|worker| worker.thread() == Some(thread)) {
            Some(index) => Some(self.idle.remove(index)),
            None => self.idle.pop(),
        }
    }

    fn next_request(&mut self, thread: ThreadId) -> Option<oneshot::Sender<Worker>> {
        let first = |line: &ThreadLine| line.requests.front().map(|(ticket, _)| *ticket);
        let oldest = self.threads.iter().filter_map(first).min()?;
        let local = self.threads.iter().find(|line| line.thread == thread).and_then(first);
        let next = local.filter(|(since, _)| *since <= oldest.0 + LOCALITY).unwrap_or(oldest);
        let line = self.threads.iter_mut().find(|line| first(line) == Some(next))?;
        line.requests.pop_front().map(|(_, sender)| sender)
    }

    fn of_this_thread(&mut self) -> &mut ThreadLine {
        let thread = thread::current().id();
        let index = self.threads.iter().position(|line| line.thread == thread).unwrap_or_else(|| {
            self.threads.push(ThreadLine { thread, requests: VecDeque::new() });
            self.threads.len() - 1
        });
        &mut self.threads[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn worker(index: u16) -> Worker {
        let (answers, requests) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        Worker::new(RoadRunnerWorker { index, start: 1 }, Some(requests), answers)
    }

    fn index(worker: &Worker) -> u16 {
        worker.status.name.index
    }

    /// A worker whose answers this thread watches.
    fn local_worker(index: u16) -> Worker {
        let mut worker = worker(index);
        worker.pipes().expect("pipes");
        worker
    }

    /// On another thread.
    fn elsewhere<T: Send>(act: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(act).join().expect("a thread"))
    }

    #[tokio::test]
    async fn a_request_takes_the_last_idle_worker_of_its_thread_then_any_other() {
        let line = WorkerLine::default();
        for worker in [local_worker(1), local_worker(2), worker(3)] {
            assert!(line.add(worker).is_none());
        }
        let now = Instant::now();
        assert_eq!(elsewhere(|| line.join(now).map(|worker| index(&worker)).ok()), Some(3), "of none of the threads");
        assert_eq!(line.join(now).map(|worker| index(&worker)).ok(), Some(2));
        assert_eq!(elsewhere(|| line.join(now).map(|worker| index(&worker)).ok()), Some(1));
        assert!(line.join(now).is_err());
    }

    #[test]
    fn a_worker_stays_in_its_thread_unless_another_request_is_much_older() {
        // When a request of another thread came, when requests of this thread came (in ms), and how many of these are first.
        for (other, local, expected) in [(0, [4, 5], 2), (0, [5, 6], 1), (0, [6, 7], 0), (9, [1, 2], 2)] {
            let line = WorkerLine::default();
            let start = Instant::now();
            let join = |ms| line.join(start + Duration::from_millis(ms)).expect_err("no worker");
            let mut other = elsewhere(|| join(other));
            let mut turns = local.map(join);
            let mut first = 0;
            while other.turn.try_recv().is_err() {
                assert!(line.add(worker(1)).is_none());
                first += turns.iter_mut().map(|waiting| waiting.turn.try_recv()).filter(Result::is_ok).count();
            }
            assert_eq!(first, expected, "{local:?}");
        }
    }

    #[tokio::test]
    async fn requests_that_have_left_get_no_worker_and_their_places_are_kept() {
        let line = WorkerLine::default();
        let now = Instant::now();
        let join = |ms| line.join(now + Duration::from_millis(ms)).expect_err("no worker");
        let [cancelled, mut third, mut second, left] = [0, 2, 1, 0].map(join);
        line.leave(left.ticket);
        drop(cancelled);
        assert!(line.add(worker(1)).is_none());
        assert!(second.turn.try_recv().is_ok() && third.turn.try_recv().is_err());
        drop(third);
        assert!(line.add(worker(2)).is_none());
        assert_eq!(line.join(now).map(|worker| index(&worker)).ok(), Some(2), "it is idle");
    }

    #[test]
    fn a_worker_that_must_retire_is_given_back_and_one_that_is_gone_is_dropped() {
        let line = WorkerLine::default();
        let retiring = worker(1);
        retiring.status.must_retire.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(line.add(retiring).map(|worker| index(&worker)), Some(1));
        let gone = worker(2);
        gone.status.is_gone.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(line.add(gone).is_none());
        assert!(line.join(Instant::now()).is_err());
    }
}
