//! A line of a log, before a message is made of it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A line.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it happened.
    pub time: SystemTime,
    /// How bad it is.
    pub severity: Severity,
    /// The log.
    pub log: Log,
    /// The line itself, without its time.
    pub text: String,
    /// Names and values: the application, the ids of the request, and others.
    pub fields: Vec<(Cow<'static, str>, String)>,
}

/// A log of howdah.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// The access log.
    Access,
    /// howdah's own log.
    Error,
}

/// How bad it is, with the numbers of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// An error.
    Error = 3,
    /// A warning.
    Warning = 4,
    /// Information.
    Info = 6,
    /// For those who look for a fault.
    Debug = 7,
}

/// How many lines this process has lost, for each log, and has not counted elsewhere yet.
static LOST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// The memory of a record besides its texts.
const FIXED_BYTES: usize = 128;

// === impl Log ===

impl Log {
    /// Its id in messages and metrics.
    pub fn id(self) -> &'static str {
        match self {
            Log::Access => "access",
            Log::Error => "error",
        }
    }

    /// Its name for a person.
    pub fn name(self) -> &'static str {
        match self {
            Log::Access => "the access log",
            Log::Error => "howdah's log",
        }
    }

    /// How many of its lines this process has lost since the last call.
    pub fn take_lost(self) -> u64 {
        LOST[self as usize].swap(0, Ordering::Relaxed)
    }

    pub(crate) fn count_lost(self, lines: u64) {
        LOST[self as usize].fetch_add(lines, Ordering::Relaxed);
    }
}

// === impl Record ===

impl Record {
    /// A record of this moment, without fields.
    pub fn new(severity: Severity, log: Log, text: String) -> Record {
        Record { time: SystemTime::now(), severity, log, text, fields: Vec::new() }
    }

    /// Its memory.
    pub fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| FIXED_BYTES + name.len() + value.len());
        FIXED_BYTES + self.text.len() + fields.sum::<usize>()
    }
}
