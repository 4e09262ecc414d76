//! The requests of a worker, one after the other: claims each from the channel, enters it in the worker's account, and
//! decides with the [`Service`] whether another one may follow. None follows when the worker is ordered to stop.

use super::callbacks::{self, CurrentRequest};
use super::request::RequestBuffers;
use super::service::Service;
use crate::sapi;
use howdah_channel::Next;
use howdah_channel::account::monotonic;
use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::time::Duration;

/// A worker that is never idle reaps its children after this number of requests: one system call, usually for nothing.
const REAP_AFTER: u32 = 64;

/// The time that other workers have to take the next request of a warm-up.
pub const WARM_UP_PAUSE: Duration = Duration::from_millis(10);

/// The treatment of children of PHP that it did not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// They are reaped between requests: they belong to a request that is over.
    Reap,
    /// Nothing: a worker script may wait for them in any of its requests.
    Keep,
}

/// Where requests come from, one after the other.
pub trait Source {
    /// Waits for the next request. `None`: no other one follows. The pointers are valid until `finish`.
    fn next(&mut self) -> Option<sapi::SapiRequest>;

    /// PHP has ended the request. Returns whether another one may follow.
    fn finish(&mut self) -> bool;

    /// The number of the recording of memory that goes on; 0 without one.
    fn memory_recording(&self) -> u32 {
        0
    }
}

/// The requests of this worker.
pub struct Requests {
    service: Service,
    children: Children,
    buffers: RequestBuffers,
    since_reaped: u32,
    /// When the current request began.
    began: Duration,
}

// === impl Requests ===

impl Requests {
    /// The worker is ready for its first request.
    pub fn begin(service: Service, children: Children) -> Requests {
        Requests { service, children, buffers: RequestBuffers::default(), since_reaped: 0, began: Duration::ZERO }
    }
}

impl Source for Requests {
    /// Makes the next request the current one of the [callbacks](super::callbacks).
    fn next(&mut self) -> Option<sapi::SapiRequest> {
        let (end, children, service) = (self.service.end, self.children, &mut self.service);
        let mut has_slept = false;
        let before_sleep = || {
            has_slept = true;
            service.before_sleep();
            children == Children::Reap && reap_children()
        };
        let Next::Run(mut claim) = end.next(before_sleep) else { return None };
        if has_slept {
            callbacks::worker_has_slept();
        }
        if let Err(violation) = self.buffers.read(&claim) {
            callbacks::exit_after_violation(&violation);
        }
        self.began = monotonic();
        claim.set_began(self.began);
        let for_php = self.buffers.for_php(self.began);
        let (slot, sequence) = claim.name();
        self.service.ledger.begin(slot, sequence, self.began);
        callbacks::begin(CurrentRequest::Channel(claim));
        self.service.request_begins(self.buffers.is_warm_up());
        Some(for_php)
    }

    fn memory_recording(&self) -> u32 {
        self.service.end.memory_recording()
    }

    fn finish(&mut self) -> bool {
        self.service.request_is_answered(self.buffers.is_warm_up());
        if self.buffers.is_warm_up() && self.children == Children::Keep {
            // Each worker of a worker script must run it: the next one is for another worker.
            std::thread::sleep(WARM_UP_PAUSE);
        }
        let now = monotonic();
        self.service.ledger.finish(now);
        if !self.service.may_go_on(now.saturating_sub(self.began), now) {
            return false;
        }
        self.since_reaped += 1;
        if self.since_reaped == REAP_AFTER {
            self.since_reaped = 0;
            if self.children == Children::Reap {
                reap_children();
            }
        }
        true
    }
}

/// Reaps the processes that PHP started and did not wait for; returns whether some still run. It is called between
/// requests only: during a request, PHP waits for children itself.
fn reap_children() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(None) => return true,
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
