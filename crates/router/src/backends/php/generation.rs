//! A generation, as the router's threads share it: its channel, its queue, and its reports to the supervisor.

use crate::backends::admission::{Arrival, Gate, REJECTION_PAUSE};
use crate::backends::php::admission::{RequestKind, SUSPECTS_PER_SECOND, SharedKillers, Slots};
use crate::backends::php::run_times::RunTimes;
use crate::product;
use crate::report::{AbortOnPanic, ReportOnDrop, SupervisorLink, Throttle};
use crate::request::record::application_log::ApplicationLog;
use crate::request::record::log_context::LogContext;
use crate::resources::processors::processors;
use crate::response::failure::Failure;
use howdah_channel::{RouterEnd, Violation, WorkerId};
use howdah_config::Patterns;
use howdah_metrics::labels::Cause;
use howdah_protocol::messages::generation_paths::{FixedScript, GenerationPaths, WorkerScriptPaths};
use howdah_protocol::messages::router::{FromRouter, GenerationBoot};
use http::Uri;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A generation, as the router's threads share it.
#[derive(Debug)]
pub struct SharedGeneration {
    /// Its number.
    pub id: u64,
    /// The number of the generation, of which this is the pool of a worker script if the application has several.
    whole: u64,
    /// Its other pools, each with its worker script.
    pub pools: Vec<ScriptPool>,
    /// Its application's name.
    pub application: String,
    /// The application's own log.
    pub log: Option<Arc<ApplicationLog>>,
    /// SERVER_SOFTWARE for its scripts.
    pub server_software: String,
    /// Its channel.
    pub channel: RouterEnd,
    /// Its slots: requests wait for them in order.
    pub slots: Slots,
    /// Which requests may wait, and which are rejected.
    gate: Gate,
    /// Requests that kill workers.
    killers: SharedKillers,
    /// For the log lines about rejected killers.
    killer_log: Throttle,
    /// How many workers are alive.
    workers: AtomicU64,
    /// The paths of its scripts.
    pub paths: GenerationPaths,
    /// The eventfd of each thread, until the thread takes it.
    bells: Mutex<Vec<Option<OwnedFd>>>,
    /// More workers are requested when fewer than this are idle, or when requests wait and none is idle; `None` for a pool of a
    /// fixed size.
    spare_workers: Option<u32>,
    /// How long its requests ran.
    run_times: RunTimes,
    /// For the reports of too few workers to the supervisor.
    demand_reports: Throttle,
    /// Whether a task repeats the report while it is true.
    repeats_demand: AtomicBool,
    /// How long a worker may take for a request.
    pub(super) timeout: Option<Duration>,
    /// Whether a broken rule was reported, and the supervisor has not replaced the workers yet.
    violated: AtomicBool,
    /// Receives reports of broken rules, of overdue requests and of demand.
    pub(super) supervisor: SupervisorLink,
    /// Reports to the supervisor that the generation is no longer used.
    /// All pools share it.
    released: Arc<ReportOnDrop>,
}

/// The workers of one of several worker scripts.
#[derive(Debug)]
pub struct ScriptPool {
    /// Their channel and queue.
    pub generation: Arc<SharedGeneration>,
    /// The script.
    pub script: FixedScript,
    /// The paths that it handles; `None`: the requests that would run it in classic mode.
    pub paths: Option<Patterns>,
}

/// The interval in which a report of too few workers is repeated.
const REPEAT_DEMAND: Duration = Duration::from_millis(10);
/// The least time between two reports of demand.
const DEMAND_PAUSE: Duration = Duration::from_millis(5);

// === impl SharedGeneration ===

impl SharedGeneration {
    /// A generation, or a pool of one, with this channel, and an eventfd for each thread. `sibling` is another pool of the
    /// same generation.
    pub fn new(
        boot: GenerationBoot,
        channel: RouterEnd,
        bells: Vec<OwnedFd>,
        supervisor: &SupervisorLink,
        sibling: Option<&SharedGeneration>,
    ) -> SharedGeneration {
        let whole = boot.pool_of.unwrap_or(boot.id);
        let released = || Arc::new(supervisor.send_on_drop(FromRouter::Released { generation: whole }));
        SharedGeneration {
            id: boot.id,
            whole,
            pools: Vec::new(),
            log: None,
            server_software: boot.server_software.unwrap_or_else(|| product::SOFTWARE.to_owned()),
            paths: GenerationPaths::default(),
            slots: Slots::new(channel.clone()),
            channel,
            bells: Mutex::new(bells.into_iter().map(Some).collect()),
            spare_workers: boot.spare_workers,
            gate: Gate::new(&boot.application, Duration::from_millis(boot.queue_timeout_ms)),
            application: boot.application,
            killers: SharedKillers::default(),
            killer_log: Throttle::new(REJECTION_PAUSE),
            workers: 0.into(),
            run_times: RunTimes::new(),
            demand_reports: Throttle::new(DEMAND_PAUSE),
            repeats_demand: false.into(),
            timeout: boot.timeout_ms.map(Duration::from_millis),
            violated: false.into(),
            supervisor: supervisor.clone(),
            released: sibling.map_or_else(released, |sibling| Arc::clone(&sibling.released)),
        }
    }

