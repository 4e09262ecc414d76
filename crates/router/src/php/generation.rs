//! A generation, as the router's threads share it: its channel, its queue, and what the supervisor is told of it.

use super::killers::{self, Alike, Killers};
use super::queue::{self, Arrival, News, Queue, TooBusy};
use crate::php::slots::Slots;
use crate::response::failure::Failure;
use crate::supervisor_link::{Supervisor, TellOnDrop};
use howdah_channel::{RouterEnd, Violation, WorkerId};
use howdah_protocol::generation_paths::GenerationPaths;
use howdah_protocol::router_messages::{FromRouter, GenerationBoot};
use http::Uri;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A generation, as the router's threads share it.
#[derive(Debug)]
pub struct Generation {
    /// Its number.
    pub id: u64,
    /// Its application's name.
    pub application: String,
    /// Its channel.
    pub channel: RouterEnd,
    /// Its slots: requests wait for them in order.
    pub slots: Slots,
    /// How long requests wait, and who is refused.
    queue: Mutex<Queue>,
    /// How long one waits at most.
    queue_timeout: Duration,
    /// Whether the queue has anything to remember: if not, and nobody waits, nobody need ask it.
    is_standing: AtomicBool,
    /// Wakes those that wait for a slot when they may not wait for as long any more.
    pub(super) hurry: Notify,
    /// How many requests were answered 503 since the router started, and when that was last logged, in milliseconds since
    /// `started`.
    refused: AtomicU64,
    told_refusal: AtomicU64,
    /// The same of clients that would not wait for longer.
    told_impatience: AtomicU64,
    /// Requests that kill workers.
    killers: Mutex<Killers>,
    /// Whether there are any: if not, nobody need ask.
    has_killers: AtomicBool,
    /// When the log last heard that some are refused, in milliseconds since `started`.
    told_killers: AtomicU64,
    /// How many workers live.
    workers: AtomicU64,
    /// Where its scripts are.
    pub paths: GenerationPaths,
    /// The eventfd of each thread, until the thread takes it.
    bells: Mutex<Vec<Option<OwnedFd>>>,
    /// If more workers are started when fewer than this are idle.
    spare_workers: Option<u32>,
    /// When the supervisor was last told that there are too few workers, in milliseconds since `started`.
    told_demand: AtomicU64,
    /// Whether a task tells it again while it is so.
    tells_again: AtomicBool,
    /// When the generation came to this router.
    started: Instant,
    /// How long a worker may take for a request.
    pub(super) timeout: Option<Duration>,
    /// Whether the supervisor was told of a broken rule, and has not replaced the workers yet.
    violated: AtomicBool,
    /// Tells the supervisor of broken rules.
    pub(super) supervisor: Supervisor,
    /// Tells the supervisor when nobody uses the generation any more.
    #[expect(dead_code, reason = "its drop is its use")]
    released: TellOnDrop,
}

/// Answers of 503 are logged this far apart, in milliseconds.
const REFUSAL_PAUSE_MS: u64 = 10_000;
/// After this the supervisor is told again that there are too few workers.
const TELL_AGAIN: Duration = Duration::from_millis(10);
/// How long there is silence after the supervisor was told of a demand, in milliseconds.
const DEMAND_PAUSE_MS: u64 = 5;

// === impl Generation ===

impl Generation {
    /// A generation with this channel, and an eventfd for each thread.
    pub fn new(boot: GenerationBoot, channel: RouterEnd, bells: Vec<OwnedFd>, supervisor: &Supervisor) -> Generation {
        let queue_timeout = Duration::from_millis(boot.queue_timeout_ms);
        Generation {
            id: boot.id,
            application: boot.application,
            paths: GenerationPaths::default(),
            slots: Slots::new(channel.clone()),
            channel,
            bells: Mutex::new(bells.into_iter().map(Some).collect()),
            spare_workers: boot.spare_workers,
            queue: Mutex::new(Queue::new(queue_timeout)),
            queue_timeout,
            is_standing: false.into(),
            hurry: Notify::new(),
            refused: 0.into(),
            told_refusal: 0.into(),
            told_impatience: 0.into(),
            killers: Mutex::default(),
            has_killers: false.into(),
            told_killers: 0.into(),
            workers: 0.into(),
            told_demand: 0.into(),
            tells_again: false.into(),
            started: Instant::now(),
            timeout: boot.timeout_ms.map(Duration::from_millis),
            violated: false.into(),
            supervisor: supervisor.clone(),
            released: supervisor.tell_on_drop(FromRouter::Released { generation: boot.id }),
        }
    }

    /// The same with its scripts in these paths.
    pub fn at(self, paths: GenerationPaths) -> Generation {
        Generation { paths, ..self }
    }

