//! The port itself: admits requests, moves their bytes, and ends them.

use super::active::ActiveRequests;
use super::running::{Moved, Outcome, RunningRequest, Trouble, Wait};
use super::turn_budget::TurnBudget;
use super::wake::Wakes;
use crate::backends::buffering::body_disk::DiskNotice;
use crate::backends::buffering::spool::SpoolLimits;
use crate::backends::php::admission::RequestKind;
use crate::backends::php::generation::{ScriptPool, SharedGeneration};
use crate::backends::script::{Script, ScriptFiles};
use crate::report::spawn_essential;
use crate::request::record::log_context::LoggedApplication;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_channel::request::RequestHeadWriter;
use howdah_channel::{Exchange, Progress, Violation, Visits, WorkerId};
use howdah_metrics::labels::Cause;
use howdah_protocol::messages::router::FromRouter;
use http::Uri;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// One thread's port to a generation.
pub struct GenerationPort {
    /// The generation.
    pub generation: Arc<SharedGeneration>,
    /// The ports to the pools of its worker scripts, in the order of [`SharedGeneration::pools`].
    pools: Vec<Rc<GenerationPort>>,
    /// Its application, for the log lines of requests.
    pub application: Rc<LoggedApplication>,
    /// The thread's lookups of the generation's scripts.
    pub script_files: ScriptFiles,
    /// The thread's index.
    pub(super) thread: u16,
    pub(super) active: ActiveRequests,
    budget: TurnBudget,
    /// The slots that are left for the next visit of the mailbox.
    visits: Visits,
    /// A visit has met a slot without a request: its worker has finished after the client had left.
    has_unowned: Cell<bool>,
    /// A head is written and submitted without a pause: one buffer is enough for all requests.
    pub(super) head: RefCell<RequestHeadWriter>,
    /// How much of a response may wait for its client.
    pub(super) spool_limits: SpoolLimits,
    pub(super) wakes: Wakes,
}

/// The interval of [`GenerationPort::sweep`].
pub const SWEEP: Duration = Duration::from_millis(250);
/// How long a worker that runs other requests waits for the client of one, if there is little room for its response.
const SHORT_OF_ROOM: Duration = Duration::from_millis(200);
/// The pause between two reports to the supervisor of one overdue request.
const OVERDUE_AGAIN: Duration = Duration::from_secs(1);
/// The advice of the log line about a slow client.
const WRITE_LESS: &str = "the application should stop to write when a client is far behind";

// === impl GenerationPort ===

impl GenerationPort {
    /// A thread's port.
    pub fn new(generation: Arc<SharedGeneration>, pools: Vec<Rc<GenerationPort>>, thread: u16) -> GenerationPort {
        GenerationPort {
            pools,
            application: LoggedApplication::new(generation.application.clone(), generation.log.clone()),
            script_files: ScriptFiles::below(generation.paths.rootfs()),
            wakes: Wakes::new(Arc::clone(&generation)),
            visits: generation.channel.visits(),
            has_unowned: Cell::new(false),
            spool_limits: SpoolLimits { writer_waits: !generation.is_async(), ..SpoolLimits::RESPONSE },
            generation,
            thread,
            active: ActiveRequests::default(),
            budget: TurnBudget::new(),
            head: RefCell::default(),
        }
    }

    /// The worker script whose `match` has this path, and its port.
    pub fn script_of_path(&self, path: &[u8]) -> Option<(&Rc<GenerationPort>, Script)> {
        let mut pools = self.generation.pools.iter().zip(&self.pools);
        let has_path = |pool: &ScriptPool| pool.paths.as_ref().is_some_and(|paths| paths.matches(path));
        pools.find(|(pool, _)| has_path(pool)).map(|(pool, port)| (port, Script::fixed(&pool.script)))
    }

