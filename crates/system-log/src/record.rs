//! A line of a log, before a message is made of it.

use crate::log::Log;
use std::borrow::Cow;
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

/// The memory of a record besides its texts.
const FIXED_BYTES: usize = 128;

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
