//! Log lines that are written once a minute for each subject: a path, a client.
//!
//! The number of subjects is bounded, and one site may have them all. Beyond it, the limit of log lines decides about further
//! subjects, which counts those that it leaves out.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The subjects of the last minute, for all threads.
#[derive(Debug, Default)]
pub struct OncePerMinute {
    /// By the hash of the subject, which may be long. Strangers do not know its keys.
    logged: Mutex<HashMap<u64, Instant>>,
    hasher: RandomState,
}

const MINUTE: Duration = Duration::from_secs(60);
const MAX_SUBJECTS: usize = 256;

// === impl OncePerMinute ===

impl OncePerMinute {
    /// Without subjects.
    pub fn new() -> OncePerMinute {
        OncePerMinute::default()
    }

    /// Whether a line about this subject is due.
    pub fn is_due(&self, subject: impl Hash) -> bool {
        self.is_due_at(subject, Instant::now()).unwrap_or(true)
    }

    /// The same for work that costs more than a line: it is not due when there are too many subjects.
    pub fn is_due_if_there_are_few(&self, subject: impl Hash) -> bool {
        self.is_due_at(subject, Instant::now()).unwrap_or(false)
    }

    /// `None`: there are too many subjects to remember this one.
    fn is_due_at(&self, subject: impl Hash, now: Instant) -> Option<bool> {
        let subject = self.hasher.hash_one(subject);
        // The map is complete at any time.
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < MINUTE;
        if logged.get(&subject).is_some_and(is_recent) {
            return Some(false);
        }
        if logged.len() >= MAX_SUBJECTS {
            logged.retain(|_, at| is_recent(at));
        }
        if logged.len() >= MAX_SUBJECTS {
            return None;
        }
        logged.insert(subject, now);
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_due_once_a_minute() {
        let (lines, start) = (OncePerMinute::new(), Instant::now());
        let is_due =
            |subject: usize, seconds| lines.is_due_at(subject, start + Duration::from_secs(seconds)) == Some(true);
        assert!(is_due(1, 0) && !is_due(1, 59) && is_due(2, 59));
        assert!(is_due(1, 60) && !is_due(1, 61));
    }

    #[test]
    fn the_number_of_subjects_is_bounded() {
        let (lines, start) = (OncePerMinute::new(), Instant::now());
        let due = (0..1000).filter(|subject| lines.is_due_at(*subject, start) == Some(true)).count();
        assert_eq!(due, MAX_SUBJECTS);
        assert_eq!((lines.is_due_at(2000, start), lines.is_due_at(1, start)), (None, Some(false)));
        assert_eq!(lines.is_due_at(2000, start + MINUTE), Some(true), "the others are forgotten");
        let now = OncePerMinute::new();
        (0..MAX_SUBJECTS).for_each(|subject| assert!(now.is_due(subject)));
        assert!(now.is_due(2000) && !now.is_due_if_there_are_few(2000), "one site silences no other one");
    }
}
