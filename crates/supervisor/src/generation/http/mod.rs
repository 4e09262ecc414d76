//! A generation of an HTTP application: programs that are HTTP servers, each with an address that howdah chose.
//!
//! The generation is proven when all its processes were ready. The router gets the addresses, and which processes are
//! ready. A generation that nothing uses any more gets SIGTERM: the router has finished its requests before.

mod addresses;
mod probe;
pub mod process;

use crate::generation::process_report::{CpuShares, ProcessReport, ReportedState};
use crate::os::identity::UserAccount;
use crate::os::processes::process::Process;
use crate::plan::http_application::HttpPlan;
use crate::plan::php_application::Release;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::router::{HttpGenerationBoot, ToRouter};
use process::{HttpProcess, ProbedProcess};
use rustix::process::Pid;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

/// A running HTTP application.
#[derive(Debug)]
pub struct HttpGeneration {
    id: u64,
    plan: HttpPlan,
    born: Instant,
    processes: Vec<HttpProcess>,
    /// Whether all processes have been ready once.
    is_proven: bool,
    /// Which processes were ready at the last notice to the router.
    announced: Vec<bool>,
    cpu_shares: CpuShares,
}

// === impl HttpGeneration ===

impl HttpGeneration {
    /// Chooses the addresses. Nothing runs yet.
    ///
    /// # Errors
    /// When a folder or a socket cannot be made.
    pub fn new(id: u64, plan: HttpPlan, now: Instant) -> io::Result<HttpGeneration> {
        let addresses = (0..).zip(addresses::choose(id, &plan)?);
        let processes: Vec<_> = addresses.map(|(index, address)| HttpProcess::new(index, address, now)).collect();
        Ok(HttpGeneration {
            id,
            announced: vec![false; processes.len()],
            plan,
            born: now,
            processes,
            is_proven: false,
            cpu_shares: CpuShares::default(),
        })
    }

    // Properties

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its application's name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// The user as which it runs.
    pub fn account(&self) -> &UserAccount {
        &self.plan.account
    }

    /// It has no scripts and no links that howdah follows.
    pub fn release(&self) -> &Release {
        &self.plan.release
    }

    /// When it was made.
    pub fn born(&self) -> Instant {
        self.born
    }

    /// Whether all its processes have been ready once.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Why a process does not start. `None` while it may still do so.
    pub fn failure(&self) -> Option<&str> {
        self.processes.iter().find_map(HttpProcess::failure)
    }

    /// How many processes there should be.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// How many of its processes are ready, and how many are being started.
    pub fn process_counts(&self) -> (usize, usize) {
        let ready = self.processes.iter().filter(|process| process.is_ready()).count();
        let ended = self.processes.iter().filter(|process| process.is_ended()).count();
        let leaving = self.processes.iter().filter(|process| process.is_leaving()).count();
        (ready + leaving, self.processes.len() - ready - leaving - ended)
    }

    /// A report of each process. All of them are leaving if the generation drains.
    pub fn process_reports(&mut self, drains: bool, now: Instant) -> Vec<ProcessReport> {
        let pids: Vec<_> = self.processes.iter().filter_map(HttpProcess::pid).map(Pid::as_raw_pid).collect();
        self.cpu_shares.retain(|pid| pids.contains(&pid));
        let (processes, shares) = (&self.processes, &mut self.cpu_shares);
        let report = |process: &HttpProcess| {
            let state = match (drains || process.is_leaving(), process.is_ready()) {
                (true, _) => ReportedState::Leaving,
                (false, true) => ReportedState::Ready,
                (false, false) => ReportedState::Starting,
            };
            let pid = process.pid()?.as_raw_pid();
            let process = process.process();
            let cpu_time = process.and_then(Process::cpu_times).map(|times| times.ran);
            Some(ProcessReport {
                pid: Some(pid),
                state,
                method: None,
                url: None,
                script: None,
                running_for: None,
                cpu_share: cpu_time.map(|cpu| shares.share(pid, cpu, now)),
                cpu_time,
                private_bytes: process.and_then(Process::private_bytes),
                requests: None,
            })
        };
        processes.iter().filter_map(report).collect()
    }

    // The router

    /// The message that describes it to a router.
    pub fn for_router(&self) -> ToRouter {
        let addresses = self.processes.iter().map(|process| process.address().endpoint.to_string());
        ToRouter::AddHttpGeneration(HttpGenerationBoot {
            id: self.id,
            listening_user: self.processes.iter().find_map(|process| process.address().listening_user),
            processes: addresses.zip(self.announced.iter().copied()).collect(),
        })
    }

    /// The notices for the router, once: which processes are ready.
    pub fn take_notices(&mut self) -> Vec<ToRouter> {
        let mut notices = Vec::new();
        for (index, (process, announced)) in (0..).zip(self.processes.iter().zip(&mut self.announced)) {
            let is_ready = process.is_ready();
            if std::mem::replace(announced, is_ready) != is_ready {
                notices.push(ToRouter::HttpProcess { generation: self.id, index, is_ready });
            }
        }
        notices
    }

    // Events

    /// The result of the next check. Copies what the processes write.
    pub fn poll_probed(&mut self, cx: &mut Context<'_>) -> Poll<ProbedProcess> {
        // All are polled, because each registers for its own output.
        let mut results = self.processes.iter_mut().map(|process| process.poll(cx));
        results.find(Poll::is_ready).unwrap_or(Poll::Pending)
    }

    /// Takes the result of a check.
    pub fn on_probed(&mut self, probed: ProbedProcess, now: Instant) {
        if let Some(process) = self.processes.get_mut(usize::from(probed.index)) {
            process.on_probed(probed, &self.plan, now);
        }
        self.is_proven |= self.processes.iter().all(HttpProcess::is_proven);
    }

    /// A child of the supervisor is dead. Returns `false` if it belongs to another application.
    pub fn on_death(&mut self, dead: Pid, end: ProcessEnd, now: Instant) -> bool {
        let (plan, is_proven) = (&self.plan, self.is_proven);
        self.processes.iter_mut().any(|process| process.on_death(dead, end, plan, is_proven, now))
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.processes.iter().filter_map(HttpProcess::next_deadline).min()
    }

    /// Starts, checks and kills processes.
    pub fn on_time(&mut self, now: Instant) {
        for process in &mut self.processes {
            process.on_time(&self.plan, self.is_proven, now);
        }
    }

    // Its end

    /// Asks all processes to exit. The router has released the generation, so no client waits.
    pub fn stop(&mut self, now: Instant) {
        self.processes.iter_mut().for_each(|process| process.stop(&self.plan, now));
    }

    /// Kills all processes.
    pub fn kill(&mut self) {
        self.processes.iter_mut().for_each(HttpProcess::kill);
    }

    /// Whether no process is left.
    pub fn is_over(&self) -> bool {
        self.processes.iter().all(HttpProcess::is_ended)
    }
}
