//! The end of a generation that nobody needs any more: its workers finish what they do, for a while.
//!
//! The router has let go of it, so no client waits: what still runs are scripts that go on after their answer, or after
//! their client has gone. One that does so for ever would keep its prototype for ever.

use super::{Generation, Prototype};
use crate::os::process;
use crate::os::reap;
use std::time::{Duration, Instant};

/// How long scripts may go on when nobody waits for them.
const GRACE: Duration = Duration::from_secs(60);

// === impl Generation ===

impl Generation {
    /// Asks everything to finish and end.
    pub fn stop(&mut self, now: Instant) {
        self.kill_at.get_or_insert(now + GRACE);
        self.profiler.abort(&self.control, self.workers.alive().map(|(worker, _)| worker));
        self.control.stop_all();
        match &mut self.prototype {
            Prototype::Up { link, .. } => *link = None,
            prototype => *prototype = Prototype::Ended,
        }
    }

    /// Ends everything now.
    pub fn kill(&mut self) {
        self.stop(Instant::now());
        self.kill_at = None;
        self.end_all();
    }

    /// Whether it has been asked to end.
    pub fn is_stopping(&self) -> bool {
        matches!(self.prototype, Prototype::Up { link: None, .. } | Prototype::Ended)
    }

    /// Whether none of its processes is left.
    pub fn is_over(&self) -> bool {
        matches!(self.prototype, Prototype::Ended)
            && !self.workers.alive().any(|(_, process)| process.is_some_and(process::Process::is_child))
            && (self.nameless.is_empty() || self.unknown_children().is_empty())
    }

    /// Ends what did not end by itself.
    pub(super) fn kill_lingering(&mut self, now: Instant) {
        if self.kill_at.take_if(|at| *at <= now).is_some() {
            tracing::warn!(
                "scripts of the former {:?} still run {} s after their last request; they are killed",
                self.plan.name,
                GRACE.as_secs()
            );
            self.end_all();
        }
    }

    fn end_all(&mut self) {
        if let Prototype::Up { pid, group, .. } = self.prototype {
            reap::kill_group(pid, group);
        }
        for process in self.workers.alive().filter_map(|(_, process)| process) {
            process.kill();
        }
        if !self.nameless.is_empty() {
            self.unknown_children().into_iter().for_each(process::Process::kill);
        }
    }
}
