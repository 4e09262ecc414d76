//! Who lives: the workers of a generation, as the supervisor told the router. Pure.
//!
//! A place is given again only after its worker's death, but the news of a death may come later than that of the next
//! birth, and more than once.

use crate::layout::MAX_WORKERS;
use crate::state::WorkerId;

/// The living workers, by their places.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    incarnations: Vec<Option<u16>>,
}

// === impl Roster ===

impl Roster {
    /// The worker has been started, or is about to be.
    pub fn born(&mut self, worker: WorkerId) {
        let place = usize::from(worker.index);
        if worker.index < MAX_WORKERS {
            self.incarnations.resize(self.incarnations.len().max(place + 1), None);
            self.incarnations[place] = Some(worker.incarnation);
        }
    }

    /// The worker is dead.
    pub fn died(&mut self, worker: WorkerId) {
        if self.lives(worker) {
            self.incarnations[usize::from(worker.index)] = None;
        }
    }

    /// Whether it lives.
    pub fn lives(&self, worker: WorkerId) -> bool {
        self.incarnations.get(usize::from(worker.index)) == Some(&Some(worker.incarnation))
    }

    /// The places of those that live.
    pub fn places(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.incarnations).filter_map(|(place, life)| life.map(|_| place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_death_does_not_end_the_next_life() {
        let (first, second) = (WorkerId { index: 2, incarnation: 0 }, WorkerId { index: 2, incarnation: 1 });
        let mut roster = Roster::default();
        assert!(!roster.lives(first));
        roster.born(first);
        assert!(roster.lives(first) && !roster.lives(second));
        roster.born(second);
        roster.died(first);
        assert!(roster.lives(second) && !roster.lives(first));
        assert_eq!(roster.places().collect::<Vec<_>>(), [2]);
        roster.died(second);
        assert_eq!(roster.places().count(), 0);
    }

    #[test]
    fn a_place_that_no_channel_has_is_nobodys() {
        let nobody = WorkerId { index: u16::MAX, incarnation: 0 };
        let mut roster = Roster::default();
        roster.born(nobody);
        roster.died(nobody);
        assert!(!roster.lives(nobody));
    }
}
