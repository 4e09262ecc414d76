//! The generation of a FastCGI application. It has no processes: the router connects to a server that howdah does not
//! start. Therefore it works from its beginning, and is over as soon as it is stopped.

use crate::generation::process_report::{ProcessReport, ReportedState};
use crate::generation::tally::ProcessTally;
use crate::os::identity::UserAccount;
use crate::plan::fastcgi::FastCgiPlan;
use crate::plan::php::application::Release;
use howdah_config::Endpoint;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::router::{FastCgiGenerationBoot, ToRouter};
use rustix::process::Pid;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A FastCGI application that gets requests.
#[derive(Debug)]
pub struct FastCgiGeneration {
    id: u64,
    plan: FastCgiPlan,
    born: Instant,
    is_over: bool,
}

// === impl FastCgiGeneration ===

impl FastCgiGeneration {
    /// A generation.
    pub fn new(id: u64, plan: FastCgiPlan, now: Instant) -> FastCgiGeneration {
        FastCgiGeneration { id, plan, born: now, is_over: false }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its server, for people.
    pub fn kind(&self) -> &'static str {
        "FastCGI server"
    }

    /// Its application's name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Where its server listens.
    pub fn addresses(&self) -> &[Endpoint] {
        &self.plan.addresses
    }

    /// The user as which it runs: none that howdah knows.
    pub fn account(&self) -> &UserAccount {
        &self.plan.account
    }

    /// It has no links that howdah follows.
    pub fn release(&self) -> &Release {
        &self.plan.release
    }

    /// When it was made.
    pub fn born(&self) -> Instant {
        self.born
    }

    /// It works: its server may be started later.
    pub fn is_proven(&self) -> bool {
        true
    }

    /// It has no processes that could be late.
    pub fn is_usable(&self) -> bool {
        true
    }

    /// It is proven.
    pub fn go_on(&mut self) {}

    /// It always starts.
    pub fn failure(&self) -> Option<&str> {
        None
    }

    /// It has no processes.
    pub fn processes(&self) -> usize {
        0
    }

    /// It has no processes.
    pub fn process_counts(&self) -> (usize, usize) {
        (0, 0)
    }

    /// It has no processes.
    pub fn process_reports(&mut self, _drains: bool, _now: Instant) -> Vec<ProcessReport> {
        Vec::new()
    }

    /// It has no processes.
    pub fn process_states(&self, _drains: bool) -> Vec<ReportedState> {
        Vec::new()
    }

    /// It has no processes.
    pub fn private_bytes(&self) -> u64 {
        0
    }

    /// It has no processes.
    pub fn tally(&self) -> ProcessTally {
        ProcessTally::default()
    }

    /// The message that describes it to a router.
    pub fn for_router(&self) -> Vec<(ToRouter, Vec<OwnedFd>)> {
        let milliseconds = |time: Duration| time.as_millis() as u64;
        let FastCgiPlan { name, addresses, targets, parameters, connections, keep_alive, limits, .. } = &self.plan;
        let boot = FastCgiGenerationBoot {
            id: self.id,
            application: name.clone(),
            addresses: addresses.iter().map(Endpoint::to_string).collect(),
            targets: targets.clone(),
            parameters: parameters.clone(),
            connections: *connections,
            keep_alive_ms: milliseconds(*keep_alive),
            timeout_ms: limits.timeout.map(milliseconds),
            queue_timeout_ms: milliseconds(limits.queue_timeout),
        };
        vec![(ToRouter::AddFastCgiGeneration(boot), Vec::new())]
    }

    /// No process of it is dead.
    pub fn on_death(&mut self, _dead: Pid, _end: ProcessEnd, _now: Instant) -> bool {
        false
    }

    /// It has nothing to do at any time.
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// It has nothing to do at any time.
    pub fn on_time(&mut self, _now: Instant) {}

    /// The router has released it.
    pub fn stop(&mut self, _now: Instant) {
        self.is_over = true;
    }

    /// The same.
    pub fn kill(&mut self) {
        self.is_over = true;
    }

    /// Whether it was stopped.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}
