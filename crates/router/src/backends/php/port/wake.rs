//! Wakes workers that sleep, and reports that more are needed, at the end of a turn of the event loop instead of after each
//! request.
//!
//! A worker that is woken then finds several requests, and sleeps less often. A request that no sleeping worker could run
//! needs no wake-up: a busy worker finds it. Quick requests also wait for the workers that are awake
//! ([`SharedGeneration::wake_threshold`]); if one still waits a millisecond later, it wakes another worker.

use crate::backends::php::generation::SharedGeneration;
use crate::report::spawn_essential;
use std::cell::Cell;
use std::rc::Rc;
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
/// How long requests wait for workers that are awake.
const LONGEST_WAIT: Duration = Duration::from_millis(1);

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
        for _ in 0..requests {
            if !channel.wake_worker(generation.wake_threshold(generation.workers_awake())) {
                break;
            }
        }
        // For workers that are awake, which wake each other, too.
        let threshold = generation.wake_threshold(generation.workers_awake().max(1));
        channel.set_wake_threshold(threshold);
        if threshold > 0 && !self.is_watched.replace(true) {
            let pending = Rc::clone(self);
            spawn_essential(async move {
                pending.watch().await;
                pending.is_watched.set(false);
            });
        }
        generation.report_demand();
    }

    /// Wakes a worker each time that a request waits for longer than it should, until none waits.
    async fn watch(&self) {
        let channel = &self.generation.channel;
        loop {
            let next = channel.next_ticket();
            sleep(LONGEST_WAIT).await;
            if !channel.waits_since(next) {
                if channel.waits_since(channel.next_ticket()) {
                    continue;
                }
                return;
            }
            channel.wake_worker(0);
        }
    }
}
