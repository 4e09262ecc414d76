//! Requests under way in PHP: a router thread's port to a generation's channel.
//!
//! A request waits for a slot (in order), is submitted, and from then on is a [`Running`]: the thread's mailbox says
//! which slots want attention, and [`Port::attend`] moves bytes — response bytes out of the ring into a [`Spool`],
//! request body bytes into it — whether or not the client is quick, until the spool is full. Futures take what is in the
//! spool ([`Port::head`], [`Port::poll_body`]).
//!
//! What can go wrong, all of it answered and logged: the worker dies (502, or a cut response if it had begun), the
//! worker breaks the channel's rules (502; the supervisor replaces the generation's workers), the disk is full (500).

mod queue;

use crate::control::{Supervisor, TellOnDrop};
use crate::failure::Failure;
use crate::slots::Slots;
use crate::spool::{Limits, Spool};
use bytes::Bytes;
use howdah_channel::lifecycle::{FromRouter, GenerationBoot};
use howdah_channel::places::Places;
use howdah_channel::request::HeadWriter;
use howdah_channel::response;
use howdah_channel::{Exchange, Progress, Refused, RouterEnd, Violation, WorkerId};
use queue::{Arrival, News, Queue, TooBusy};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// A generation, as the router's threads share it.
#[derive(Debug)]
pub struct Generation {
    /// Its number.
    pub id: u64,
    /// Its application's name.
    pub application: String,
    /// Its channel.
    pub channel: Arc<RouterEnd>,
    /// Its slots: requests wait for them in order.
    pub slots: Slots,
    /// How long requests wait, and who is refused.
    queue: Mutex<Queue>,
    /// Whether the queue has anything to remember: if not, and nobody waits, nobody need ask it.
    is_standing: AtomicBool,
    /// Wakes those that wait for a slot when they may not wait for as long any more.
    hurry: Notify,
    /// How many requests were answered 503 since the router started, and when that was last logged, in milliseconds since
    /// `started`.
    refused: AtomicU64,
    told_refusal: AtomicU64,
    /// How many workers live.
    workers: AtomicU64,
    /// Where its scripts are.
    pub places: Places,
    /// How many slots there are.
    slot_count: usize,
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
    timeout: Option<Duration>,
    /// Whether the supervisor was told of a broken rule, and has not replaced the workers yet.
    violated: AtomicBool,
    /// Tells the supervisor of broken rules.
    supervisor: Supervisor,
    /// Tells the supervisor when nobody uses the generation any more.
    #[expect(dead_code, reason = "its drop is its use")]
    released: TellOnDrop,
}

/// One thread's port to a generation.
pub struct Port {
    /// The generation.
    pub generation: Arc<Generation>,
    thread: u16,
    active: RefCell<Vec<Option<Rc<Running>>>>,
    /// Written and submitted without a pause: one is enough for all requests.
    head: RefCell<HeadWriter>,
    /// How much of a response may wait for its client.
    spool_limits: Limits,
}

/// The rest of a request's body, that did not fit into its slot.
pub enum Remainder {
    /// It is all there.
    None,
    /// In memory, from this offset on.
    Memory(Bytes),
    /// In a file: position and end.
    File(File, u64, u64),
}

/// A request under way in PHP.
pub struct Running {
    /// Gone as soon as the response is complete or lost.
    exchange: RefCell<Option<Exchange>>,
    remainder: RefCell<Remainder>,
    spool: RefCell<Spool>,
    /// The spool is full: the response waits in its slot, and PHP with it.
    held_back: Cell<bool>,
    /// The client has its status.
    begun: Cell<bool>,
    outcome: Cell<Outcome>,
    waker: RefCell<Option<Waker>>,
    /// When it came, and how long it may wait for a worker; after that it is answered 503.
    arrived: Instant,
    may_wait: Duration,
    /// Since when a worker has been seen to run it.
    running_since: Cell<Option<Instant>>,
    /// When the supervisor was last told that it takes too long.
    told_overdue: Cell<Option<Instant>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    UnderWay,
    /// The response is complete; what is left of it is in the spool.
    Complete,
    Failed(Failure),
}

