//! The service of a worker: its account, its limits, and where standard error goes. It decides whether another request may
//! follow.
//!
//! No other request follows when the worker has reached its limits ([`Allowance`]), or has ended a request for
//! `limits/timeout`.

use super::account::allowance::{Allowance, Limit};
use super::account::cpu_meter::CpuMeter;
use super::account::growth::Growth;
use super::account::opcache;
use super::callbacks;
use super::stderr::Stderr;
use crate::{log, sapi};
use howdah_channel::WorkerEnd;
use howdah_channel::account::Ledger;
use howdah_protocol::messages::process_end::EXIT_ROUTER_UNREACHABLE;
use std::time::Duration;

/// The service of this worker.
pub struct Service {
    pub end: &'static WorkerEnd,
    pub limits: WorkerLimits,
    pub ledger: Ledger<'static>,
    stderr: &'static Stderr,
    allowance: Allowance,
    growth: Growth,
    cpu: CpuMeter,
    served: u64,
}

/// The limits of a worker of an application.
#[derive(Clone, Debug)]
pub struct WorkerLimits {
    /// The application's name.
    pub application: String,
    /// The worker exits after this number of requests.
    pub requests: Option<u32>,
    /// The worker exits when its own memory has grown by more than this, in bytes.
    pub memory: Option<u64>,
    /// A request that takes longer is ended.
    pub timeout: Option<Duration>,
}

// === impl Service ===

impl Service {
    /// The worker is ready for its first request.
    pub fn begin(end: &'static WorkerEnd, limits: WorkerLimits, stderr: &'static Stderr) -> Service {
        opcache::begin(end);
        Service {
            allowance: Allowance::new(limits.requests, limits.memory, end.index()),
            growth: Growth::begin(),
            cpu: CpuMeter::begin(),
            ledger: end.open_ledger(),
            end,
            limits,
            stderr,
            served: 0,
        }
    }

    /// The worker is about to sleep.
    pub fn before_sleep(&mut self) {
        self.cpu.before_sleep().into_iter().for_each(|spent| self.ledger.enter_cpu(spent));
    }

    /// A request begins.
    pub fn request_begins(&self, is_warm_up: bool) {
        if is_warm_up {
            self.stderr.to_supervisor();
        }
    }

    /// The response of a request is complete. Exits if the router does not learn of it.
    pub fn request_is_answered(&self, is_warm_up: bool) {
        if is_warm_up {
            self.stderr.to_log();
        }
        if self.end.is_cut_off() {
            self.limits.warn("exits: a script has closed its descriptors");
            callbacks::exit(EXIT_ROUTER_UNREACHABLE);
        }
    }

    /// A request has ended, after it kept the worker busy for this time. Returns whether another one may follow. The end is
    /// in the account already.
    pub fn may_go_on(&mut self, busy: Duration, now: Duration) -> bool {
        self.cpu.after_request(busy).into_iter().for_each(|spent| self.ledger.enter_cpu(spent));
        if sapi::has_ended_a_request() {
            return false;
        }
        self.served += 1;
        self.growth.after_request(busy);
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
        true
    }
}

// === impl WorkerLimits ===

impl WorkerLimits {
    /// Logs a warning about this worker.
    pub fn warn(&self, event: &str) {
        log::warn(&format!("worker of \"{}\" (pid {}) {event}", self.application, std::process::id()));
    }
}
