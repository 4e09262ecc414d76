//! The warm-up of a change's new generations: the router, which alone speaks to PHP, sends them their first requests
//! before any configuration names them.
//!
//! A generation that does not pass ends the change, and what ran before goes on. At the start there is nothing that could:
//! then it is said and served all the same, as a database that is late must not keep the machine from coming up.
//! A router that dies takes the warm-up with it; the next one begins it anew, within the same time.

use crate::control::change::{Origin, Progress, Step, first_line};
use crate::event_loop::Supervisor;
use howdah_protocol::warm_up::LONGEST_WARM_UP;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How far it is.
#[derive(Debug)]
pub struct Warming {
    /// Those that are not warm yet.
    left: BTreeSet<u64>,
    /// Whether the router was told of them.
    is_ordered: bool,
    until: Instant,
}

/// How much longer than the requests may take the router may take.
const GRACE: Duration = Duration::from_secs(5);

// === impl Warming ===

impl Warming {
    /// Of these generations.
    pub fn of(generations: BTreeSet<u64>, now: Instant) -> Warming {
        Warming { left: generations, is_ordered: false, until: now + LONGEST_WARM_UP + GRACE }
    }

    /// When it has taken too long.
    pub fn deadline(&self) -> Instant {
        self.until
    }

    /// What is to be done.
    pub fn next_step(&self, now: Instant, has_router: bool) -> Step {
        if self.left.is_empty() {
            Step::Switch
        } else if self.until <= now {
            Step::GiveWarmUpUp(format!("the warm-up took more than {} s", LONGEST_WARM_UP.as_secs()))
        } else if has_router && !self.is_ordered {
            Step::Warm
        } else {
            Step::Wait
        }
    }

    /// The router is dead, and with it all requests.
    pub fn router_lost(&mut self) {
        self.is_ordered = false;
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// The new generations that are to be warmed.
    pub(crate) fn to_be_warmed(&self, started: &[u64]) -> BTreeSet<u64> {
        let new = self.generations.iter().filter(|generation| started.contains(&generation.id()));
        new.filter(|new| !new.release().warm_up.is_empty()).map(|new| new.id()).collect()
    }

    /// Sends the warm-up to the router. At the start there is none yet, nor a configuration for it.
    pub(crate) fn warm(&mut self, now: Instant) {
        let Some(warming) = self.warming() else { return };
        let left = warming.left.clone();
        warming.is_ordered = true;
        for generation in self.generations.iter_mut().filter(|generation| left.contains(&generation.id())) {
            generation.begin_warm_up();
        }
        if let Err(error) = self.order_warm_up(&left, now) {
            self.fail_change(&format!("the warm-up cannot be sent to the router: {error}"), now);
        }
    }

    /// The router has the result of a warm-up.
    pub(crate) fn warmed(&mut self, id: u64, refusal: Option<String>, now: Instant) {
        // Of a change that has ended meanwhile.
        if !self.warming().is_some_and(|warming| warming.left.contains(&id)) {
            return;
        }
        let Some(refusal) = refusal else {
            if let Some(warming) = self.warming() {
                warming.left.remove(&id);
            }
            return;
        };
        let Some(generation) = self.generation_mut(id) else { return };
        let name = generation.name();
        let mut reason = format!("the application {name:?} did not pass its warm-up: {refusal}");
        let said = generation.said_in_warm_up();
        if !said.is_empty() {
            reason.push_str(":\n");
            reason.push_str(&said);
        }
        self.give_warm_up_up(Some(id), &reason, now);
    }

    /// A generation, or whoever is left, did not pass.
    pub(crate) fn give_warm_up_up(&mut self, id: Option<u64>, reason: &str, now: Instant) {
        let Some(change) = &mut self.change else { return };
        if matches!(change.origin, Origin::Api(_) | Origin::Reload(_)) {
            return self.fail_change(reason, now);
        }
        tracing::error!("{}; as nothing else can be served, it is put in force all the same", first_line(reason));
        if let Progress::Warming(warming) = &mut change.progress {
            warming.left.retain(|left| id.is_some_and(|id| *left != id));
        }
    }

    fn warming(&mut self) -> Option<&mut Warming> {
        match &mut self.change.as_mut()?.progress {
            Progress::Warming(warming) => Some(warming),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_waits_for_a_router_and_not_for_ever() {
        let now = Instant::now();
        let mut warming = Warming::of(BTreeSet::from([7]), now);
        assert!(matches!(warming.next_step(now, false), Step::Wait));
        assert!(matches!(warming.next_step(now, true), Step::Warm));
        warming.is_ordered = true;
        assert!(matches!(warming.next_step(now, true), Step::Wait));
        warming.router_lost();
        assert!(matches!(warming.next_step(now, true), Step::Warm));
        assert!(matches!(warming.next_step(warming.deadline(), true), Step::GiveWarmUpUp(_)));
        warming.left.clear();
        assert!(matches!(warming.next_step(warming.deadline(), true), Step::Switch));
    }
}