    /// The eventfd by which workers wake this thread; `None` the second time.
    pub fn take_bell(&self, thread: usize) -> Option<OwnedFd> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.get_mut(thread).and_then(Option::take)
    }

    /// Its workers have been replaced: what they may write is worth nothing any more.
    pub fn workers_replaced(&self) {
        self.violated.store(false, Ordering::Relaxed);
        self.channel.release_quarantined();
    }

    /// The worker is about to be started.
    pub fn worker_started(&self, worker: WorkerId) {
        self.channel.worker_started(worker);
        self.count_workers();
    }

    /// The worker is dead.
    pub fn worker_died(&self, worker: WorkerId) {
        self.channel.worker_died(worker);
        self.count_workers();
        self.slots.recover();
    }

    fn count_workers(&self) {
        let workers = self.channel.living_workers();
        self.workers.store(workers as u64, Ordering::Relaxed);
        self.slots.set_workers(workers);
    }

    /// How many requests are under way or wait for a worker.
    pub fn active_requests(&self) -> u64 {
        self.channel.slots_in_use() as u64 + self.slots.waiting()
    }

    /// How many requests wait for a worker.
    pub fn waiting_requests(&self) -> u64 {
        self.channel.requests_waiting() + self.slots.waiting()
    }

    /// How many requests were answered 503 because no worker took them in time, or would.
    pub fn refused_requests(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A request comes, whose client will wait for so long if it has said so. How long it may wait.
    pub(super) fn arrive(&self, patience: Option<Duration>, now: Instant) -> Result<Duration, Failure> {
        let waiting = self.waiting_requests();
        self.look(waiting, now);
        if waiting == 0 && !self.is_standing.load(Ordering::Relaxed) {
            return Ok(queue::longest(patience, self.queue_timeout));
        }
        let arrival = Arrival { waiting, workers: self.workers.load(Ordering::Relaxed), patience };
        let arrived = self.queue().arrive(arrival);
        arrived.map_err(|TooBusy { retry_after }| self.refuse(retry_after, patience))
    }

    /// Whether requests like it kill workers.
    pub(super) fn is_suspect(&self, alike: Alike) -> bool {
        self.has_killers.load(Ordering::Relaxed) && self.killers().is_suspect(alike)
    }

    /// A request comes: not if too many like it have killed their workers.
    pub(super) fn contain(&self, uri: &Uri, alike: Alike, now: Instant) -> Result<(), Failure> {
        let is_refused = self.has_killers.load(Ordering::Relaxed) && !self.killers().admit(alike, now);
        if is_refused { Err(self.refuse_killer(uri)) } else { Ok(()) }
    }

    fn refuse_killer(&self, uri: &Uri) -> Failure {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if self.may_tell(&self.told_killers, REFUSAL_PAUSE_MS) {
            tracing::warn!(
                application = self.application,
                refused_until_now = refused,
                "requests for {} kill the workers that run them: {} a second are run, more are answered 503; the lines \
                 above say how the workers died",
                uri.path(),
                killers::PER_SECOND
            );
        }
        Failure::Unavailable { retry_after: 1 }
    }

    /// A request killed its worker.
    pub(super) fn was_killed_by(&self, alike: Alike, was_answered: bool, now: Instant) {
        self.killers().killed(alike, was_answered, now);
        self.has_killers.store(true, Ordering::Relaxed);
    }

    /// A request ran to its end.
    pub(super) fn has_survived(&self, alike: Alike) {
        if self.has_killers.load(Ordering::Relaxed) {
            self.killers().survived(alike);
        }
    }

    /// Forgets what was long ago.
    pub(super) fn forget(&self, now: Instant) {
        if self.has_killers.load(Ordering::Relaxed) {
            let mut killers = self.killers();
            killers.forget(now);
            self.has_killers.store(!killers.is_empty(), Ordering::Relaxed);
        }
    }

    fn killers(&self) -> MutexGuard<'_, Killers> {
        self.killers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a message that may come often is to be told now: once in `pause` milliseconds.
    fn may_tell(&self, told: &AtomicU64, pause: u64) -> bool {
        // So that nothing was told at zero.
        let now = self.started.elapsed().as_millis() as u64 + pause;
        let last = told.load(Ordering::Relaxed);
        now >= last + pause && told.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether a request that is not whole yet would be refused: it need not come, then.
    pub(super) fn foresee(&self, uri: &Uri, alike: Alike, patience: Option<Duration>) -> Result<(), Failure> {
        if self.has_killers.load(Ordering::Relaxed) && !self.killers().foresee(alike, Instant::now()) {
            return Err(self.refuse_killer(uri));
        }
        let waiting = self.waiting_requests();
        if waiting == 0 && !self.is_standing.load(Ordering::Relaxed) {
            return Ok(());
        }
        let arrival = Arrival { waiting, workers: self.workers.load(Ordering::Relaxed), patience };
        // Not in the match: the queue would stay locked for who looks at it next.
        let is_foreseen = self.queue().foresee(arrival).is_err();
        if is_foreseen { self.arrive(patience, Instant::now()).map(drop) } else { Ok(()) }
    }

    /// A request that waited was taken back.
    pub(super) fn left(&self) {
        if self.is_standing.load(Ordering::Relaxed) {
            self.queue().left();
        }
    }

    /// Looks at how the queue moves, and says what an operator should hear.
    pub(super) fn look(&self, waiting: u64, now: Instant) {
        if waiting == 0 && !self.is_standing.load(Ordering::Relaxed) {
            return;
        }
        let news = {
            let mut queue = self.queue();
            let news = queue.look(waiting, now);
            self.is_standing.store(queue.is_standing(), Ordering::Relaxed);
            news
        };
        match news {
            Some(News::Overloaded { .. }) => self.hurry.notify_waiters(),
            Some(News::Recovered { .. }) | None => {}
        }
        if let Some(news) = news {
            tracing::warn!(application = self.application, "{news}");
        }
    }

    /// Workers have finished so many requests.
    pub(super) fn finished(&self, count: usize) {
        if count > 0 && self.is_standing.load(Ordering::Relaxed) {
            self.queue().finished(count as u64);
        }
    }

    /// How long a request may wait now that could have waited for so long.
    pub(super) fn longest(&self, allowed: Duration) -> Duration {
        match self.is_standing.load(Ordering::Relaxed) {
            true => self.queue().longest(allowed),
            false => allowed,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No worker takes a request in time, or in the time that its client would wait. One line in the log tells of many.
    pub(super) fn refuse(&self, retry_after: u32, patience: Option<Duration>) -> Failure {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_standing.load(Ordering::Relaxed) {
            self.queue().refused();
        }
        // What clients wish must not keep from the log what is wrong.
        let patience = patience.filter(|patience| *patience < self.queue_timeout);
        let told = if patience.is_some() { &self.told_impatience } else { &self.told_refusal };
        if self.may_tell(told, REFUSAL_PAUSE_MS) {
            let why = match patience {
                Some(patience) => {
                    format!("its client would wait for {} s only, as its Prefer header says", patience.as_secs_f64())
                }
                None => "`howdah status` and `howdah top` say what the workers do".to_owned(),
            };
            tracing::warn!(
                application = self.application,
                waiting = self.waiting_requests(),
                workers = self.workers.load(Ordering::Relaxed),
                refused_until_now = refused,
                "no worker takes a request in time: answered 503; {why}"
            );
        }
        Failure::Unavailable { retry_after }
    }

    /// Tells the supervisor if there should be more workers, and again while that is so.
    pub(super) fn tell_demand(self: &Arc<Self>) {
        if self.tell_if_wanting() && !self.tells_again.swap(true, Ordering::SeqCst) {
            // It must not keep alive a generation that nobody uses any more, however much that one wants.
            let generation = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    sleep(TELL_AGAIN).await;
                    let Some(generation) = generation.upgrade() else { return };
                    if generation.tell_if_wanting() {
                        continue;
                    }
                    generation.tells_again.store(false, Ordering::SeqCst);
                    // Who came just before that has left it to us.
                    if !generation.tell_if_wanting() || generation.tells_again.swap(true, Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
    }

    /// Tells the supervisor if there should be more workers. Whether there should.
    fn tell_if_wanting(&self) -> bool {
        let Some(spare) = self.spare_workers else { return false };
        let (idle, queued) = self.channel.demand();
        if idle >= spare && (idle > 0 || queued == 0) {
            return false;
        }
        // Whoever comes too early is heard by the next request, or by the task that tells it again.
        if self.may_tell(&self.told_demand, DEMAND_PAUSE_MS) {
            let waiting = queued + self.slots.waiting();
            self.supervisor.tell(&FromRouter::WorkersWanted { generation: self.id, waiting });
        }
        true
    }

    /// A broken rule is reported once: all workers are replaced anyway.
    pub(super) fn report(&self, violation: Violation) {
        if !self.violated.swap(true, Ordering::Relaxed) {
            tracing::error!(%violation, application = self.application, "the workers of this application are replaced");
            let rule = violation.0.into();
            self.supervisor.tell(&FromRouter::Violation { generation: self.id, rule });
        }
    }
}
