//! The workers of a generation that live, by the supervisor's reports. Pure.
//!
//! An index is reused only after its worker's death, but the report of a death may arrive later than that of the next
//! start, and more than once.

use crate::memory::layout::MAX_WORKERS;
use crate::slot_state::WorkerId;

/// The living workers, by their indexes.
#[derive(Debug, Default)]
pub(super) struct Roster {
    incarnations: Vec<Option<u16>>,
}

// === impl Roster ===

impl Roster {
    /// The worker has been started, or is about to be.
    pub fn started(&mut self, worker: WorkerId) {
        let index = usize::from(worker.index);
        if worker.index < MAX_WORKERS {
            self.incarnations.resize(self.incarnations.len().max(index + 1), None);
            self.incarnations[index] = Some(worker.incarnation);
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

    /// The indexes of the living workers.
    pub fn indexes(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.incarnations).filter_map(|(index, life)| life.map(|_| index))
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
        roster.started(first);
        assert!(roster.lives(first) && !roster.lives(second));
        roster.started(second);
        roster.died(first);
        assert!(roster.lives(second) && !roster.lives(first));
        assert_eq!(roster.indexes().collect::<Vec<_>>(), [2]);
        roster.died(second);
        assert_eq!(roster.indexes().count(), 0);
    }

    #[test]
    fn an_index_beyond_the_channels_is_ignored() {
        let impossible = WorkerId { index: u16::MAX, incarnation: 0 };
        let mut roster = Roster::default();
        roster.started(impossible);
        roster.died(impossible);
        assert!(!roster.lives(impossible));
    }
}
