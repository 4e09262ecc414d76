//! Wakes workers that sleep, and reports that more are needed, at the end of a turn of the event loop instead of after each
//! request.
//!
//! A worker that is woken then finds several requests, and sleeps less often. A request that no sleeping worker could run
//! needs no wake-up: a busy worker finds it.

use crate::backends::php::generation::SharedGeneration;
use crate::report::spawn_essential;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// The wake-ups of one port.
pub struct Wakes(Rc<Pending>);

struct Pending {
    generation: Arc<SharedGeneration>,
    /// The requests that were submitted without a wake-up.
    requests: Cell<u32>,
    /// A task wakes workers at the end of the turn.
    is_scheduled: Cell<bool>,
}

/// After this number of requests workers are woken during the turn: a turn may have a thousand of them.
const MOST_REQUESTS: u32 = 8;

// === impl Wakes ===

impl Wakes {
    /// The wake-ups of this generation's workers.
    pub fn new(generation: Arc<SharedGeneration>) -> Wakes {
        Wakes(Rc::new(Pending { generation, requests: Cell::new(0), is_scheduled: Cell::new(false) }))
    }

    /// A request was submitted without a wake-up: wakes a worker at the end of the turn, if one sleeps.
    pub fn after_turn(&self) {
        let pending = &self.0;
        if !pending.generation.channel.has_sleeper() {
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
    fn wake(&self) {
        let requests = self.requests.take();
        if requests > 0 {
            self.generation.channel.wake_workers(requests);
            self.generation.report_demand();
        }
    }
}
