//! The events of a simulation, by time. Events of the same time come in the order in which they were added.

use crate::processors::{SliceEnd, Time};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A request, by its index.
pub type RequestId = usize;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A processor has run a task for a slice.
    Slice(SliceEnd),
    /// The next request of these clients comes, which do not wait for answers.
    Arrival { group: usize },
    /// A client sends this request, for the first time or again.
    Send(RequestId),
    /// A worker has waited. The number distinguishes the worker from others that had the index.
    WaitOver { index: usize, number: u64 },
    /// The policy decides about a held request again.
    HoldOver(RequestId),
    /// A request is answered 503 after its pause.
    Refusal(RequestId),
    /// Requests that have waited for too long are found.
    Sweep,
    /// The admission policy measures the queue.
    Measure,
    /// The router reports that requests wait.
    Report,
    /// The sizing policy decides.
    Decide,
    /// A disturbance begins or ends.
    Disturbance { index: usize, begins: bool },
    /// The numbers of a period are recorded.
    PeriodEnd,
}

/// The events to come.
#[derive(Debug, Default)]
pub struct Agenda {
    entries: BinaryHeap<Entry>,
    added: u64,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    number: u64,
    event: Event,
}

// === impl Agenda ===

impl Agenda {
    /// Adds an event.
    pub fn add(&mut self, at: Time, event: Event) {
        self.added += 1;
        self.entries.push(Entry { at, number: self.added, event });
    }

    /// Takes the next event out.
    pub fn next(&mut self) -> Option<(Time, Event)> {
        self.entries.pop().map(|entry| (entry.at, entry.event))
    }
}

// === impl Entry ===

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        // The earliest is the greatest.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}
