//! Requests under way in PHP: a router thread's port to a generation's channel.
//!
//! A request waits for a slot (in order), is submitted, and from then on is a [`Running`]: the thread's mailbox says
//! which slots want attention, and [`Port::attend`] moves bytes — response bytes out of the ring into a [`Spool`],
//! request body bytes into it — whether or not the client is quick, until the spool is full. Futures take what is in the
//! spool ([`Port::head`], [`Port::poll_body`]).
//!
//! What can go wrong, all of it answered and logged: the worker dies (502, or a cut response if it had begun), the
//! worker breaks the channel's rules (502; the supervisor replaces the generation's workers), the disk is full (500).

use super::generation::Generation;
use super::killers::Alike;
use super::running::{Outcome, Remainder, Running, Trouble, Wait};
use crate::php::spool::{Limits, Spool};
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_channel::request::{HeadWriter, code, texts};
use howdah_channel::response;
use howdah_channel::{Exchange, Progress, Refused, Violation, WorkerId};
use howdah_protocol::router_messages::FromRouter;
use http::Uri;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until};

/// One thread's port to a generation.
pub struct Port {
    /// The generation.
    pub generation: Arc<Generation>,
    thread: u16,
    active: RefCell<Vec<Option<Rc<Running>>>>,
    /// What was submitted last in each slot, with its sequence number: a worker may die of it long after its answer.
    submitted: RefCell<Vec<(u32, Alike)>>,
    /// Written and submitted without a pause: one is enough for all requests.
    head: RefCell<HeadWriter>,
    /// How much of a response may wait for its client.
    spool_limits: Limits,
}

/// The head of a response, and what has arrived of its body.
pub struct Started {
    /// As the worker wrote it, checked.
    pub bytes: Bytes,
    /// Whether `bytes` is all of the response.
    pub complete: bool,
}

/// A request that waits for a slot: it may be taken back.
struct Leaving<'g>(Cell<Option<&'g Generation>>);

/// How often time-outs and lost wake-ups are looked for: [`Port::sweep`].
pub const SWEEP: Duration = Duration::from_millis(250);
/// How much of a response may wait for its client; the total is what nginx allows (proxy_max_temp_file_size).
const SPOOL_LIMITS: Limits = Limits { memory: 512 * 1024, total: 1 << 30 };
/// When the supervisor is told again of a request that still takes too long.
const OVERDUE_AGAIN: Duration = Duration::from_secs(1);
/// How much of a request's path the log shows.
const NAME_CHARS: usize = 300;
/// When to ask again for a slot that should be free.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The largest buffer for heads that is kept, in bytes written.
const KEPT_HEAD: usize = 8 * 1024;

// === impl Port ===

impl Port {
    /// A thread's port.
    pub fn new(generation: Arc<Generation>, thread: u16) -> Port {
        Port {
            generation,
            thread,
            active: RefCell::default(),
            submitted: RefCell::default(),
            head: RefCell::default(),
            spool_limits: SPOOL_LIMITS,
        }
    }

    /// A request begins to come, whose client waits for `patience` at most, if it has said so.
    ///
    /// # Errors
    /// 503 when it would be refused: the rest of it need not come.
    pub fn foresee(&self, uri: &Uri, alike: Alike, patience: Option<Duration>) -> Result<(), Failure> {
        self.generation.foresee(uri, alike, patience)
    }

    /// A request comes, whose client waits for `patience` at most, if it has said so.
    ///
    /// # Errors
    /// 503 when no worker will take it in time, or requests like it kill workers.
    pub fn admit(&self, uri: &Uri, alike: Alike, patience: Option<Duration>) -> Result<Wait, Failure> {
        let arrived = Instant::now();
        let longest = self.generation.arrive(patience, arrived)?;
        self.generation.contain(uri, alike, arrived).inspect_err(|_| self.generation.left())?;
        Ok(Wait { arrived, patience, alike, longest })
    }

    /// A request whose worker died is to run once more; it may wait for as long again.
    /// `None` if requests like it kill workers.
    pub fn admit_again(&self, wait: Wait) -> Option<Wait> {
        let is_suspect = self.generation.is_suspect(wait.alike);
        (!is_suspect).then(|| Wait { arrived: Instant::now(), ..wait })
    }