/// The head of a response, and what has arrived of its body.
pub struct Started {
    /// As the worker wrote it, checked.
    pub bytes: Bytes,
    /// Whether `bytes` is all of the response.
    pub complete: bool,
}

/// How much of a response may wait for its client; the total is what nginx allows (proxy_max_temp_file_size).
const SPOOL_LIMITS: Limits = Limits { memory: 512 * 1024, total: 1 << 30 };
/// Answers of 503 are logged this far apart, in milliseconds.
const REFUSAL_PAUSE_MS: u64 = 10_000;
/// After this the supervisor is told again that there are too few workers.
const TELL_AGAIN: Duration = Duration::from_millis(10);
/// How long there is silence after the supervisor was told of a demand, in milliseconds.
const DEMAND_PAUSE_MS: u64 = 2;
/// When the supervisor is told again of a request that still takes too long.
const OVERDUE_AGAIN: Duration = Duration::from_secs(1);
/// When to ask again for a slot that should be free.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The largest buffer for heads that is kept, in bytes written.
const KEPT_HEAD: usize = 8 * 1024;

// === impl Generation ===

impl Generation {
    /// A generation with this channel, and an eventfd for each thread.
    pub fn new(
        boot: GenerationBoot,
        channel: Arc<RouterEnd>,
        bells: Vec<OwnedFd>,
        supervisor: &Supervisor,
    ) -> Generation {
        Generation {
            id: boot.id,
            application: boot.application,
            places: Places::default(),
            slots: Slots::new(Arc::clone(&channel)),
            channel,
            slot_count: boot.geometry.slots.into(),
            bells: Mutex::new(bells.into_iter().map(Some).collect()),
            spare_workers: boot.spare_workers,
            queue: Mutex::new(Queue::new(Duration::from_millis(boot.queue_timeout_ms))),
            is_standing: false.into(),
            hurry: Notify::new(),
            refused: 0.into(),
            told_refusal: 0.into(),
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

    /// The same with its scripts in these places.
    pub fn at(self, places: Places) -> Generation {
        Generation { places, ..self }
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
        self.slot_count.saturating_sub(self.channel.free_slots()) as u64 + self.slots.waiting()
    }

    /// How many requests wait for a worker.
    pub fn waiting_requests(&self) -> u64 {
        self.channel.queued() + self.slots.waiting()
    }

    /// How many requests were answered 503 because no worker took them in time, or would.
    pub fn refused_requests(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A request comes, whose client will wait for so long if it has said so. How long it may wait.
    fn arrive(&self, patience: Option<Duration>, now: Instant) -> Result<Duration, Failure> {
        let waiting = self.waiting_requests();
        let arrival = Arrival { waiting, workers: self.workers.load(Ordering::Relaxed), patience };
        self.look(waiting, now);
        let arrived = self.queue().arrive(arrival, now);
        arrived.map_err(|TooBusy { retry_after }| self.refuse(retry_after))
    }

    /// Looks at how the queue moves, and says what an operator should hear.
    fn look(&self, waiting: u64, now: Instant) {
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

    /// A worker has finished a request.
    fn finished(&self) {
        if self.is_standing.load(Ordering::Relaxed) {
            self.queue().finished(1);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No worker takes a request in time. One line in the log tells of many.
    fn refuse(&self, retry_after: u32) -> Failure {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let now = self.started.elapsed().as_millis() as u64 + REFUSAL_PAUSE_MS;
        let last = self.told_refusal.load(Ordering::Relaxed);
        if now >= last + REFUSAL_PAUSE_MS
            && self.told_refusal.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            tracing::warn!(
                application = self.application,
                waiting = self.waiting_requests(),
                workers = self.workers.load(Ordering::Relaxed),
                refused_until_now = refused,
                "no worker takes a request in time: answered 503; are there too few processes, or do they hang?"
            );
        }
        Failure::Unavailable { retry_after }
    }

    /// Tells the supervisor if there should be more workers, and again while that is so.
    fn tell_demand(self: &Arc<Self>) {
        if self.tell_if_wanting() && !self.tells_again.swap(true, Ordering::Relaxed) {
            let generation = Arc::clone(self);
            tokio::spawn(async move {
                loop {
                    sleep(TELL_AGAIN).await;
                    if !generation.tell_if_wanting() {
                        break;
                    }
                }
                generation.tells_again.store(false, Ordering::Relaxed);
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
        let now = self.started.elapsed().as_millis() as u64 + 1;
        let last = self.told_demand.load(Ordering::Relaxed);
        // Whoever comes too early is heard by the next request, or by the task that tells it again.
        if now >= last + DEMAND_PAUSE_MS
            && self.told_demand.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let waiting = queued + self.slots.waiting();
            self.supervisor.tell(&FromRouter::Wanting { generation: self.id, waiting });
        }
        true
    }

    /// A broken rule is reported once: all workers are replaced anyway.
    fn report(&self, violation: Violation) {
        if !self.violated.swap(true, Ordering::Relaxed) {
            tracing::error!(%violation, application = self.application, "the workers of this application are replaced");
            let rule = violation.0.into();
            self.supervisor.tell(&FromRouter::Violation { generation: self.id, rule });
        }
    }
}

// === impl Port ===

impl Port {
    /// A thread's port.
    pub fn new(generation: Arc<Generation>, thread: u16) -> Port {
        Port { generation, thread, active: RefCell::default(), head: RefCell::default(), spool_limits: SPOOL_LIMITS }
    }

    /// Waits for a slot and submits the request: its head, which is written only then, and the beginning of its body. The
    /// client waits for `patience` at most, if it has said so.
    ///
    /// # Errors
    /// 431 for a head that no slot can hold; 503 when no worker takes it in time, or will; 502 for a broken channel.
    pub async fn submit(
        &self,
        write_head: impl Fn(&mut HeadWriter),
        body: &[u8],
        remainder: Remainder,
        spool_folder: Option<&Path>,
        patience: Option<Duration>,
    ) -> Result<Rc<Running>, Failure> {
        // For the slot and the queue together: a client waits once.
        let arrived = Instant::now();
        let may_wait = self.generation.arrive(patience, arrived)?;
        let complete = matches!(remainder, Remainder::None);
        let exchange = loop {
            let place = match self.generation.slots.try_acquire() {
                Some(place) => place,
                None => self.in_time(arrived, may_wait, self.generation.slots.acquire()).await?,
            };
            match self.write_and_submit(&write_head, body, complete) {
                Ok(exchange) => {
                    place.used();
                    break exchange;
                }
                Err(Refused::HeadTooLarge) => return Err(Failure::HeadTooLarge),
                // Who has a place finds a slot, unless a worker spoiled the queue: the sweep sees that, or it passes.
                Err(Refused::NoSlot) => {
                    drop(place);
                    self.in_time(arrived, may_wait, sleep(ASK_AGAIN)).await?;
                }
                Err(Refused::Broken(violation)) => {
                    self.generation.report(violation);
                    return Err(Failure::BadGateway);
                }
            }
        };
        let taken = exchange.body_taken() as usize;
        let remainder = match remainder {
            Remainder::None if taken < body.len() => Remainder::Memory(Bytes::copy_from_slice(&body[taken..])),
            other => other,
        };
        let slot = usize::from(exchange.slot());
        let running = Rc::new(Running {
            exchange: RefCell::new(Some(exchange)),
            remainder: RefCell::new(remainder),
            spool: RefCell::new(Spool::new(self.spool_limits, spool_folder)),
            held_back: Cell::new(false),
            begun: Cell::new(false),
            outcome: Cell::new(Outcome::UnderWay),
            waker: RefCell::default(),
            arrived,
            may_wait,
            running_since: Cell::new(None),
            told_overdue: Cell::new(None),
        });
        let mut active = self.active.borrow_mut();
        if active.len() <= slot {
            active.resize_with(slot + 1, || None);
        }
        active[slot] = Some(Rc::clone(&running));
        self.generation.tell_demand();
        Ok(running)
    }

    /// Waits for something, as long as the request may wait: which may become shorter meanwhile.
    async fn in_time<T>(
        &self,
        arrived: Instant,
        may_wait: Duration,
        something: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let generation = &self.generation;
        let mut something = pin!(something);
        loop {
            let hurry = generation.hurry.notified();
            let deadline = arrived + generation.queue().longest(may_wait);
            tokio::select! {
                biased;
                done = &mut something => return Ok(done),
                () = sleep_until(deadline) => return Err(generation.refuse(1)),
                () = hurry => {}
            }
        }
    }

    fn write_and_submit(
        &self,
        write_head: impl Fn(&mut HeadWriter),
        body: &[u8],
        complete: bool,
    ) -> Result<Exchange, Refused> {
        let mut writer = self.head.borrow_mut();
        write_head(&mut writer);
        let head = writer.finish();
        let submitted = self.generation.channel.submit(self.thread, head, body, complete);
        if head.len() > KEPT_HEAD {
            *writer = HeadWriter::default();
        }
        submitted
    }

    /// Waits for the head of the response.
    ///
    /// # Errors
    /// What the client shall be told instead.
    pub async fn head(&self, running: &Rc<Running>) -> Result<Started, Failure> {
        let mut arrived = Vec::new();
        poll_fn(|context| {
            let bytes = self.take(running).map_err(|_| Failure::Internal)?;
            if arrived.is_empty() && !bytes.is_empty() {
                arrived = bytes.into();
            } else {
                arrived.extend_from_slice(&bytes);
            }
            if running.is_overdue() {
                arrived.clear();
            }
            let more = running.spool.borrow().len() > 0;
            match (running.outcome.get(), response::parse(&arrived)) {
                // Nothing has been sent yet: an error is better than a beginning without an end.
                (Outcome::Failed(Failure::WorkerDied), _) if !arrived.is_empty() => {
                    Poll::Ready(Err(Failure::BadGateway))
                }
                (Outcome::Failed(failure), _) => Poll::Ready(Err(failure)),
                (outcome, Ok(Some(_))) => {
                    running.begun.set(true);
                    let complete = outcome == Outcome::Complete && !more;
                    Poll::Ready(Ok(Started { bytes: std::mem::take(&mut arrived).into(), complete }))
                }
                (Outcome::Complete, Ok(None)) if !more => {
                    tracing::warn!("a worker finished a request without a response: answered 502");
                    Poll::Ready(Err(Failure::BadGateway))
                }
                (_, Err(violation)) => {
                    tracing::warn!(%violation, "answered 502");
                    Poll::Ready(Err(Failure::BadGateway))
                }
                _ => {
                    if more {
                        context.waker().wake_by_ref();
                    }
                    *running.waker.borrow_mut() = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// When the rest will never come.
    pub fn poll_body(&self, running: &Rc<Running>, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match self.take(running) {
            Ok(bytes) if bytes.is_empty() => {}
            other => return Poll::Ready(Some(other)),
        }
        match running.outcome.get() {
            Outcome::Complete => Poll::Ready(None),
            Outcome::Failed(_) => Poll::Ready(Some(Err(io::Error::other("the rest of the response was lost")))),
            Outcome::UnderWay => {
                *running.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes what waits of the response, and lets PHP go on if it was held back for it.
    fn take(&self, running: &Rc<Running>) -> io::Result<Bytes> {
        let bytes = running.spool.borrow_mut().take().inspect_err(|error| self.disk_failed(running, error))?;
        if running.held_back.get() && running.spool.borrow().has_room() {
            running.slot().into_iter().for_each(|slot| self.attend(slot));
        }
        Ok(bytes)
    }

    /// Looks after each slot that asked for attention.
    pub fn drain(&self) {
        self.generation.channel.drain(self.thread, |slot| self.attend(slot));
    }

    /// Says that the thread is about to sleep; `false` when something waits.
    pub fn prepare_to_sleep(&self) -> bool {
        self.generation.channel.prepare_to_sleep(self.thread)
    }

    /// Says that the thread is awake.
    pub fn woke(&self) {
        self.generation.channel.woke(self.thread);
    }

    /// A worker is dead: its request, if it ran one of this thread's, is answered.
    pub fn worker_died(&self, worker: WorkerId) {
        self.for_each_active(|slot, running| {
            self.attend(slot);
            let lost = match running.exchange.borrow_mut().as_mut() {
                Some(exchange) => exchange.worker_died(worker),
                None => Ok(false),
            };
            match lost {
                Ok(true) => {
                    self.generation.finished();
                    let (status, failure) = match running.is_overdue() {
                        true => (504, Failure::GatewayTimeout),
                        false => (502, Failure::WorkerDied),
                    };
                    // What is answered 502 or run once more is told by who decides that.
                    if running.begun.get() || failure != Failure::WorkerDied {
                        let client_gets = running.client_gets(status);
                        tracing::warn!(
                            application = self.generation.application,
                            "a worker died; its request is {client_gets}"
                        );
                    }
                    self.end(slot, running, Outcome::Failed(failure));
                }
                Ok(false) => {}
                Err(violation) => self.violated(slot, running, violation),
            }
        });
        self.generation.worker_died(worker);
    }

    /// Mends what dead workers and lost wake-ups left behind, and ends requests that waited too long.
    pub fn sweep(&self) {
        self.mend();
        self.generation.tell_demand();
        let now = Instant::now();
        self.generation.look(self.generation.waiting_requests(), now);
        self.for_each_active(|slot, running| {
            self.attend(slot);
            self.end_if_overdue(running);
            let timed_out = match running.exchange.borrow_mut().as_mut() {
                Some(exchange) => exchange.check().map(|()| {
                    exchange.resubmit_if_stranded();
                    let may_wait = self.generation.queue().longest(running.may_wait);
                    now > running.arrived + may_wait && exchange.cancel()
                }),
                None => Ok(false),
            };
            match timed_out {
                Ok(true) => {
                    let failure = self.generation.refuse(1);
                    self.end(slot, running, Outcome::Failed(failure));
                }
                Ok(false) => {}
                Err(violation) => self.violated(slot, running, violation),
            }
        });
    }

    /// The client left: the request is taken back, or its response dropped.
    pub fn abandon(&self, running: &Rc<Running>) {
        if let Some(slot) = running.slot() {
            self.end(slot, running, Outcome::Failed(Failure::BadGateway));
        }
    }

    fn attend(&self, slot: u16) {
        let running = self.active.borrow().get(usize::from(slot)).cloned().flatten();
        // A slot that nobody here owns: of a client that left, and its worker has finished.
        let Some(running) = running else { return self.mend() };
        match running.advance() {
            Ok(false) => running.wake(),
            // Whatever PHP said at the end is not the answer that its client waited for.
            Ok(true) if running.is_overdue() => {
                self.generation.finished();
                self.end(slot, &running, Outcome::Failed(Failure::GatewayTimeout));
            }
            Ok(true) => {
                self.generation.finished();
                self.end(slot, &running, Outcome::Complete);
            }
            Err(Trouble::Violation(violation)) => self.violated(slot, &running, violation),
            Err(Trouble::Disk(error)) => {
                self.disk_failed(&running, &error);
                self.end(slot, &running, Outcome::Failed(Failure::Internal));
            }
        }
    }

    /// `limits/timeout`: whoever takes longer is ended.
    fn end_if_overdue(&self, running: &Running) {
        let Some(timeout) = self.generation.timeout else { return };
        let mut exchange = running.exchange.borrow_mut();
        let Some(Ok(Progress::Running(worker))) = exchange.as_mut().map(Exchange::progress) else { return };
        let since = running.running_since.get().unwrap_or_else(Instant::now);
        running.running_since.set(Some(since));
        // It has a while for its shutdown functions, before the supervisor is told again and kills it.
        let was_told = running.told_overdue.get().is_some_and(|told| told.elapsed() < OVERDUE_AGAIN);
        if since.elapsed() > timeout && !was_told {
            running.told_overdue.set(Some(Instant::now()));
            self.generation.supervisor.tell(&FromRouter::Overdue { generation: self.generation.id, worker });
        }
    }

    fn mend(&self) {
        if let Err(violation) = self.generation.channel.sweep(self.thread, Instant::now().into_std()) {
            self.generation.report(violation);
        }
        self.generation.slots.recover();
    }

    fn violated(&self, slot: u16, running: &Rc<Running>, violation: Violation) {
        self.generation.report(violation);
        if let Some(exchange) = running.exchange.borrow_mut().take() {
            exchange.quarantine();
        }
        self.end(slot, running, Outcome::Failed(Failure::BadGateway));
    }

    fn end(&self, slot: u16, running: &Rc<Running>, outcome: Outcome) {
        running.exchange.borrow_mut().take();
        self.generation.slots.recover();
        if let Some(place) = self.active.borrow_mut().get_mut(usize::from(slot)) {
            *place = None;
        }
        running.outcome.set(outcome);
        running.wake();
    }

    fn disk_failed(&self, running: &Running, error: &io::Error) {
        tracing::error!(
            application = self.generation.application,
            %error,
            "cannot keep a response or a request's body in a temporary file: {}",
            running.client_gets(500)
        );
    }

    fn for_each_active(&self, mut act: impl FnMut(u16, &Rc<Running>)) {
        let active: Vec<_> = self
            .active
            .borrow()
            .iter()
            .enumerate()
            .filter_map(|(slot, running)| running.clone().map(|running| (slot as u16, running)))
            .collect();
        for (slot, running) in active {
            act(slot, &running);
        }
    }
}

impl Drop for Port {
    /// Nothing on this thread uses the generation any more: nobody waits for it.
    fn drop(&mut self) {
        self.generation.channel.leave(self.thread);
    }
}

enum Trouble {
    Violation(Violation),
    Disk(io::Error),
}

// === impl Running ===

impl Running {
    /// Moves bytes; `true` when the response is complete.
    fn advance(&self) -> Result<bool, Trouble> {
        let mut exchange = self.exchange.borrow_mut();
        let Some(exchange) = exchange.as_mut() else { return Ok(true) };
        // Progress first: when it says done, all bytes are there.
        let progress = exchange.progress().map_err(Trouble::Violation)?;
        let done = matches!(progress, Progress::Done(_));
        let mut spool = self.spool.borrow_mut();
        // What is left of a complete response is no more than fits into the slot, and the slot is worth more.
        self.held_back.set(!done && !spool.has_room());
        if !self.held_back.get() {
            receive(exchange, &mut spool)?;
        }
        if done {
            return Ok(true);
        }
        let mut remainder = self.remainder.borrow_mut();
        if !matches!(*remainder, Remainder::None) {
            feed(exchange, &mut remainder)?;
        }
        Ok(false)
    }

    /// Where it is in the channel, while it is.
    fn slot(&self) -> Option<u16> {
        self.exchange.borrow().as_ref().map(Exchange::slot)
    }

    /// What becomes of a request that fails now, for the log.
    fn client_gets(&self, status: u16) -> Cow<'static, str> {
        if self.begun.get() { "cut off".into() } else { format!("answered {status}").into() }
    }

    /// Whether its worker is to end it.
    fn is_overdue(&self) -> bool {
        self.told_overdue.get().is_some()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Takes what there is of the response out of the slot.
fn receive(exchange: &mut Exchange, spool: &mut Spool) -> Result<(), Trouble> {
    if let Some(memory) = spool.memory() {
        exchange.read(memory).map_err(Trouble::Violation)?;
        return Ok(());
    }
    let mut bytes = Vec::new();
    exchange.read(&mut bytes).map_err(Trouble::Violation)?;
    spool.push(&bytes).map_err(Trouble::Disk)
}

/// Puts as much of the request's body into the slot as has room.
fn feed(exchange: &mut Exchange, remainder: &mut Remainder) -> Result<(), Trouble> {
    loop {
        let space = exchange.body_space().map_err(Trouble::Violation)?;
        let left = match remainder {
            Remainder::None => return Ok(()),
            Remainder::Memory(bytes) => bytes.len() as u64,
            Remainder::File(_, position, end) => *end - *position,
        };
        if left == 0 {
            *remainder = Remainder::None;
            exchange.end_body(true);
            return Ok(());
        }
        if space == 0 {
            return Ok(());
        }
        match remainder {
            Remainder::None => {}
            Remainder::Memory(bytes) => {
                let taken = exchange.write_body(bytes).map_err(Trouble::Violation)?;
                *bytes = bytes.slice(taken..);
            }
            Remainder::File(file, position, _) => {
                let mut portion = vec![0; space.min(left as usize)];
                if let Err(error) = file.read_exact_at(&mut portion, *position) {
                    exchange.end_body(false);
                    return Err(Trouble::Disk(error));
                }
                *position += exchange.write_body(&portion).map_err(Trouble::Violation)? as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests;
