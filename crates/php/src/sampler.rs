//! Starts the sampler, which is in C beside PHP: see `sapi/sampler.c`.
//!
//! Without it a worker serves all the same: it is logged, and nothing is sampled.

use crate::sapi;
use howdah_channel::WorkerEnd;
use howdah_protocol::prototype_messages::SlowRequests;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// What the prototype got of the supervisor for the samplers of its workers.
#[derive(Debug)]
pub struct Sampling {
    /// To which profiles are appended.
    pub profile: OwnedFd,
    /// The slow log, and what is written there.
    pub slow_log: Option<(OwnedFd, SlowRequests)>,
    /// Whether a request may be ended for its time.
    pub has_limit: bool,
}

/// Starts it. In a worker, once, after the fork; whatever is given lives as long as the process.
pub fn start(application: &'static CStr, end: &'static WorkerEnd, sampling: &'static Sampling) {
    let words = end.sampler_words();
    let slow = sampling.slow_log.as_ref();
    let setup = sapi::SamplerSetup {
        application: application.as_ptr(),
        bell: words.bell.as_ptr(),
        rate: words.rate.as_ptr(),
        end: words.end.as_ptr(),
        slow_log: slow.map_or(-1, |(file, _)| file.as_raw_fd()),
        profile: sampling.profile.as_raw_fd(),
        // As a time from now it may be any, and no more than the clock has.
        slow_threshold: slow.map_or(0, |(_, slow)| slow.threshold_ms.saturating_mul(1_000_000).min(u64::MAX / 2)),
        slow_samples: slow.map_or(0, |(_, slow)| slow.samples),
        has_limit: sampling.has_limit.into(),
    };
    // SAFETY: all that it points to is never freed; it is copied before the call returns.
    let error = unsafe { sapi::howdah_sampler_start(&setup) };
    if error != 0 {
        let error = io::Error::from_raw_os_error(error);
        crate::warn(&format!(
            "{application:?}: a worker has no sampler ({error}): it is in no slow log and no profile"
        ));
    }
}

/// Whether the request that PHP ran last was ended for its time.
pub fn has_ended_a_request() -> bool {
    // SAFETY: only reads a variable of this thread.
    unsafe { sapi::howdah_sampler_has_ended_a_request() != 0 }
}
