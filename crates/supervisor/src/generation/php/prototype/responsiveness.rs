//! Whether a prototype still answers, and what follows when it does not. Pure.
//!
//! A prototype forks at once when it gets the order, or reports that it cannot. It also gets a probe at an interval: a
//! prototype that hangs would not report the deaths of its workers either. A prototype that does not answer is killed,
//! and another one starts. A prototype that an operator has stopped is left alone while nothing is to be forked and no
//! worker of it has died.

use crate::policy::pace::{Beat, Heartbeat};
use std::time::{Duration, Instant};

/// The answers of a prototype.
#[derive(Debug)]
pub struct Responsiveness {
    /// When it last answered an order to fork; `None` once it was killed because it did not.
    answered: Option<Instant>,
    /// Whether it answers probes.
    heartbeat: Heartbeat,
    /// While it was stopped, a worker of it was found dead at the last probe.
    has_unreported_death: bool,
}

/// The next step for a prototype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStep {
    /// Nothing: it is stopped.
    Wait,
    /// Send it a probe.
    Probe,
    /// It does not answer any more.
    Lost,
    /// It is stopped, and a worker of it has died.
    UnreportedDeath,
}

/// How long a prototype may take to fork the next worker, or to report that it cannot.
pub const FORK_TIMEOUT: Duration = Duration::from_secs(10);
/// A check that comes later than this after the timeout shows that the supervisor itself was stopped.
const LATE: Duration = Duration::from_secs(1);

// === impl Responsiveness ===

impl Responsiveness {
    /// A prototype starts.
    pub fn new(now: Instant) -> Responsiveness {
        Responsiveness { answered: Some(now), heartbeat: Heartbeat::new(now), has_unreported_death: false }
    }

    /// It has forked, or reported that it could not.
    pub fn on_fork_answer(&mut self, now: Instant) {
        self.answered = self.answered.map(|_| now);
    }

    /// It has answered a probe.
    pub fn on_pong(&mut self) {
        self.heartbeat.answered();
    }

    /// When to check it. `oldest_order` is the time of the oldest order to fork that has no answer.
    pub fn deadline(&self, oldest_order: Option<Instant>) -> Instant {
        let fork = self.fork_deadline(oldest_order);
        fork.into_iter().fold(self.heartbeat.deadline(), Instant::min)
    }

    fn fork_deadline(&self, oldest_order: Option<Instant>) -> Option<Instant> {
        Some(oldest_order?.max(self.answered?) + FORK_TIMEOUT)
    }

    /// Whether it has not forked in time. Returned once.
    pub fn is_fork_late(&mut self, oldest_order: Option<Instant>, now: Instant) -> bool {
        let Some(deadline) = self.fork_deadline(oldest_order).filter(|deadline| *deadline <= now) else { return false };
        if now - deadline >= LATE {
            // Its answers may be there already.
            self.answered = Some(now + LATE - FORK_TIMEOUT);
            return false;
        }
        self.answered = None;
        true
    }

    /// The step that is due. A death counts when it is found at two probes: a prototype that was stopped and
    /// continues reports it by itself.
    pub fn probe(
        &mut self,
        is_stopped: impl FnOnce() -> bool,
        has_dead_worker: impl FnOnce() -> bool,
        now: Instant,
    ) -> ProbeStep {
        if !self.heartbeat.is_due(now) {
            return ProbeStep::Wait;
        }
        if is_stopped() {
            self.heartbeat.skip(now);
            let has_dead_worker = has_dead_worker();
            let had_dead_worker = std::mem::replace(&mut self.has_unreported_death, has_dead_worker);
            return if had_dead_worker && has_dead_worker { ProbeStep::UnreportedDeath } else { ProbeStep::Wait };
        }
        self.has_unreported_death = false;
        match self.heartbeat.beat(now) {
            Beat::Probe => ProbeStep::Probe,
            Beat::Lost => ProbeStep::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::heartbeat::interval;

    #[test]
    fn a_fork_is_late_once_and_not_if_the_check_comes_late() {
        let now = Instant::now();
        let mut prompt = Responsiveness::new(now);
        assert!(!prompt.is_fork_late(None, now + FORK_TIMEOUT));
        assert!(!prompt.is_fork_late(Some(now), now + FORK_TIMEOUT - Duration::from_millis(1)));
        assert!(prompt.is_fork_late(Some(now), now + FORK_TIMEOUT));
        assert!(!prompt.is_fork_late(Some(now), now + FORK_TIMEOUT), "it is killed already");
        let mut late = Responsiveness::new(now);
        assert!(!late.is_fork_late(Some(now), now + FORK_TIMEOUT + LATE));
        assert!(late.is_fork_late(Some(now), now + FORK_TIMEOUT + LATE + LATE));
    }

    #[test]
    fn a_stopped_prototype_is_left_alone_until_a_worker_is_found_dead_twice() {
        let now = Instant::now();
        let mut stopped = Responsiveness::new(now);
        let mut probe = |number: u32, is_dead: bool| stopped.probe(|| true, || is_dead, now + interval() * number);
        for number in 1..20 {
            assert_eq!(probe(number, false), ProbeStep::Wait);
        }
        assert_eq!(probe(20, true), ProbeStep::Wait);
        assert_eq!(probe(21, true), ProbeStep::UnreportedDeath);
    }
}
