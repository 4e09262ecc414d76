//! The worker's loop: claims a request, runs it, claims the next.
//!
//! It returns when the worker is ordered to stop, has reached its limits ([`Allowance`]), or has ended a request for
//! `limits/timeout`. PHP itself may end the process, and the worker's death signal does when the supervisor dies.

#![allow(unsafe_code)] // runs PHP

use super::allowance::{Allowance, Limit};
use super::callbacks::{self, CurrentRequest};
use super::cpu_meter::CpuMeter;
use super::growth::Growth;
use super::request::RequestBuffers;
use super::stderr::Stderr;
use crate::{log, sapi};
use howdah_channel::account::monotonic;
use howdah_channel::{Next, WorkerEnd};
use howdah_protocol::process_end::EXIT_ROUTER_UNREACHABLE;
use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::ffi::CString;

/// A worker that is never idle reaps its children after this number of requests: one system call, usually for nothing.
const REAP_AFTER: u32 = 64;

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

/// Serves until the worker is ordered to stop, or has reached its limits.
pub fn serve(end: &'static WorkerEnd, c_names: &[CString], limits: &WorkerLimits, stderr: &Stderr) {
    let allowance = Allowance::new(limits.requests, limits.memory, end.index());
    let mut growth = Growth::begin();
    let mut served = 0;
    let mut request = RequestBuffers::default();
    let mut since_reaped = 0;
    let ledger = end.open_ledger();
    let mut cpu = CpuMeter::begin();
    while let Next::Run(claim) = end.next(|| {
        cpu.before_sleep().into_iter().for_each(|spent| ledger.enter_cpu(spent));
        reap_children()
    }) {
        if let Err(violation) = request.read(&claim) {
            callbacks::exit_after_violation(&violation);
        }
        let began = monotonic();
        let for_php = request.for_php(c_names, began);
        let (slot, sequence) = claim.name();
        ledger.begin(slot, sequence, began);
        callbacks::begin(CurrentRequest::Channel(claim));
        // SAFETY: PHP was started in the prototype; all pointers point into `request` and `c_names`, which outlive the call.
        let run = || unsafe { sapi::howdah_php_run(&for_php) };
        if request.is_warm_up() {
            stderr.with_supervisor(run)
        } else {
            run()
        }
        if end.is_cut_off() {
            limits.warn("exits: a script has closed its descriptors");
            callbacks::exit(EXIT_ROUTER_UNREACHABLE);
        }
        let now = monotonic();
        let ran = now.saturating_sub(began);
        ledger.finish(now);
        cpu.after_request(ran).into_iter().for_each(|spent| ledger.enter_cpu(spent));
        if sapi::has_ended_a_request() {
            return;
        }
        served += 1;
        growth.after_request(ran);
        if limits.memory.is_none()
            && let Some(report) = growth.report_if_doubled()
        {
            limits.warn(&report);
        }
        if let Some(reached) = allowance.reached(served, growth.bytes(), || end.may_recycle(now)) {
            if reached == Limit::Memory || growth.is_large() {
                limits.warn(&format!("{growth}; replacing it"));
            }
            return;
        }
        since_reaped += 1;
        if since_reaped == REAP_AFTER {
            since_reaped = 0;
            reap_children();
        }
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
    fn warn(&self, event: &str) {
        log::warn(&format!("worker of \"{}\" (pid {}) {event}", self.application, std::process::id()));
    }
}
