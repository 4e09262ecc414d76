//! The requests of a worker, one after the other: claims each from the channel, enters it in the worker's account, and
//! decides whether another one may follow.
//!
//! No other request follows when the worker is ordered to stop, has reached its limits ([`Allowance`]), or has ended a
//! request for `limits/timeout`.

use super::allowance::{Allowance, Limit};
use super::callbacks::{self, CurrentRequest};
use super::cpu_meter::CpuMeter;
use super::growth::Growth;
use super::request::RequestBuffers;
use super::stderr::Stderr;
use crate::{log, sapi};
use howdah_channel::account::{Ledger, monotonic};
use howdah_channel::request::NAMES;
use howdah_channel::{Next, WorkerEnd};
use howdah_protocol::messages::process_end::EXIT_ROUTER_UNREACHABLE;
use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::ffi::CString;
use std::time::Duration;

/// A worker that is never idle reaps its children after this number of requests: one system call, usually for nothing.
const REAP_AFTER: u32 = 64;

/// The time that other workers have to take the next request of a warm-up.
const WARM_UP_PAUSE: Duration = Duration::from_millis(10);

/// The limits of a worker of an application.
#[derive(Clone, Debug)]
pub struct WorkerLimits {
    /// The application's name.
    pub application: String,
    /// The worker exits after this number of requests.
    pub requests: Option<u32>,
    /// The worker exits when its own memory has grown by more than this, in bytes.
    pub memory: Option<u64>,
}

/// The treatment of children of PHP that it did not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// They are reaped between requests: they belong to a request that is over.
    Reap,
    /// Nothing: a worker script may wait for them in any of its requests.
    Keep,
}

/// The requests of this worker.
pub struct Requests {
    end: &'static WorkerEnd,
    limits: WorkerLimits,
    stderr: &'static Stderr,
    children: Children,
    c_names: Vec<CString>,
    allowance: Allowance,
    ledger: Ledger<'static>,
    growth: Growth,
    cpu: CpuMeter,
    buffers: RequestBuffers,
    served: u64,
    since_reaped: u32,
    /// When the current request began.
    began: Duration,
}

// === impl Requests ===

impl Requests {
    /// The worker is ready for its first request.
    pub fn begin(
        end: &'static WorkerEnd,
        limits: WorkerLimits,
        stderr: &'static Stderr,
        children: Children,
    ) -> Requests {
        Requests {
            allowance: Allowance::new(limits.requests, limits.memory, end.index()),
            growth: Growth::begin(),
            cpu: CpuMeter::begin(),
            c_names: NAMES.iter().map(|name| CString::new(*name).expect("a name has no NUL")).collect(),
            ledger: end.open_ledger(),
            end,
            limits,
            stderr,
            children,
            buffers: RequestBuffers::default(),
            served: 0,
            since_reaped: 0,
            began: Duration::ZERO,
        }
    }

    /// Waits for the next request, and makes it the current one of the [callbacks](super::callbacks). Its pointers are
    /// valid until [`Self::finish`]. `None`: the worker must exit.
    pub fn next(&mut self) -> Option<sapi::SapiRequest> {
        let Requests { end, cpu, ledger, children, .. } = self;
        let before_sleep = || {
            cpu.before_sleep().into_iter().for_each(|spent| ledger.enter_cpu(spent));
            *children == Children::Reap && reap_children()
        };
        let Next::Run(claim) = end.next(before_sleep) else { return None };
        if let Err(violation) = self.buffers.read(&claim) {
            callbacks::exit_after_violation(&violation);
        }
        self.began = monotonic();
        let for_php = self.buffers.for_php(&self.c_names, self.began);
        let (slot, sequence) = claim.name();
        self.ledger.begin(slot, sequence, self.began);
        callbacks::begin(CurrentRequest::Channel(claim));
        if self.buffers.is_warm_up() {
            self.stderr.to_supervisor();
        }
        Some(for_php)
    }

    /// The number of the recording of memory that goes on; 0 without one.
    pub fn memory_recording(&self) -> u32 {
        self.end.memory_recording()
    }

    /// PHP has ended the current request. Returns whether another one may follow.
    pub fn finish(&mut self) -> bool {
        if self.buffers.is_warm_up() {
            self.stderr.to_log();
            if self.children == Children::Keep {
                // Each worker of a worker script must run it: the next one is for another worker.
                std::thread::sleep(WARM_UP_PAUSE);
            }
        }
        if self.end.is_cut_off() {
            self.limits.warn("exits: a script has closed its descriptors");
            callbacks::exit(EXIT_ROUTER_UNREACHABLE);
        }
        let now = monotonic();
        let ran = now.saturating_sub(self.began);
        self.ledger.finish(now);
        self.cpu.after_request(ran).into_iter().for_each(|spent| self.ledger.enter_cpu(spent));
        if sapi::has_ended_a_request() {
            return false;
        }
        self.served += 1;
        self.growth.after_request(ran);
        if self.limits.memory.is_none()
            && let Some(report) = self.growth.report_if_doubled()
        {
            self.limits.warn(&report);
        }
        let may_recycle = || self.end.may_recycle(now);
        if let Some(reached) = self.allowance.reached(self.served, self.growth.bytes(), may_recycle) {
            if reached == Limit::Memory || self.growth.is_large() {
                self.limits.warn(&format!("{}; replacing it", self.growth));
            }
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

// === impl WorkerLimits ===

impl WorkerLimits {
    /// Logs a warning about this worker.
    pub fn warn(&self, event: &str) {
        log::warn(&format!("worker of \"{}\" (pid {}) {event}", self.application, std::process::id()));
    }
}
