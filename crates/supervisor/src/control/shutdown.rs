//! The end: first the router finishes its requests, then the applications end, then what PHP left running, then the
//! supervisor.

use crate::control::stage::Stage;
use crate::event_loop::Supervisor;
use crate::os::reap;
use howdah_protocol::router_messages::ToRouter;
use std::time::{Duration, Instant};

/// How long requests under way may take to finish.
const ROUTER_GRACE: Duration = Duration::from_secs(30);
/// How long workers may take to end when there are no requests any more.
const WORKER_GRACE: Duration = Duration::from_secs(10);
/// How long the kernel may take to end what was killed.
const KILL_GRACE: Duration = Duration::from_secs(3);

// === impl Supervisor ===

impl Supervisor {
    /// Finishes what is under way, then ends. Asked twice, ends at once.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.control_listeners.close();
        match self.stage {
            Stage::Serving => {
                tracing::info!(
                    "howdah ends, after the requests under way, in {} s at the latest",
                    ROUTER_GRACE.as_secs()
                );
                self.stage = Stage::Draining(now + ROUTER_GRACE);
                self.refuse_asks();
                // One that the router switches to already is finished.
                self.fail_booting("howdah is shutting down", now);
                self.router_due = None;
                self.listeners.block_new_connections(&[]);
                self.listeners.close();
                match &mut self.router {
                    Some(router) => router.link.send(ToRouter::Drain, Vec::new()),
                    None => self.router_drained(now),
                }
            }
            _ => self.quit(),
        }
    }

    /// Ends at once.
    pub(crate) fn quit(&mut self) {
        if matches!(self.stage, Stage::Killing(_)) {
            return;
        }
        self.stage = Stage::Killing(Instant::now() + KILL_GRACE);
        self.end_switching();
        self.router_due = None;
        self.listeners.close();
        if let Some(router) = &self.router {
            reap::kill(router.pid);
        }
        for generation in &mut self.generations {
            generation.kill();
        }
    }

    /// The router is gone, and with it all requests.
    pub(crate) fn router_drained(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Draining(_)) {
            self.stage = Stage::Stopping(now + WORKER_GRACE);
            self.end_switching();
            for generation in &mut self.generations {
                generation.stop(now);
            }
        }
    }

    /// Loses patience when a stage has taken too long.
    pub(crate) fn on_stage_time(&mut self, now: Instant) {
        match self.stage {
            Stage::Draining(until) if until <= now => {
                tracing::warn!("requests did not finish in {} seconds; they are cut off", ROUTER_GRACE.as_secs());
                self.stage = Stage::Draining(now + KILL_GRACE);
                match &self.router {
                    Some(router) => reap::kill(router.pid),
                    None => self.router_drained(now),
                }
            }
            Stage::Stopping(until) if until <= now => {
                tracing::warn!("workers did not end in {} seconds; they are killed", WORKER_GRACE.as_secs());
                self.quit();
            }
            _ => {}
        }
    }

    /// Whether nothing is left to wait for.
    pub(crate) fn is_over(&mut self) -> bool {
        match self.stage {
            Stage::Booting | Stage::Serving | Stage::Draining(_) => false,
            Stage::Killing(until) if until <= Instant::now() => true,
            Stage::Stopping(_) | Stage::Killing(_) => {
                self.router.is_none()
                    && self.generations.iter().all(|generation| generation.is_over())
                    && self.sweep.finish()
            }
        }
    }
}
