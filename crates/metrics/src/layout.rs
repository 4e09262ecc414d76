//! Where each number is in the memory that a router counts in.
//!
//! ```text
//! block of thread 0 | block of thread 1 | …
//! block:  numbers of the thread | rows used | rows
//! row:    application, route, responder | requests by method and class | causes | bytes | histograms
//! ```
//!
//! A thread writes its own block only. It takes a row when a request has a combination of application, route and
//! responder for the first time; when all are used, the last row takes the rest. Rows that are not used take no memory.

use crate::histogram;
use crate::labels::{CAUSES, CLASSES, METHODS};

/// A number that a thread counts without a label of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Connections that were accepted.
    Accepted,
    /// Connections that are over.
    Closed,
    /// Handshakes that agreed on TLS 1.2.
    Tls12,
    /// Handshakes that agreed on TLS 1.3.
    Tls13,
    /// Handshakes that failed.
    TlsFailed,
    /// Handshakes that continued an earlier session.
    TlsResumed,
    /// Spans that were recorded.
    Spans,
    /// Spans that did not fit into the pipe to the process that exports them.
    SpansLost,
    /// Lines of logs for a collector.
    LogRecords,
    /// Lines that did not fit into the same pipe.
    LogRecordsLost,
    /// Lines of the access log that no log daemon gets.
    AccessLinesLost,
    /// Lines of howdah's own log that no log daemon gets.
    OwnLinesLost,
}

/// A time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In the queue.
    Queue,
    /// In PHP.
    Php,
    /// On a processor, in PHP.
    Cpu,
    /// From the first byte of the request to the head of the response.
    FirstByte,
    /// From the first byte of the request to the last one of the response.
    Whole,
}

/// The phases in their order.
pub const PHASES: [Phase; 5] = [Phase::Queue, Phase::Php, Phase::Cpu, Phase::FirstByte, Phase::Whole];
/// The number of [`Scalar`]s.
pub const SCALARS: usize = 12;
/// How many rows a thread has.
pub const ROWS: usize = 1024;

pub(crate) const ROWS_USED: usize = SCALARS;
pub(crate) const FIRST_ROW: usize = ROWS_USED + 1;
/// The key of a row.
pub(crate) const APPLICATION: usize = 0;
pub(crate) const ROUTE: usize = 1;
pub(crate) const RESPONDER: usize = 2;
/// Its numbers.
pub(crate) const KEY_WORDS: usize = 3;
/// Offsets of its numbers, from the first one on.
pub(crate) const REQUESTS: usize = 0;
pub(crate) const REFUSED: usize = METHODS.len() * CLASSES.len();
pub(crate) const BODY_BYTES: usize = REFUSED + CAUSES.len();
pub(crate) const HISTOGRAMS: usize = BODY_BYTES + 1;
/// How many numbers a row has.
pub(crate) const NUMBERS: usize = HISTOGRAMS + PHASES.len() * histogram::WORDS;
pub(crate) const ROW_WORDS: usize = KEY_WORDS + NUMBERS;
const BLOCK_WORDS: usize = FIRST_ROW + ROWS * ROW_WORDS;

/// How many words a router with this number of threads needs.
pub fn words(threads: u16) -> usize {
    usize::from(threads.max(1)) * BLOCK_WORDS
}

/// Where the block of a thread begins.
pub(crate) fn block(thread: usize) -> usize {
    thread * BLOCK_WORDS
}

/// Where the numbers of a row begin.
pub(crate) fn numbers(thread: usize, row: usize) -> usize {
    key(thread, row) + KEY_WORDS
}

/// Where the key of a row begins.
pub(crate) fn key(thread: usize, row: usize) -> usize {
    block(thread) + FIRST_ROW + row * ROW_WORDS
}

/// Where the histogram of a phase begins among the numbers.
pub(crate) fn histogram_of(phase: Phase) -> usize {
    HISTOGRAMS + phase as usize * histogram::WORDS
}
