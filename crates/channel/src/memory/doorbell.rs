//! Doorbells: words of shared memory that a process sleeps on (futex(2), shared between processes).
//!
//! A sleeper reads the word, checks that there is nothing to do, and sleeps while the word keeps this value. Nothing here
//! fails: a wake-up for no reason makes the sleeper check again.

use crate::sync::{AtomicU32, Ordering};
use rustix::thread::futex;
use std::time::Duration;

/// Sleeps while `word` holds `seen`, at most `timeout`. Signals end the sleep early, too: callers check again.
pub(crate) fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| futex::Timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    // EAGAIN, EINTR and ETIMEDOUT have the same meaning for the callers: check again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref());
}

/// Changes the word and wakes the process that sleeps on its former value.
pub(crate) fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    // The only errors are of a word that is not mapped or not aligned: impossible for a reference.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}
