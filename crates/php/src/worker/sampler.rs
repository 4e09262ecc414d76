//! Starts the sampler, which is in C: see `sapi/samples/sampler.c`. Without it a worker serves, too: a warning is logged, and
//! nothing is sampled.

#![allow(unsafe_code)] // calls C

use crate::{log, sapi};
use howdah_channel::WorkerEnd;
use howdah_protocol::messages::prototype::SlowRequests;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The files and settings of the supervisor for the samplers of all workers.
#[derive(Debug)]
pub struct Sampling {
    /// Profiles are appended to this file.
    pub profile: OwnedFd,
    /// The slow log, and which requests are written to it.
    pub slow_log: Option<(OwnedFd, SlowRequests)>,
    /// Whether `limits/timeout` may end a request.
    pub has_limit: bool,
}

/// Starts the sampler: in a worker, once, after the fork. The arguments live as long as the process.
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
        // Added to a time it must not exceed the range of the clock.
        slow_threshold: slow.map_or(0, |(_, slow)| slow.threshold_ms.saturating_mul(1_000_000).min(u64::MAX / 2)),
        slow_samples: slow.map_or(0, |(_, slow)| slow.samples),
        has_limit: sampling.has_limit.into(),
        logs_json: log::is_json().into(),
    };
    // SAFETY: everything that it points to is never freed; the call copies the structure itself.
    let error = unsafe { sapi::howdah_sampler_start(&setup) };
    if error != 0 {
        let error = io::Error::from_raw_os_error(error);
        log::warn(&format!(
            "cannot start the sampler of a worker of {application:?}: {error}; its requests are in no slow log and no profile"
        ));
    }
}
