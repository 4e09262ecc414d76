//! The warm-up of a change's new generations: the router, the only process that talks to PHP, sends them their first
//! requests before any configuration names them.
//!
//! A generation that fails its warm-up fails the change, and what ran before goes on. While howdah boots, nothing ran
//! before: then the failure is logged and the generation serves all the same, because a late database must not keep the
//! machine from coming up. A router that dies loses its warm-up; the next router starts it again, within the same time.

use howdah_protocol::messages::warm_up::LONGEST_WARM_UP;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A warm-up in progress.
#[derive(Debug)]
pub struct WarmUp {
    /// The generations that have not finished it.
    pending: BTreeSet<u64>,
    /// Whether the router has the order.
    is_ordered: bool,
    until: Instant,
}

/// The next step of a warm-up.
#[derive(Debug, PartialEq, Eq)]
pub enum WarmUpStep {
    /// An event.
    Wait,
    /// The order to the router.
    Order,
    /// Nothing: it is complete.
    Finish,
    /// It failed for this reason.
    Abandon(String),
}

/// How much longer than the requests the router may take.
const ROUTER_GRACE: Duration = Duration::from_secs(5);

// === impl WarmUp ===

impl WarmUp {
    /// The warm-up of these generations.
    pub fn new(generations: BTreeSet<u64>, now: Instant) -> WarmUp {
        WarmUp { pending: generations, is_ordered: false, until: now + LONGEST_WARM_UP + ROUTER_GRACE }
    }

    /// When it has taken too long.
    pub fn deadline(&self) -> Instant {
        self.until
    }

    /// The next step.
    pub fn next_step(&self, now: Instant, has_router: bool) -> WarmUpStep {
        if self.pending.is_empty() {
            WarmUpStep::Finish
        } else if self.until <= now {
            WarmUpStep::Abandon(format!("the warm-up took more than {} s", LONGEST_WARM_UP.as_secs()))
        } else if has_router && !self.is_ordered {
            WarmUpStep::Order
        } else {
            WarmUpStep::Wait
        }
    }

    /// The generations that have not finished.
    pub fn pending(&self) -> &BTreeSet<u64> {
        &self.pending
    }

    /// The router gets the order.
    pub fn ordered(&mut self) {
        self.is_ordered = true;
    }

    /// The router is dead, and with it all requests of the warm-up.
    pub fn router_lost(&mut self) {
        self.is_ordered = false;
    }

    /// This generation has passed, or its failure is accepted.
    pub fn finish(&mut self, generation: u64) {
        self.pending.remove(&generation);
    }

    /// No generation is waited for any more.
    pub fn finish_all(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_waits_for_a_router_and_has_a_deadline() {
        let now = Instant::now();
        let mut warm_up = WarmUp::new(BTreeSet::from([7]), now);
        assert_eq!(warm_up.next_step(now, false), WarmUpStep::Wait);
        assert_eq!(warm_up.next_step(now, true), WarmUpStep::Order);
        warm_up.ordered();
        assert_eq!(warm_up.next_step(now, true), WarmUpStep::Wait);
        warm_up.router_lost();
        assert_eq!(warm_up.next_step(now, true), WarmUpStep::Order);
        assert!(matches!(warm_up.next_step(warm_up.deadline(), true), WarmUpStep::Abandon(_)));
        warm_up.finish(7);
        assert_eq!(warm_up.next_step(warm_up.deadline(), true), WarmUpStep::Finish);
    }
}