    /// Waits for a slot and submits the request: its head, which is written only then, and the beginning of its body.
    ///
    /// # Errors
    /// 431 for a head that no slot can hold; 503 when no worker takes it in time; 502 for a broken channel.
    pub async fn submit(
        self: &Rc<Self>,
        write_head: impl Fn(&mut HeadWriter),
        body: &[u8],
        remainder: Remainder,
        spool_folder: Option<&Path>,
        // For the slot and the queue together: a client waits once.
        wait: Wait,
    ) -> Result<Rc<Running>, Failure> {
        let leaving = Leaving(Cell::new(Some(&*self.generation)));
        let complete = matches!(remainder, Remainder::None);
        let exchange = loop {
            let place = match self.generation.slots.try_acquire() {
                Some(place) => place,
                None => {
                    let place = self.in_time(wait, self.generation.slots.acquire()).await;
                    place.inspect_err(|_| leaving.no_more())?
                }
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
                    self.in_time(wait, sleep(ASK_AGAIN)).await.inspect_err(|_| leaving.no_more())?;
                }
                Err(Refused::Broken(violation)) => {
                    self.generation.report(violation);
                    return Err(Failure::BadGateway);
                }
            }
        };
        leaving.no_more();
        let taken = exchange.body_taken() as usize;
        let remainder = match remainder {
            Remainder::None if taken < body.len() => Remainder::Memory(Bytes::copy_from_slice(&body[taken..])),
            other => other,
        };
        let slot = usize::from(exchange.slot());
        self.remember(slot, exchange.sequence(), wait.alike);
        let running = Rc::new(Running {
            exchange: RefCell::new(Some(exchange)),
            remainder: RefCell::new(remainder),
            spool: RefCell::new(Spool::new(self.spool_limits, spool_folder)),
            held_back: Cell::new(false),
            begun: Cell::new(false),
            outcome: Cell::new(Outcome::UnderWay),
            waker: RefCell::default(),
            wait,
            is_timed: Cell::new(false),
            running_since: Cell::new(None),
            told_overdue: Cell::new(None),
        });
        let mut active = self.active.borrow_mut();
        if active.len() <= slot {
            active.resize_with(slot + 1, || None);
        }
        active[slot] = Some(Rc::clone(&running));
        drop(active);
        if self.deadline(wait) < wait.arrived + SWEEP {
            self.give_up_in_time(slot as u16, &running);
        }
        self.generation.tell_demand();
        Ok(running)
    }

    fn remember(&self, slot: usize, sequence: u32, alike: Alike) {
        let mut submitted = self.submitted.borrow_mut();
        if submitted.len() <= slot {
            submitted.resize(slot + 1, Default::default());
        }
        submitted[slot] = (sequence, alike);
    }

    /// Waits for something, as long as the request may wait: which may become shorter meanwhile.
    async fn in_time<T>(&self, wait: Wait, something: impl Future<Output = T>) -> Result<T, Failure> {
        let generation = &self.generation;
        let mut something = pin!(something);
        loop {
            let hurry = generation.hurry.notified();
            let deadline = self.deadline(wait);
            if deadline <= Instant::now() {
                return Err(generation.refuse(1, wait.patience));
            }
            tokio::select! {
                biased;
                done = &mut something => return Ok(done),
                // It may have become longer meanwhile.
                () = sleep_until(deadline) => {}
                () = hurry => {}
            }
        }
    }

    fn deadline(&self, wait: Wait) -> Instant {
        wait.arrived + self.generation.longest(wait.longest)
    }

    /// Between two sweeps: takes a request back when it has waited for as long as it may.
    fn give_up_in_time(self: &Rc<Self>, slot: u16, running: &Rc<Running>) {
        if !running.is_timed.replace(true) {
            let (port, running, deadline) = (Rc::clone(self), Rc::clone(running), self.deadline(running.wait));
            spawn_local(async move {
                sleep_until(deadline).await;
                running.is_timed.set(false);
                port.give_up_if_late(slot, &running);
            });
        }
    }

    fn give_up_if_late(&self, slot: u16, running: &Rc<Running>) {
        let is_late = Instant::now() >= self.deadline(running.wait);
        if is_late && running.exchange.borrow_mut().as_mut().is_some_and(Exchange::cancel) {
            let failure = self.generation.refuse(1, running.wait.patience);
            self.end(slot, running, Outcome::Failed(failure));
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
                (Outcome::Failed(Failure::WorkerDied { .. }), _) if !arrived.is_empty() => {
                    Poll::Ready(Err(Failure::WorkerDied { had_begun: true }))
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

    /// A worker is dead: its request, if it ran one of this thread's, is answered. The generation knows of it. What it died of
    /// is remembered, if it was one of this thread's, too.
    pub fn worker_died(&self, worker: WorkerId, killer: Option<(u16, u32)>) {
        if let Some((slot, sequence)) = killer
            && let Some((submitted, alike)) = self.submitted.borrow().get(usize::from(slot))
            && *submitted == sequence
        {
            let was_answered = !self.active.borrow().get(usize::from(slot)).is_some_and(Option::is_some);
            self.generation.was_killed_by(*alike, was_answered, Instant::now());
        }
        self.for_each_active(|slot, running| {
            self.attend(slot);
            let (lost, name) = match running.exchange.borrow_mut().as_mut() {
                Some(exchange) => {
                    let is_its = exchange.progress() == Ok(Progress::Running(worker));
                    let name = is_its.then(|| name(&exchange.request_head())).flatten();
                    (exchange.worker_died(worker), name)
                }
                None => (Ok(false), None),
            };
            match lost {
                Ok(true) => {
                    self.generation.finished(1);
                    let (status, failure) = match running.is_overdue() {
                        true => (504, Failure::GatewayTimeout),
                        false => (502, Failure::WorkerDied { had_begun: false }),
                    };
                    // What is answered 502 or run once more is told by who decides that.
                    if running.begun.get() || running.is_overdue() {
                        let client_gets = running.client_gets(status);
                        let name = name.map(|name| format!(", {name},")).unwrap_or_default();
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
        // Of a client that left after the generation had heard of it.
        self.generation.channel.worker_died(worker);
    }

    /// Mends what dead workers and lost wake-ups left behind, and ends requests that waited too long.
    pub fn sweep(self: &Rc<Self>) {
        self.mend();
        self.generation.tell_demand();
        let now = Instant::now();
        self.generation.look(self.generation.waiting_requests(), now);
        self.generation.forget(now);
        self.for_each_active(|slot, running| {
            self.attend(slot);
            self.end_if_overdue(running);
            let progress = running.exchange.borrow_mut().as_mut().map(|exchange| {
                exchange.check()?;
                exchange.resubmit_if_stranded();
                exchange.progress()
            });
            match progress {
                Some(Ok(Progress::Queued)) if self.deadline(running.wait) < now + SWEEP => {
                    self.give_up_in_time(slot, running);
                }
                Some(Ok(_)) | None => {}
                Some(Err(violation)) => self.violated(slot, running, violation),
            }
        });
    }

    /// The client left: the request is taken back, or its response dropped.
    pub fn abandon(&self, running: &Rc<Running>) {
        let Some(slot) = running.slot() else { return };
        if running.exchange.borrow_mut().as_mut().is_some_and(Exchange::cancel) {
            self.generation.left();
        } else if running.begun.get() {
            // So ends what has no end of its own.
            self.generation.has_survived(running.wait.alike);
        }
        self.end(slot, running, Outcome::Failed(Failure::BadGateway));
    }

    fn attend(&self, slot: u16) {
        let running = self.active.borrow().get(usize::from(slot)).cloned().flatten();
        // A slot that nobody here owns: of a client that left, and its worker has finished.
        let Some(running) = running else { return self.mend() };
        match running.advance() {
            Ok(false) => running.wake(),
            // Whatever PHP said at the end is not the answer that its client waited for.
            Ok(true) if running.is_overdue() => {
                self.generation.finished(1);
                self.end(slot, &running, Outcome::Failed(Failure::GatewayTimeout));
            }
            Ok(true) => {
                self.generation.finished(1);
                self.generation.has_survived(running.wait.alike);
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
        let Some(exchange) = exchange.as_mut() else { return };
        let Ok(Progress::Running(worker)) = exchange.progress() else { return };
        let since = running.running_since.get().unwrap_or_else(Instant::now);
        running.running_since.set(Some(since));
        // It has a while for its shutdown functions, before the supervisor is told again and kills it.
        let was_told = running.told_overdue.get().is_some_and(|told| told.elapsed() < OVERDUE_AGAIN);
        if since.elapsed() > timeout && !was_told {
            running.told_overdue.set(Some(Instant::now()));
            let (generation, request) = (self.generation.id, (exchange.slot(), exchange.sequence()));
            self.generation.supervisor.tell(&FromRouter::Overdue { generation, worker, request });
        }
    }

    fn mend(&self) {
        match self.generation.channel.sweep(self.thread, Instant::now().into_std()) {
            Ok(finished) => self.generation.finished(finished),
            Err(violation) => self.generation.report(violation),
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

/// Method and path of a request, for the log, of a head that a worker may have written over.
fn name(head: &[u8]) -> Option<String> {
    let [method, uri] = texts(head, [code::REQUEST_METHOD, code::REQUEST_URI]);
    let (method, uri) = (method?, uri?);
    // The query may hold what is nobody's business.
    let path = uri.split_once('?').map_or(&*uri, |(path, _)| path);
    let text = format!("{method} {path}").replace(|c: char| c.is_control(), "?");
    Some(text.chars().take(NAME_CHARS).collect())
}

// === impl Leaving ===

impl Leaving<'_> {
    /// It is submitted, or refused.
    fn no_more(&self) {
        self.0.set(None);
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(generation) = self.0.get() {
            generation.left();
        }
    }
}

impl Drop for Port {
    /// Nothing on this thread uses the generation any more: nobody waits for it.
    fn drop(&mut self) {
        self.generation.channel.leave(self.thread);
    }
}

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
