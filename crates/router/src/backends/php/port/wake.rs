//! Wakes workers that sleep, and reports that more are needed, at the end of a turn of the event loop instead of after each
//! request.
//!
//! A worker that is woken then finds several requests, and sleeps less often. A request that no sleeping worker could run
//! needs no wake-up: a busy worker finds it. Quick requests also wait for the workers that are awake
//! ([`SharedGeneration::wake_threshold`]); one that still waits after one or two ticks of a millisecond wakes another worker.

use crate::backends::php::generation::SharedGeneration;
use crate::report::spawn_essential;
use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The wake-ups of one port.
pub struct Wakes(Rc<Pending>);

struct Pending {
    generation: Arc<SharedGeneration>,
    /// The requests that were submitted without a wake-up.
    requests: Cell<u32>,
    /// A task wakes workers at the end of the turn.
    is_scheduled: Cell<bool>,
    /// A task looks after requests that wait for the workers that are awake.
    is_watched: Cell<bool>,
}

/// After this number of requests workers are woken during the turn: a turn may have a thousand of them.
const MOST_REQUESTS: u32 = 8;
/// The interval in which requests that wait are looked at.
const TICK: Duration = Duration::from_millis(1);
/// After this number of ticks with requests that have waited, workers are woken at once again.
const LATE_TICKS: u32 = 2;
/// After this number of such ticks in a row, the sweep looks after them: a hostile worker can pretend that requests wait and workers
/// sleep.
const MAX_LATE_TICKS: u32 = 100;

// === impl Wakes ===

impl Wakes {
    /// The wake-ups of this generation's workers.
    pub fn new(generation: Arc<SharedGeneration>) -> Wakes {
        Wakes(Rc::new(Pending {
            generation,
            requests: Cell::new(0),
            is_scheduled: Cell::new(false),
            is_watched: Cell::new(false),
        }))
    }

    /// A request was submitted without a wake-up: wakes a worker at the end of the turn, if one sleeps and is needed.
    pub fn after_turn(&self) {
        let pending = &self.0;
        if pending.generation.channel.sleepers() == 0 {
            pending.generation.report_demand();
            return;
        }
        pending.requests.set(pending.requests.get() + 1);
        if pending.requests.get() >= MOST_REQUESTS {
            pending.wake();
        } else if !pending.is_scheduled.replace(true) {
            let pending = Rc::clone(pending);
            // It runs after the tasks that are ready now.
            spawn_essential(async move {
                pending.is_scheduled.set(false);
                pending.wake();
            });
        }
    }
}

// === impl Pending ===

impl Pending {
    fn wake(self: &Rc<Self>) {
        let requests = self.requests.take();
        if requests == 0 {
            return;
        }
        let (generation, channel) = (&self.generation, &self.generation.channel);
        // The workers apply it, too: one that takes a request wakes another. It is awake itself, hence at least 1.
        let of_workers = generation.wake_threshold(generation.workers_awake().max(1));
        channel.set_wake_threshold(of_workers);
        let mut may_wait = of_workers > 0;
        for _ in 0..requests {
            let threshold = generation.wake_threshold(generation.workers_awake());
            if !channel.wake_worker(threshold) {
                may_wait |= threshold > 0;
                break;
            }
        }
        if may_wait && !self.is_watched.replace(true) {
            spawn_essential(watch(Rc::downgrade(self)));
        }
        generation.report_demand();
    }

    /// The end of a tick of [`watch`], in which the requests before this ticket have waited: wakes a worker for them. After two
    /// such ticks in a row, the workers that are awake are not quick. Returns the number of such ticks; `None` if no request waits
    /// for a worker that sleeps, or after too many such ticks.
    fn tick(&self, ticket: u64, late_before: u32) -> Option<u32> {
        let channel = &self.generation.channel;
        // A worker that goes to sleep from now on sees the requests that wait.
        if channel.sleepers() == 0 || !channel.waits_since(channel.next_ticket()) {
            return None;
        }
        if !channel.waits_since(ticket) {
            return Some(0);
        }
        let late = late_before + 1;
        if late.is_multiple_of(LATE_TICKS) {
            self.generation.not_quick();
            channel.set_wake_threshold(0);
        }
        channel.wake_worker(0);
        (late < MAX_LATE_TICKS).then_some(late)
    }
}

/// Looks after requests that wait for the workers that are awake, as long as there are any. It does not keep the generation.
async fn watch(pending: Weak<Pending>) {
    let mut late = 0;
    loop {
        let Some(ticket) = pending.upgrade().map(|pending| pending.generation.channel.next_ticket()) else { return };
        sleep(TICK).await;
        let Some(pending) = pending.upgrade() else { return };
        match pending.tick(ticket, late) {
            Some(ticks) => late = ticks,
            None => return pending.is_watched.set(false),
        }
    }
}
