//! A thread of the router counts its requests. An addition is one load and one store.

use crate::histogram;
use crate::labels::{CLASSES, Cause, Method, NameId, Responder, class};
use crate::layout::{
    self, APPLICATION, BODY_BYTES, Phase, REFUSED, REQUESTS, RESPONDER, ROUTE, ROWS, ROWS_USED, Scalar,
};
use howdah_channel::Counters;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// A thread's part of the memory.
#[derive(Debug)]
pub struct Recorder {
    counters: Arc<Counters>,
    thread: usize,
    rows: RefCell<HashMap<RowKey, Row, BuildHasherDefault<KeyHasher>>>,
    /// Requests with the same key often follow each other.
    last: Cell<Option<(RowKey, Row)>>,
}

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// The application; none for a request that no application answers.
    pub application: NameId,
    /// The step of a route, or the listener, that led to the action.
    pub route: NameId,
    /// The responder.
    pub responder: Responder,
}

/// Where the numbers of a row begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(usize);

/// The ids are hashes already.
#[derive(Default)]
struct KeyHasher(u64);

/// The application and the route of the row that takes what has no row of its own.
pub const OVERFLOW: NameId = NameId(u64::MAX);

// === impl Recorder ===

impl Recorder {
    /// The part of the thread with this index.
    pub fn new(counters: Arc<Counters>, thread: u16) -> Recorder {
        Recorder { counters, thread: thread.into(), rows: RefCell::default(), last: Cell::new(None) }
    }

    /// Adds one.
    pub fn count(&self, scalar: Scalar) {
        self.count_by(scalar, 1);
    }

    /// Adds several.
    pub fn count_by(&self, scalar: Scalar, number: u64) {
        self.counters.add(layout::block(self.thread) + scalar as usize, number);
    }

    /// Counts a request at the head of its response. Its times are added to the row.
    pub fn request(&self, key: RowKey, method: Method, status: u16) -> Row {
        let row = self.row(key);
        self.counters.add(row.0 + REQUESTS + method as usize * CLASSES.len() + class(status), 1);
        row
    }

    /// Counts the cause of a refusal.
    pub fn refused(&self, row: Row, cause: Cause) {
        self.counters.add(row.0 + REFUSED + cause as usize, 1);
    }

    /// Adds bytes of a response's body.
    pub fn body_bytes(&self, row: Row, bytes: u64) {
        self.counters.add(row.0 + BODY_BYTES, bytes);
    }

    /// Adds a time of a request.
    pub fn time(&self, row: Row, phase: Phase, time: Duration) {
        let (bucket, nanoseconds) = histogram::bucket(time);
        let begin = row.0 + layout::histogram_of(phase);
        self.counters.add(begin + bucket, 1);
        self.counters.add(begin + histogram::BUCKETS, nanoseconds);
    }

    fn row(&self, key: RowKey) -> Row {
        if let Some((last, row)) = self.last.get()
            && last == key
        {
            return row;
        }
        let row = self.rows.borrow().get(&key).copied();
        let row = row.unwrap_or_else(|| self.take_row(key));
        self.last.set(Some((key, row)));
        row
    }

    fn take_row(&self, key: RowKey) -> Row {
        let used = self.rows.borrow().len();
        // The last row has no key of its own: it is not kept among the others.
        let (index, key, is_own) = match used < ROWS - 1 {
            true => (used, key, true),
            false => (ROWS - 1, RowKey { application: OVERFLOW, route: OVERFLOW, responder: key.responder }, false),
        };
        let begin = layout::key(self.thread, index);
        self.counters.set(begin + APPLICATION, key.application.0);
        self.counters.set(begin + ROUTE, key.route.0);
        self.counters.set(begin + RESPONDER, if is_own { key.responder as u64 } else { 0 });
        // The key is complete before the row counts.
        self.counters.set(layout::block(self.thread) + ROWS_USED, index as u64 + 1);
        let row = Row(layout::numbers(self.thread, index));
        if is_own {
            self.rows.borrow_mut().insert(key, row);
        }
        row
    }
}

// === impl KeyHasher ===

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(5) ^ number;
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}
