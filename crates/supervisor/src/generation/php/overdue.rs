//! Requests that have taken longer than `limits/timeout`: their workers are asked to end them, and killed if they do not.
//!
//! The router reports an overdue request whose client waits, and repeats that while the request goes on. Requests whose
//! clients have left are found here, in the workers' accounts. A worker whose account is wrong is killed at the router's
//! second report.

use super::workers::worker_report::request_texts;
use super::workers::worker_set::WorkerSet;
use howdah_channel::WorkerId;
use howdah_channel::account::{Current, monotonic};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The requests that are being ended.
#[derive(Debug)]
pub struct OverdueRequests {
    /// `limits/timeout`.
    timeout: Option<Duration>,
    /// The application's name, for the log.
    application: String,
    /// By the worker's index.
    ending: BTreeMap<u16, EndingRequest>,
    /// When to look at the accounts again.
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct EndingRequest {
    worker: WorkerId,
    /// The request's slot, and the slot's sequence number.
    request: (u16, u32),
    /// When the request began; `None` when the worker's account does not have it.
    began: Option<Duration>,
    kill_at: Instant,
}

/// How long PHP has for its shutdown functions.
const SHUTDOWN_FUNCTION_GRACE: Duration = Duration::from_secs(2);
/// The time between two looks at the accounts.
const LOOK: Duration = Duration::from_secs(1);
/// A report of the router that is older than this is independent of the next one.
const FORGET: Duration = Duration::from_secs(5);

// === impl OverdueRequests ===

impl OverdueRequests {
    /// Of an application with this `limits/timeout`.
    pub fn new(timeout: Option<Duration>, application: String) -> OverdueRequests {
        OverdueRequests { timeout, application, ending: BTreeMap::new(), look_at: None }
    }

    /// Looks at the accounts from now on, because workers start.
    pub fn begin(&mut self, now: Instant) {
        self.look_at = self.timeout.map(|_| now + LOOK);
    }

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.ending.values().map(EndingRequest::due).chain(self.look_at).min()
    }

    /// Whether this worker was asked to end its request: then it exits after it.
    pub fn has(&self, worker: WorkerId) -> bool {
        self.ending.get(&worker.index).is_some_and(|ending| ending.worker == worker)
    }

    /// The router reports that this request takes longer than allowed.
    pub fn on_report(&mut self, worker: WorkerId, request: (u16, u32), workers: &WorkerSet, now: Instant) {
        // The request may have ended since; or the account is wrong, and the router repeats its report.
        let current = workers.current(worker).filter(|current| current.name() == request);
        self.end_request(worker, request, current, workers, now);
    }

    /// Looks for requests whose clients have left, and for requests that were asked to end and have not.
    pub fn on_time(&mut self, workers: &WorkerSet, now: Instant) {
        let Some(timeout) = self.timeout else { return };
        if self.next_deadline().is_some_and(|at| at > now) {
            return;
        }
        let running: Vec<_> = workers.ids().collect();
        let late = monotonic().saturating_sub(timeout + LOOK);
        for worker in &running {
            let current = workers.current(*worker).filter(|current| workers.control.is_answering(*current));
            if let Some(current) = current.filter(|current| current.began < late) {
                self.end_request(*worker, current.name(), Some(current), workers, now);
            }
        }
        let due = self.ending.values().filter(|ending| ending.due() <= now);
        let due: Vec<_> = due.map(|ending| (ending.worker, ending.began)).collect();
        for (worker, known) in due {
            let began = workers.current(worker).map(|current| current.began);
            if known.is_some() && known == began && running.contains(&worker) {
                self.kill(worker, workers, now);
            } else {
                self.ending.remove(&worker.index);
            }
        }
        self.look_at = Some(now + LOOK);
    }

    fn end_request(
        &mut self,
        worker: WorkerId,
        request: (u16, u32),
        current: Option<Current>,
        workers: &WorkerSet,
        now: Instant,
    ) {
        match self.ending.get(&worker.index) {
            Some(known) if known.worker == worker && known.request == request => {
                if known.kill_at <= now {
                    self.kill(worker, workers, now);
                }
            }
            _ => {
                let began = current.map(|current| current.began);
                let ending = EndingRequest { worker, request, began, kill_at: now + SHUTDOWN_FUNCTION_GRACE };
                self.ending.insert(worker.index, ending);
                if let Some(current) = current {
                    workers.control.end_request(worker, current);
                }
            }
        }
    }

    fn kill(&mut self, overdue: WorkerId, workers: &WorkerSet, now: Instant) {
        if let Some(ending) = self.ending.get_mut(&overdue.index) {
            ending.kill_at = now + SHUTDOWN_FUNCTION_GRACE;
        }
        let process = workers.table.alive().find(|(worker, _)| *worker == overdue).and_then(|(_, process)| process);
        let Some(process) = process else { return };
        let request =
            workers.current(overdue).map_or_else(|| "a request".to_owned(), |current| describe(workers, current));
        tracing::warn!(
            "a worker of {:?} (pid {}) took longer than \"limits/timeout\" allows for {request}, and did not end it \
             within {} s; it is killed",
            self.application,
            process.pid.as_raw_pid(),
            SHUTDOWN_FUNCTION_GRACE.as_secs()
        );
        process.kill();
    }
}

/// A request for the log, as far as its worker's account has it.
fn describe(workers: &WorkerSet, current: Current) -> String {
    let [method, url, script] = request_texts(&workers.control, current)
        .map(|text| text.unwrap_or_default().replace(|c: char| c.is_control(), "?"));
    let seconds = monotonic().saturating_sub(current.began).as_secs_f64();
    format!("{method} {url}, script {script}, which runs for {seconds:.1} s")
}

// === impl EndingRequest ===

impl EndingRequest {
    /// When something is to be done about it. If the account does not have the request, only the router knows whether it
    /// goes on.
    fn due(&self) -> Instant {
        if self.began.is_some() { self.kill_at } else { self.kill_at + FORGET }
    }
}
