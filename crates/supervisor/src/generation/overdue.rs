//! Requests that have taken longer than `limits/timeout`: their workers are asked to end them, and killed if they do not.
//!
//! The router says when a request of a client that waits is overdue, and says it again for as long as it goes on. Those
//! whose clients have left are found here, in the workers' accounts. A worker that lies in its account is killed when the
//! router complains for the second time.

use super::Generation;
use super::worker_report::request_texts;
use howdah_channel::WorkerId;
use howdah_channel::account::{Current, monotonic};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The requests that are being ended.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// By the worker's place.
    ending: BTreeMap<u16, Ending>,
    /// When to look at the accounts again.
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct Ending {
    worker: WorkerId,
    /// The request: its slot, and the slot's sequence number.
    request: (u16, u32),
    /// When the request began; `None` when the worker says that it runs no such request.
    began: Option<Duration>,
    kill_at: Instant,
}

/// How long PHP has for its shutdown functions.
const GRACE: Duration = Duration::from_secs(2);
/// How often the accounts are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A complaint of the router's that is older than this has nothing to do with the next one.
const FORGET: Duration = Duration::from_secs(5);

// === impl Generation ===

impl Generation {
    /// The router says that a worker takes longer for this request than `limits/timeout` allows.
    pub fn on_overdue(&mut self, worker: WorkerId, request: (u16, u32), now: Instant) {
        // It may have ended since; or the worker lies, and the router says it again.
        let current = self.current_of(worker).filter(|current| current.name() == request);
        self.end_request(worker, request, current, now);
    }

    /// Looks for requests whose clients have left, and for those that were to end and have not.
    pub(super) fn look_at_overdue(&mut self, now: Instant) {
        let Some(timeout) = self.plan.limits.timeout else { return };
        if self.overdue.next_deadline().is_some_and(|at| at > now) {
            return;
        }
        let running: Vec<_> = self.workers.alive().map(|(worker, _)| worker).collect();
        let late = monotonic().saturating_sub(timeout + LOOK);
        for worker in &running {
            let current = self.current_of(*worker).filter(|current| self.control.is_answering(*current));
            if let Some(current) = current.filter(|current| current.began < late) {
                self.end_request(*worker, current.name(), Some(current), now);
            }
        }
        let due: Vec<_> =
            self.overdue.ending.values().filter(|ending| ending.due() <= now).map(|it| it.worker).collect();
        for worker in due {
            let began = self.current_of(worker).map(|current| current.began);
            let known = self.overdue.ending[&worker.index].began;
            if known.is_some() && known == began && running.contains(&worker) {
                self.kill_overdue(worker, now);
            } else {
                self.overdue.ending.remove(&worker.index);
            }
        }
        self.overdue.look_at = Some(now + LOOK);
    }

    /// Whether this worker was asked to end its request: it goes then, too.
    pub(super) fn was_overdue(&self, worker: WorkerId) -> bool {
        self.overdue.ending.get(&worker.index).is_some_and(|ending| ending.worker == worker)
    }

    fn current_of(&self, worker: WorkerId) -> Option<Current> {
        self.control.account(worker).and_then(|account| account.current)
    }

    /// A request for the log, as the worker tells it.
    fn describe(&self, current: Current) -> String {
        let [method, url, script] = request_texts(&self.control, current)
            .map(|text| text.unwrap_or_default().replace(|c: char| c.is_control(), "?"));
        let seconds = monotonic().saturating_sub(current.began).as_secs_f64();
        format!("{method} {url}, script {script}, which runs for {seconds:.1} s")
    }

    fn end_request(&mut self, worker: WorkerId, request: (u16, u32), current: Option<Current>, now: Instant) {
        let began = current.map(|current| current.began);
        match self.overdue.ending.get(&worker.index) {
            Some(known) if known.worker == worker && known.request == request => {
                if known.kill_at <= now {
                    self.kill_overdue(worker, now);
                }
            }
            _ => {
                let ending = Ending { worker, request, began, kill_at: now + GRACE };
                self.overdue.ending.insert(worker.index, ending);
                if let Some(current) = current {
                    self.control.end_request(worker, current);
                }
            }
        }
    }

    fn kill_overdue(&mut self, overdue: WorkerId, now: Instant) {
        if let Some(ending) = self.overdue.ending.get_mut(&overdue.index) {
            ending.kill_at = now + GRACE;
        }
        let process = self.workers.alive().find(|(worker, _)| *worker == overdue).and_then(|(_, process)| process);
        let Some(process) = process else { return };
        let what = self.current_of(overdue).map_or_else(|| "a request".to_owned(), |current| self.describe(current));
        tracing::warn!(
            "a worker of {:?} (pid {}) took longer than \"limits/timeout\" allows for {what}, and did not end it within \
             {} s; it is killed",
            self.plan.name,
            process.pid.as_raw_pid(),
            GRACE.as_secs()
        );
        process.kill();
    }
}

// === impl Overdue ===

impl Overdue {
    /// When to look at the accounts again: while somebody is to be killed, in any case.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.ending.values().map(Ending::due).chain(self.look_at).min()
    }

    /// Looks at the accounts from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.look_at = Some(now + LOOK);
    }
}

// === impl Ending ===

impl Ending {
    /// When something is to be done about it. Of a request that the worker denies only the router can say that it goes on.
    fn due(&self) -> Instant {
        if self.began.is_some() { self.kill_at } else { self.kill_at + FORGET }
    }
}