    /// The port to the workers that run this script.
    pub fn port_of_script<'p>(self: &'p Rc<Self>, script: &Script) -> &'p Rc<GenerationPort> {
        let is_same = |pool: &ScriptPool| {
            script.name.strip_prefix(b"/") == Some(pool.script.name.as_bytes())
                || script.filename == pool.script.filename.as_os_str().as_bytes()
        };
        let mut pools = self.generation.pools.iter().zip(&self.pools);
        pools.find(|(pool, _)| is_same(pool)).map_or(self, |(_, port)| port)
    }

    /// Rejects a request before its body is read, if it would be rejected afterwards.
    ///
    /// # Errors
    /// 503: the client need not send the rest.
    pub async fn reject_early(&self, uri: &Uri, kind: RequestKind) -> Result<(), Failure> {
        self.generation.reject_early(uri, kind).await
    }

    /// Admits a request to the queue.
    ///
    /// # Errors
    /// 503 when no worker will take it in time, or requests of its kind kill workers.
    pub async fn admit(&self, uri: &Uri, kind: RequestKind) -> Result<Wait, Failure> {
        let (admitted, longest) = self.generation.enqueue(Instant::now()).await?;
        self.generation.check_killer(uri, kind, admitted).await.inspect_err(|_| self.generation.cancel())?;
        Ok(Wait { admitted, kind, longest })
    }

    /// Admits a request again whose worker died. It may wait as long again. `None` if requests of its kind kill workers.
    pub fn admit_again(&self, wait: Wait) -> Option<Wait> {
        let is_suspect = self.generation.is_suspect(wait.kind);
        (!is_suspect).then(|| Wait { admitted: Instant::now(), ..wait })
    }

    /// When the request is answered 503 if no worker has taken it.
    pub(super) fn deadline(&self, wait: Wait) -> Instant {
        wait.admitted + self.generation.longest_wait(wait.longest)
    }

    /// Cancels a request at its deadline, if no worker has claimed it by then. For deadlines before the next sweep.
    pub(super) fn cancel_at_deadline(self: &Rc<Self>, slot: u16, running: &Rc<RunningRequest>) {
        if !running.is_timed.replace(true) {
            let (port, running, deadline) = (Rc::clone(self), Rc::clone(running), self.deadline(running.wait));
            spawn_essential(async move {
                sleep_until(deadline).await;
                running.is_timed.set(false);
                port.cancel_if_late(slot, &running);
            });
        }
    }

    /// Cancels a request whose body has to give way on the disk, if no worker has claimed it by then.
    pub(super) fn cancel_for_room(self: &Rc<Self>, slot: u16, running: &Rc<RunningRequest>, disk: DiskNotice) {
        let (port, running) = (Rc::clone(self), Rc::downgrade(running));
        spawn_essential(async move {
            let Some(failure) = disk.gives_way_or_ends().await else { return };
            let Some(running) = running.upgrade() else { return };
            if running.exchange.borrow_mut().as_mut().is_some_and(Exchange::cancel) {
                disk.log();
                port.generation.cancel();
                port.end(slot, &running, Outcome::Failed(failure));
            } else {
                disk.keep();
            }
        });
    }

    fn cancel_if_late(&self, slot: u16, running: &Rc<RunningRequest>) {
        let is_late = Instant::now() >= self.deadline(running.wait);
        if is_late && running.exchange.borrow_mut().as_mut().is_some_and(Exchange::cancel) {
            running.context.iter().for_each(|context| context.numbers.refuse(Cause::Queue));
            let failure = self.generation.reject(1);
            self.end(slot, running, Outcome::Failed(failure));
        }
    }

    /// Takes the spooled part of the response, and lets PHP go on if the spool was full.
    pub(super) fn take(&self, running: &Rc<RunningRequest>) -> io::Result<Bytes> {
        let bytes = running.spool.borrow_mut().take().inspect_err(|error| self.disk_failed(running, error))?;
        if running.held_back.get().is_none() {
            return Ok(bytes);
        }
        // Its client reads.
        running.held_back.set(Some(Instant::now()));
        if running.spool.borrow().has_room() {
            running.slot().into_iter().for_each(|slot| {
                self.service_slot(slot);
            });
        }
        Ok(bytes)
    }

    /// Moves the bytes of each slot in the thread's mailbox, as far as the budget of this turn allows.
    pub fn drain(&self) {
        self.script_files.forget();
        self.generation.channel.drain(self.thread, &self.visits, |slot| {
            if !self.service_slot(slot) {
                self.has_unowned.set(true);
                self.budget.spend(0);
            }
            !self.budget.is_spent()
        });
    }

    /// A turn of the event loop begins: bytes may be moved again.
    pub fn begin_turn(&self) {
        self.budget.renew();
    }

    /// A turn ends: frees the slots of clients that had left. Once for all of them, since a hostile worker can put all slots into
    /// the mailbox.
    pub fn end_turn(&self) {
        if self.has_unowned.take() {
            self.repair();
        }
    }

    /// Whether other tasks must get a turn before more bytes are moved.
    pub fn has_spent_its_turn(&self) -> bool {
        self.budget.is_spent()
    }

    /// Announces in the mailbox that the thread is about to sleep; `false` if a slot wants attention.
    pub fn prepare_to_sleep(&self) -> bool {
        self.visits.is_empty() && self.generation.channel.prepare_to_sleep(self.thread)
    }

    /// Announces in the mailbox that the thread is awake.
    pub fn woke(&self) {
        self.generation.channel.woke(self.thread);
    }

    /// Fails the request of a dead worker, if it is one of this thread's. The generation knows of the death already.
    ///
    /// `killer` is the slot and sequence number of the request that the worker died of. It is counted among the killers
    /// if this thread submitted it.
    pub fn worker_died(&self, worker: WorkerId, killer: Option<(u16, u32)>) {
        if let Some((slot, sequence)) = killer
            && let Some(kind) = self.active.submitted(slot, sequence)
        {
            let was_answered = !self.active.contains(slot);
            self.generation.was_killed_by(kind, was_answered, Instant::now());
        }
        self.active.for_each(|slot, running| {
            // The end of a response that is cut off anyway is dropped if there is too much of it for one turn.
            if self.budget.is_spent() {
                self.visits.keep(slot);
            } else {
                self.service_slot(slot);
            }
            let (lost, had_begun) = match running.exchange.borrow_mut().as_mut() {
                Some(exchange) => {
                    let has_more = exchange.response_waiting() != Ok(0);
                    (exchange.worker_died(worker), has_more)
                }
                None => (Ok(false), false),
            };
            match lost {
                Ok(true) => {
                    self.generation.ended_unfinished();
                    let (status, failure) = match running.is_overdue() {
                        true => (504, Failure::GatewayTimeout),
                        false => (502, Failure::WorkerDied { had_begun }),
                    };
                    // `run` decides between 502 and another attempt, and logs all other requests.
                    if running.begun.get() || running.is_overdue() {
                        let client_gets = running.client_gets(status);
                        let name = running.name().map(|name| format!(", {name},")).unwrap_or_default();
                        tracing::warn!(
                            application = self.generation.application,
                            "a worker died; its request{name} is {client_gets}"
                        );
                    }
                    self.end(slot, running, Outcome::Failed(failure));
                }
                Ok(false) => {}
                Err(violation) => self.violated(slot, running, violation),
            }
        });
        // Its client may have left after the generation had learned of the death.
        self.generation.channel.worker_died(worker);
    }

    /// Repairs the traces of dead workers and lost wake-ups, and ends requests that waited too long.
    pub fn sweep(self: &Rc<Self>) {
        self.script_files.forget();
        self.repair();
        self.generation.report_demand();
        let now = Instant::now();
        self.generation.measure(self.generation.waiting_requests(), now);
        self.generation.forget(now);
        self.active.for_each(|slot, running| {
            // A worker that writes slowly, or died, has not put it into the mailbox, or a hostile one has removed it.
            self.visits.keep(slot);
            self.end_if_overdue(slot, running);
            let progress = running.exchange.borrow_mut().as_mut().map(|exchange| {
                exchange.check()?;
                exchange.resubmit_if_stranded();
                exchange.progress()
            });
            match progress {
                Some(Ok(Progress::Queued)) if self.deadline(running.wait) < now + SWEEP => {
                    self.cancel_at_deadline(slot, running);
                }
                Some(Ok(Progress::Running(_))) if running.has_run_since().elapsed() >= SWEEP => {
                    self.generation.not_quick();
                }
                Some(Ok(_)) | None => {}
                Some(Err(violation)) => self.violated(slot, running, violation),
            }
        });
    }

    /// The client left: the request is cancelled, or its response dropped.
    pub fn cancel(&self, running: &Rc<RunningRequest>) {
        let Some(slot) = running.slot() else { return };
        if running.exchange.borrow_mut().as_mut().is_some_and(Exchange::cancel) {
            self.generation.cancel();
        } else {
            self.generation.not_quick();
            if running.begun.get() {
                // A response without an end, such as an event stream, always ends like this.
                self.generation.has_survived(running.wait.kind);
            }
        }
        self.end(slot, running, Outcome::Failed(Failure::BadGateway));
    }

    /// Moves the bytes of a slot, and ends its request if the response is complete. `false` for a slot without a request: its
    /// client left, and its worker has finished.
    fn service_slot(&self, slot: u16) -> bool {
        let Some(running) = self.active.get(slot) else { return false };
        match running.advance(&self.budget) {
            Ok(Moved::UnderWay) if self.takes_too_slowly(&running) => {
                tracing::warn!(
                    application = self.generation.application,
                    bytes = running.spool.borrow().len(),
                    "a client takes its response too slowly: cut off; {WRITE_LESS}"
                );
                self.end(slot, &running, Outcome::Failed(Failure::BadGateway));
            }
            Ok(Moved::UnderWay) => running.wake(),
            Ok(Moved::MoreToMove) => {
                self.visits.keep(slot);
                running.wake();
            }
            // The response of a request that was ended is not the answer that its client waits for.
            Ok(_) if running.is_overdue() => {
                self.generation.ended_unfinished();
                self.end(slot, &running, Outcome::Failed(Failure::GatewayTimeout));
            }
            Ok(Moved::Abandoned) => {
                self.generation.ended_unfinished();
                self.end(slot, &running, Outcome::Failed(Failure::Internal));
            }
            Ok(Moved::Complete) => {
                if let Some(occupied) = running.note_times() {
                    self.generation.occupied(occupied);
                }
                self.generation.finished(1);
                self.generation.has_survived(running.wait.kind);
                self.end(slot, &running, Outcome::Complete);
            }
            Err(Trouble::Violation(violation)) => self.violated(slot, &running, violation),
            Err(Trouble::Disk(error)) => {
                self.disk_failed(&running, &error);
                self.end(slot, &running, Outcome::Failed(Failure::Internal));
            }
        }
        true
    }

    /// Whether a worker that runs other requests, too, would wait for a client. If there is no memory and no disk, it waits while the
    /// client reads, and for [`SHORT_OF_ROOM`].
    fn takes_too_slowly(&self, running: &RunningRequest) -> bool {
        let Some(since) = running.held_back.get().filter(|_| self.generation.is_async()) else { return false };
        running.spool.borrow().is_at_limit() || since.elapsed() >= SHORT_OF_ROOM
    }

    /// Reports a request that takes longer than `limits/timeout`: the supervisor ends it.
    fn end_if_overdue(&self, slot: u16, running: &Rc<RunningRequest>) {
        let Some(timeout) = self.generation.timeout else { return };
        let mut exchange_of = running.exchange.borrow_mut();
        let Some(exchange) = exchange_of.as_mut() else { return };
        let Ok(Progress::Running(worker)) = exchange.progress() else { return };
        let since = running.has_run_since();
        if since.elapsed() > timeout && self.generation.is_async() {
            let Some(exchange) = exchange_of.take() else { return };
            drop(exchange_of);
            return self.time_out(slot, running, exchange, since.elapsed());
        }
        // Its shutdown functions have this time. At the second report the supervisor kills the worker.
        let is_reported = running.reported_overdue.get().is_some_and(|at| at.elapsed() < OVERDUE_AGAIN);
        if since.elapsed() > timeout && !is_reported {
            running.reported_overdue.set(Some(Instant::now()));
            let (generation, request) = (self.generation.id, (exchange.slot(), exchange.sequence()));
            self.generation.supervisor.send(&FromRouter::Overdue { generation, worker, request });
        }
    }

    /// Answers a request whose worker goes on with other requests. The supervisor kills the worker if it does not release
    /// the request.
    fn time_out(&self, slot: u16, running: &Rc<RunningRequest>, exchange: Exchange, ran: Duration) {
        let name = running.name().unwrap_or_else(|| "a request".to_owned());
        tracing::warn!(
            application = self.generation.application,
            "{name} has taken {:.1} s, longer than \"limits/timeout\" allows: {}",
            ran.as_secs_f64(),
            running.client_gets(504)
        );
        exchange.time_out();
        self.end(slot, running, Outcome::Failed(Failure::GatewayTimeout));
    }

    /// Repairs what dead workers left behind in the channel.
    fn repair(&self) {
        match self.generation.channel.sweep(self.thread, Instant::now().into_std()) {
            Ok(finished) => self.generation.finished(finished),
            Err(violation) => self.generation.report_violation(violation),
        }
        self.generation.slots.recover();
    }

    fn violated(&self, slot: u16, running: &Rc<RunningRequest>, violation: Violation) {
        self.generation.report_violation(violation);
        if let Some(exchange) = running.exchange.borrow_mut().take() {
            exchange.quarantine();
        }
        self.end(slot, running, Outcome::Failed(Failure::BadGateway));
    }

    fn end(&self, slot: u16, running: &Rc<RunningRequest>, outcome: Outcome) {
        running.exchange.borrow_mut().take();
        self.generation.slots.recover();
        self.active.remove(slot);
        running.outcome.set(outcome);
        running.wake();
    }

    fn disk_failed(&self, running: &RunningRequest, error: &io::Error) {
        tracing::error!(
            application = self.generation.application,
            %error,
            "cannot keep a response or a request's body in a temporary file: {}",
            running.client_gets(500)
        );
    }
}

impl Drop for GenerationPort {
    /// Nothing on this thread uses the generation any more: workers need not wake the thread.
    fn drop(&mut self) {
        self.generation.channel.leave(self.thread);
    }
}
