//! The slow log of async mode. A slow request has one line when it ends: its time, and how many requests the worker held. Its
//! handler has no stack while it waits. A loop that is blocked has one: that is sampled for the request that was used last.
//!
//! Nothing here fails: a line that cannot be written is lost.

#![allow(unsafe_code)] // calls C

use super::held::Held;
use crate::sapi;
use howdah_channel::account::Current;
use std::ffi::CString;
use std::time::Duration;

/// Samples of one block of the loop, in the slow log.
#[derive(Debug, PartialEq)]
pub struct LoopSamples {
    /// The time without a turn after which the next one is due; `None` for no more.
    pub due: Option<Duration>,
    taken: u32,
    most: u32,
}

/// Logs a request that ends, if it was slow. `held`: how many requests the worker has held, with this one.
pub fn log_if_slow(request: &Held, held: usize) {
    let php = &request.request;
    let logged = sapi::HeldRequest {
        method: php.method,
        uri: php.uri,
        script: php.script_filename,
        trace_parent: php.trace_parent,
        began: php.began,
        held: held as u32,
    };
    // SAFETY: the texts of `for_php` are never null here, but for the trace, and live as long as `request`.
    unsafe { sapi::howdah_log_held_end(&raw const logged) };
}

// === impl LoopSamples ===

impl LoopSamples {
    /// For a block of the loop that begins now. `rule` is the threshold of the slow log, and the most samples.
    pub fn new(rule: Option<(Duration, u32)>) -> LoopSamples {
        let (threshold, most) = rule.unwrap_or_default();
        LoopSamples { due: Some(threshold).filter(|_| most > 0), taken: 0, most }
    }

    /// A sample is due. As for other requests, the next one is due at twice the time.
    pub fn count(&mut self) {
        self.taken += 1;
        self.due = self.due.map(|due| due * 2).filter(|_| self.taken < self.most);
    }

    /// Logs the sample: the loop is blocked, and the script used this request last. The texts are its method, its target,
    /// its script and its trace. `held`: how many requests the worker holds.
    pub fn log(&self, used_last: Current, texts: [String; 4], held: u64) {
        let [method, uri, script, trace] = texts.map(|text| CString::new(text.replace('\0', "")).unwrap_or_default());
        let logged = sapi::HeldRequest {
            method: method.as_ptr(),
            uri: uri.as_ptr(),
            script: script.as_ptr(),
            trace_parent: trace.as_ptr(),
            began: used_last.began.as_nanos() as u64,
            held: held as u32,
        };
        // SAFETY: the texts outlive the call. Only the thread beside the loop calls this.
        unsafe { sapi::howdah_log_blocked_loop(&raw const logged, self.taken) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_due_at_the_threshold_and_at_twice_the_time() {
        let second = Duration::from_secs(1);
        let mut samples = LoopSamples::new(Some((second, 3)));
        let mut due = Vec::new();
        while let Some(at) = samples.due {
            due.push(at);
            samples.count();
        }
        assert_eq!(due, [second, 2 * second, 4 * second]);
        assert_eq!(LoopSamples::new(None).due, None);
    }
}
