//! The priorities that a client has changed by PRIORITY_UPDATE, also before their requests came.

use crate::protocols::connection::priority::PriorityField;
use std::collections::VecDeque;

/// A client has changed the priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityUpdate {
    /// The number of its stream.
    pub stream: u64,
    /// The new priority.
    pub field: PriorityField,
}

/// The updates of a connection, the last one at the end.
#[derive(Debug, Default)]
pub struct PriorityUpdates(VecDeque<PriorityUpdate>);

/// How many are kept for responses that have not begun, or go on.
const MOST_UPDATES: usize = 128;

// === impl PriorityUpdates ===

impl PriorityUpdates {
    /// One came. It replaces an older one.
    pub fn add(&mut self, update: PriorityUpdate) {
        self.forget(update.stream);
        self.0.push_back(update);
        if self.0.len() > MOST_UPDATES {
            self.0.pop_front();
        }
    }

    /// The last one for this stream.
    pub fn of(&self, stream: u64) -> Option<PriorityField> {
        self.0.iter().find(|update| update.stream == stream).map(|update| update.field)
    }

    /// The stream has ended.
    pub fn forget(&mut self, stream: u64) {
        self.0.retain(|update| update.stream != stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_update_of_a_stream_counts_and_their_number_is_limited() {
        let mut updates = PriorityUpdates::default();
        let field = |text: &str| PriorityField::parse(text.as_bytes());
        updates.add(PriorityUpdate { stream: 5, field: field("u=1") });
        updates.add(PriorityUpdate { stream: 5, field: field("u=2") });
        assert_eq!(updates.of(5), Some(field("u=2")));
        updates.forget(5);
        assert_eq!(updates.of(5), None);
        (0..1000).for_each(|stream| updates.add(PriorityUpdate { stream, field: field("u=0") }));
        assert_eq!(updates.0.len(), MOST_UPDATES);
        assert!(updates.of(999).is_some() && updates.of(0).is_none());
    }
}