    /// The same generation, with its scripts at these paths, and this log of its application.
    pub fn with(self, paths: GenerationPaths, log: Option<ApplicationLog>) -> SharedGeneration {
        SharedGeneration { paths, log: log.map(Arc::new), ..self }
    }

    /// The same generation, with the pools of its worker scripts, in the order of [`GenerationPaths::worker_scripts`].
    ///
    /// # Errors
    /// When a pattern of their paths cannot be read.
    pub fn with_pools(self, pools: Vec<Arc<SharedGeneration>>) -> io::Result<SharedGeneration> {
        let pool = |(generation, found): (Arc<SharedGeneration>, &WorkerScriptPaths)| {
            let paths = found.patterns.as_deref().map(Patterns::of_paths).transpose().map_err(io::Error::other)?;
            Ok(ScriptPool { generation, script: found.script.clone(), paths })
        };
        let pools = pools.into_iter().zip(&self.paths.worker_scripts).map(pool).collect::<io::Result<_>>()?;
        Ok(SharedGeneration { pools, ..self })
    }

    /// Whether this is a pool of the generation with this number.
    pub fn is_of(&self, generation: u64) -> bool {
        self.whole == generation
    }

    /// The eventfd by which workers wake this thread; `None` the second time.
    pub fn take_bell(&self, thread: usize) -> Option<OwnedFd> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.get_mut(thread).and_then(Option::take)
    }

    /// Its workers have been replaced: the old ones can no longer write to quarantined slots.
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

    /// How many workers live.
    pub fn living_workers(&self) -> usize {
        self.channel.living_workers()
    }

    /// Whether a worker runs several requests at a time.
    pub(super) fn is_async(&self) -> bool {
        self.channel.claims() > 1
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

    /// How many requests were answered 503 by the queue, or because requests of the same kind kill workers.
    pub fn rejected_requests(&self) -> u64 {
        self.gate.rejected()
    }

    /// Admits a request to the queue: [`Gate::enqueue`].
    pub(super) async fn enqueue(&self, now: Instant) -> Result<(Instant, Duration), Failure> {
        self.gate.enqueue(now, || self.arrival()).await
    }

    /// Rejects a request before its body has come, if it would be rejected afterwards.
    pub(super) async fn reject_early(&self, uri: &Uri, kind: RequestKind) -> Result<(), Failure> {
        if !self.killers.would_admit(kind, Instant::now()) {
            return Err(self.reject_killer(uri).await);
        }
        self.gate.reject_early(|| self.arrival()).await
    }

    fn arrival(&self) -> Arrival {
        let workers = self.workers.load(Ordering::Relaxed);
        Arrival { waiting: self.waiting_requests(), workers, places: workers * self.channel.claims() as u64 }
    }

    /// A request occupied a worker for this time.
    pub(super) fn occupied(&self, time: Duration) {
        self.run_times.add(time);
    }

    /// A worker has ended a request that it did not finish, or not in time.
    pub(super) fn ended_unfinished(&self) {
        self.finished(1);
        self.not_quick();
    }

    /// The generation's requests are not quick, whatever those that have ended took.
    pub(super) fn not_quick(&self) {
        self.run_times.not_quick();
    }

    /// How many workers are not asleep. Workers that start, or have just died, count, too.
    pub(super) fn workers_awake(&self) -> u64 {
        self.workers.load(Ordering::Relaxed).saturating_sub(self.channel.sleepers().into())
    }

    /// How many requests may wait before another worker is woken, while this number of workers is awake.
    pub(super) fn wake_threshold(&self, awake: u64) -> u32 {
        if self.is_async() { 0 } else { self.run_times.wake_threshold(awake, processors()) }
    }

    /// Counts a request that was cancelled while it waited.
    pub(super) fn cancel(&self) {
        self.gate.cancel();
    }

    /// Workers have finished this number of requests.
    pub(super) fn finished(&self, count: usize) {
        self.gate.finished(count);
    }

    /// How long a request may wait now: no longer than `allowed`, and less under overload.
    pub(super) fn longest_wait(&self, allowed: Duration) -> Duration {
        self.gate.longest_wait(allowed)
    }

    /// Waits for something, up to the deadline of a request: [`Gate::in_time`].
    pub(super) fn in_time<T>(
        &self,
        wait: (Instant, Duration),
        something: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        self.gate.in_time(wait, something)
    }

    /// Lets the queue measure how fast it moves.
    pub(super) fn measure(&self, waiting: u64, now: Instant) {
        self.gate.measure(waiting, now);
    }

    /// Rejects a request whose wait is over, at the pace of rejections.
    pub(super) async fn reject_late(&self) -> Failure {
        self.gate.reject_late(|| self.arrival()).await
    }

    /// Rejects a request that no worker takes in time.
    pub(super) fn reject(&self, retry_after: u32) -> Failure {
        self.gate.reject(retry_after, self.arrival())
    }

    /// Rejects a request if too many of its kind have killed their workers; otherwise takes a token of a suspect.
    pub(super) async fn check_killer(&self, uri: &Uri, kind: RequestKind, now: Instant) -> Result<(), Failure> {
        if self.killers.admit(kind, now) { Ok(()) } else { Err(self.reject_killer(uri).await) }
    }

    async fn reject_killer(&self, uri: &Uri) -> Failure {
        LogContext::refuse(Cause::KillsWorkers);
        self.gate.pace_rejection().await;
        let rejected = self.gate.count_rejection();
        if self.killer_log.is_due() {
            tracing::warn!(
                application = self.application,
                rejected_until_now = rejected,
                "requests for {} kill the workers that run them: {} per second are run, the rest is answered 503; the lines \
                 above have the causes of the deaths",
                uri.path(),
                SUSPECTS_PER_SECOND
            );
        }
        Failure::Unavailable { retry_after: 1 }
    }

    /// Whether requests of its kind kill workers.
    pub(super) fn is_suspect(&self, kind: RequestKind) -> bool {
        self.killers.is_suspect(kind)
    }

    /// A request killed its worker.
    pub(super) fn was_killed_by(&self, kind: RequestKind, was_answered: bool, now: Instant) {
        self.killers.killed(kind, was_answered, now);
    }

    /// A request ran to its end.
    pub(super) fn has_survived(&self, kind: RequestKind) {
        self.killers.survived(kind);
    }

    /// Forgets killers of long ago.
    pub(super) fn forget(&self, now: Instant) {
        self.killers.forget(now);
    }

    /// Reports to the supervisor that more workers are needed, and repeats the report while that is true.
    pub(super) fn report_demand(self: &Arc<Self>) {
        if self.report_if_wanting() && !self.repeats_demand.swap(true, Ordering::SeqCst) {
            // A weak reference: the task must not keep alive a generation that is no longer used.
            let generation = Arc::downgrade(self);
            tokio::spawn(async move {
                let _abort = AbortOnPanic;
                loop {
                    sleep(REPEAT_DEMAND).await;
                    let Some(generation) = generation.upgrade() else { return };
                    if generation.report_if_wanting() {
                        continue;
                    }
                    generation.repeats_demand.store(false, Ordering::SeqCst);
                    // A request that came just before the store relied on this task.
                    if !generation.report_if_wanting() || generation.repeats_demand.swap(true, Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
    }

    /// Reports to the supervisor if more workers are needed, and returns whether they are.
    fn report_if_wanting(&self) -> bool {
        let Some(spare) = self.spare_workers else { return false };
        let (idle, queued) = self.channel.demand();
        if idle >= spare && (idle > 0 || queued == 0) {
            return false;
        }
        // A demand within the pause is reported by the next request, or by the task that repeats the report.
        if self.demand_reports.is_due() {
            let waiting = queued + self.slots.waiting();
            self.supervisor.send(&FromRouter::WorkersWanted { generation: self.id, waiting });
        }
        true
    }

    /// Reports a broken rule, once: all workers are replaced anyway.
    pub(super) fn report_violation(&self, violation: Violation) {
        if !self.violated.swap(true, Ordering::Relaxed) {
            tracing::error!(%violation, application = self.application, "the workers of this application are replaced");
            let rule = violation.0.into();
            self.supervisor.send(&FromRouter::Violation { generation: self.id, rule });
        }
    }
}
