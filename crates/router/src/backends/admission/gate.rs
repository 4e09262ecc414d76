//! The gate before the workers of a generation, for all threads: a request is admitted to the queue, or rejected with
//! 503 at the pace of rejections. One line in the log stands for many rejections.

use crate::backends::admission::queue::{Arrival, TooBusy, Verdict};
use crate::backends::admission::shared_queue::SharedQueue;
use crate::backends::admission::shared_refusals::SharedRefusals;
use crate::report::Throttle;
use crate::response::failure::Failure;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The gate.
#[derive(Debug)]
pub struct Gate {
    /// The application's name, for log lines.
    application: String,
    /// Which requests wait, for how long, and which are rejected.
    queue: SharedQueue,
    /// Wakes the requests that wait for a worker or for a rejection: the queue decides in another way.
    decisions_changed: Notify,
    /// When rejections are sent.
    refusals: SharedRefusals,
    /// How many requests were answered 503 since the router started.
    rejected: AtomicU64,
    /// For the log lines about them.
    rejection_log: Throttle,
}

/// The turn of a request to be rejected.
#[derive(Clone, Copy)]
struct Turn {
    at: Instant,
    retry_after: u32,
}

/// The least time between two log lines about rejected requests.
pub const REJECTION_PAUSE: Duration = Duration::from_secs(10);

// === impl Gate ===

impl Gate {
    /// The gate of this application, where no request waits longer than this.
    pub fn new(application: &str, queue_timeout: Duration) -> Gate {
        Gate {
            application: application.to_owned(),
            queue: SharedQueue::new(queue_timeout),
            decisions_changed: Notify::new(),
            refusals: SharedRefusals::default(),
            rejected: 0.into(),
            rejection_log: Throttle::new(REJECTION_PAUSE),
        }
    }

    /// How many requests were answered 503 since the router started.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Admits a request to the queue. Returns when it was admitted, and how long it may wait from then on. `arrival`
    /// returns the state of the generation.
    ///
    /// # Errors
    /// 503, at the pace of rejections.
    pub async fn enqueue(&self, now: Instant, arrival: impl Fn() -> Arrival) -> Result<(Instant, Duration), Failure> {
        let state = arrival();
        self.measure(state.waiting, now);
        match self.queue.enqueue(state) {
            Verdict::Admit(longest) => Ok((now, longest)),
            _ => self.wait_for_admission(now, arrival).await,
        }
    }

    /// Rejects a request before its body has come, if it would be rejected afterwards.
    ///
    /// # Errors
    /// 503, at the pace of rejections.
    pub async fn reject_early(&self, arrival: impl Fn() -> Arrival) -> Result<(), Failure> {
        match self.queue.forecast(arrival()) {
            Verdict::Admit(_) => Ok(()),
            // It comes once more with its body, and is counted then.
            _ => self.enqueue(Instant::now(), arrival).await.map(|_| self.cancel()),
        }
    }

    /// Waits for the rejection of a request, or for the end of a hold.
    async fn wait_for_admission(
        &self,
        arrived: Instant,
        arrival: impl Fn() -> Arrival,
    ) -> Result<(Instant, Duration), Failure> {
        let latest = arrived + self.queue.timeout();
        let delayed = self.refusals.delay();
        let mut turn: Option<Turn> = None;
        loop {
            let changed = self.decisions_changed.notified();
            let now = Instant::now();
            turn = match (self.queue.forecast(arrival()), turn) {
                (Verdict::Hold, _) => None,
                // Room in the queue is for requests that come now: this one would make their wait longer.
                (_, Some(turn)) => Some(turn),
                (Verdict::Admit(longest), None) => return Ok((now, longest.saturating_sub(now - arrived))),
                (Verdict::Reject(TooBusy { retry_after }), None) => {
                    Some(Turn { at: self.refusals.reserve(now).min(latest), retry_after })
                }
            };
            let Turn { at, retry_after } = turn.unwrap_or(Turn { at: latest, retry_after: 1 });
            if at <= now || delayed.is_none() {
                return Err(self.reject(retry_after, arrival()));
            }
            tokio::select! {
                () = sleep_until(at) => return Err(self.reject(retry_after, arrival())),
                () = changed => {}
            }
        }
    }

    /// Waits until another request may be rejected.
    pub async fn pace_rejection(&self) {
        let at = self.refusals.reserve(Instant::now());
        if at > Instant::now()
            && let Some(_delayed) = self.refusals.delay()
        {
            sleep_until(at).await;
        }
    }

    /// Waits for something, up to the deadline of a request that was admitted then, and may wait that long. An overload
    /// may shorten the deadline meanwhile.
    pub async fn in_time<T>(
        &self,
        (admitted, longest): (Instant, Duration),
        something: impl Future<Output = T>,
    ) -> Option<T> {
        let mut something = pin!(something);
        loop {
            let decisions_changed = self.decisions_changed.notified();
            let deadline = admitted + self.longest_wait(longest);
            if deadline <= Instant::now() {
                return None;
            }
            tokio::select! {
                biased;
                done = &mut something => return Some(done),
                // The deadline may be later again, after the end of an overload.
                () = sleep_until(deadline) => {}
                () = decisions_changed => {}
            }
        }
    }

    /// Counts a request that was cancelled while it waited.
    pub fn cancel(&self) {
        self.queue.cancel();
    }

    /// Workers have finished this number of requests.
    pub fn finished(&self, count: usize) {
        self.queue.finished(count);
    }

    /// How long a request may wait now: no longer than `allowed`, and less under overload.
    pub fn longest_wait(&self, allowed: Duration) -> Duration {
        self.queue.longest_wait(allowed)
    }

    /// Lets the queue measure how fast it moves, and logs the beginning and the end of an overload.
    pub fn measure(&self, waiting: u64, now: Instant) {
        let Some(event) = self.queue.measure(waiting, now) else { return };
        self.decisions_changed.notify_waiters();
        if event.is_news() {
            tracing::warn!(application = self.application, "{event}");
        }
    }

    /// Rejects a request whose wait is over, at the pace of rejections.
    pub async fn reject_late(&self, arrival: impl Fn() -> Arrival) -> Failure {
        self.pace_rejection().await;
        self.reject(1, arrival())
    }

    /// Rejects a request that no worker takes in time. One line in the log stands for many.
    pub fn reject(&self, retry_after: u32, arrival: Arrival) -> Failure {
        let rejected = self.count_rejection();
        self.queue.rejected();
        if self.rejection_log.is_due() {
            tracing::warn!(
                application = self.application,
                waiting = arrival.waiting,
                workers = arrival.workers,
                rejected_until_now = rejected,
                "no worker takes a request in time: answered 503; `howdah status` and `howdah top` show the workers"
            );
        }
        Failure::Unavailable { retry_after }
    }

    /// Counts a request that is rejected for another reason. Returns how many were rejected until now.
    pub fn count_rejection(&self) -> u64 {
        self.rejected.fetch_add(1, Ordering::Relaxed) + 1
    }
}
