//! Sleeping on a word of shared memory (futex(2), shared between processes).

use crate::sync::AtomicU32;
use rustix::thread::futex;
use std::time::Duration;

/// Sleeps while `word` holds `seen`, at most `timeout`. Returns early for signals too: callers look again.
pub(crate) fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| futex::Timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    // EAGAIN, EINTR and ETIMEDOUT all mean the same to the callers: look again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref());
}

/// Wakes one sleeper of `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // The only errors are of a word that is not mapped or not aligned: impossible for a reference.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}
