//! A generation of an application that is another program: processes that howdah starts and checks, and to which the
//! router sends requests.
//!
//! The generation is proven when all its processes were ready. The router gets the way to each process, and which
//! processes are ready. The processes of a generation that nothing uses any more are asked to exit: the router has
//! finished its requests before.
//!
//! - [`process`]: a process: its start, its checks, its death and its end
//! - `interface`: how a process gets requests: of an HTTP server, in `http`, or of a worker of RoadRunner, in
//!   `roadrunner`
//! - `memory_watch`: `limits/memory`; `age_watch`: `ttl`

mod age_watch;
mod http;
mod interface;
mod memory_watch;
pub mod process;
mod roadrunner;

use crate::generation::process_report::{CpuShares, ProcessReport, ReportedState};
use crate::generation::tally::{Death, ProcessTally};
use crate::os::files::upload_folder::UploadFolder;
use crate::os::identity::UserAccount;
use crate::os::processes::process::Process;
use crate::plan::php::application::Release;
use crate::plan::program::{InterfacePlan, ProgramPlan};
use age_watch::AgeWatch;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::router::{
    HttpGenerationBoot, ReleaseReason, RoadRunnerGenerationBoot, RoadRunnerWorker, ToRouter,
};
use howdah_protocol::test_time::divided;
use http::addresses;
use interface::ProcessInterface;
use process::{CheckedProcess, ProgramProcess};
use roadrunner::relay;
use rustix::process::Pid;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Instant;

/// A running program.
#[derive(Debug)]
pub struct ProgramGeneration {
    id: u64,
    plan: ProgramPlan,
    born: Instant,
    processes: Vec<ProgramProcess>,
    /// Whether all processes have been ready once.
    is_proven: bool,
    /// The start of each process that was ready at the last notice to the router.
    announced: Vec<Option<u32>>,
    /// The workers of RoadRunner that reach their age.
    ages: Option<AgeWatch>,
    /// The folder for uploaded files of a RoadRunner application.
    upload_folder: Option<UploadFolder>,
    cpu_shares: CpuShares,
    /// The end of the time that its responses have since another generation serves the application.
    drained_at: Option<Instant>,
    /// The numbers of the processes, without their starts.
    tally: ProcessTally,
}

/// The state of a process, without a look at /proc.
fn state(process: &ProgramProcess, drains: bool) -> ReportedState {
    match (drains || process.is_leaving(), process.is_ready()) {
        (true, _) => ReportedState::Leaving,
        (false, true) => ReportedState::Ready,
        (false, false) => ReportedState::Starting,
    }
}

// === impl ProgramGeneration ===

impl ProgramGeneration {
    /// Prepares the interfaces. Nothing runs yet.
    ///
    /// # Errors
    /// When a folder or a socket cannot be made.
    pub fn new(id: u64, plan: ProgramPlan, now: Instant) -> io::Result<ProgramGeneration> {
        let mut upload_folder = None;
        let interfaces: Vec<_> = match plan.interface {
            InterfacePlan::Http { address, router_group, .. } => {
                let addresses = addresses::choose(id, &plan, address, router_group)?;
                addresses.into_iter().map(ProcessInterface::Http).collect()
            }
            InterfacePlan::RoadRunner { router, relay, .. } => {
                upload_folder = Some(UploadFolder::create(id, plan.account.ids, router)?);
                let relays = relay::choose(id, &plan, relay)?;
                relays.into_iter().map(ProcessInterface::RoadRunner).collect()
            }
        };
        let interfaces = (0..).zip(interfaces);
        let processes: Vec<_> =
            interfaces.map(|(index, interface)| ProgramProcess::new(index, interface, now)).collect();
        Ok(ProgramGeneration {
            id,
            announced: vec![None; processes.len()],
            ages: plan.ttl().map(|ttl| AgeWatch::new(ttl, now)),
            upload_folder,
            plan,
            born: now,
            processes,
            is_proven: false,
            cpu_shares: CpuShares::default(),
            drained_at: None,
            tally: ProcessTally::default(),
        })
    }

    // Properties

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The kind of its processes, for people.
    pub fn kind(&self) -> &'static str {
        match self.plan.interface {
            InterfacePlan::Http { .. } => "HTTP server",
            InterfacePlan::RoadRunner { .. } => "RoadRunner worker",
        }
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

    /// Whether one of its processes is ready.
    pub fn is_usable(&self) -> bool {
        self.processes.iter().any(ProgramProcess::is_ready)
    }

    /// Takes it as proven with the processes that it has.
    pub fn go_on(&mut self) {
        self.is_proven = true;
    }

    /// Why a process does not start. `None` while it may still do so.
    pub fn failure(&self) -> Option<&str> {
        self.processes.iter().find_map(ProgramProcess::failure)
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
        let pids: Vec<_> = self.processes.iter().filter_map(ProgramProcess::pid).map(Pid::as_raw_pid).collect();
        self.cpu_shares.retain(|pid| pids.contains(&pid));
        let (processes, shares) = (&self.processes, &mut self.cpu_shares);
        let report = |process: &ProgramProcess| {
            let state = state(process, drains);
            let pid = process.pid()?.as_raw_pid();
            let process = process.process();
            let cpu_time = process.and_then(Process::cpu_times).map(|times| times.ran);
            Some(ProcessReport {
                running: None,
                pid: Some(pid),
                state,
                method: None,
                url: None,
                script: None,
                worker_script: None,
                running_for: None,
                cpu_share: cpu_time.map(|cpu| shares.share(pid, cpu, now)),
                cpu_time,
                private_bytes: process.and_then(Process::private_bytes),
                requests: None,
            })
        };
        processes.iter().filter_map(report).collect()
    }

    /// The state of each process. All of them are leaving if the generation drains.
    pub fn process_states(&self, drains: bool) -> Vec<ReportedState> {
        let running = self.processes.iter().filter(|process| process.pid().is_some());
        running.map(|process| state(process, drains)).collect()
    }

    /// How much memory its processes have for themselves, in bytes.
    pub fn private_bytes(&self) -> u64 {
        self.processes.iter().filter_map(|process| process.process()?.private_bytes()).sum()
    }

    /// The numbers of its processes.
    pub fn tally(&self) -> ProcessTally {
        let starts = self.processes.iter().map(|process| u64::from(process.starts())).sum();
        ProcessTally { starts, ..self.tally }
    }

    // The router

    /// The messages that describe it to a router, with their descriptors.
    ///
    /// # Errors
    /// When there is no descriptor for them.
    pub fn for_router(&self) -> io::Result<Vec<(ToRouter, Vec<OwnedFd>)>> {
        let announced = || self.processes.iter().zip(&self.announced);
        let mut messages = Vec::new();
        if let (Some(limits), Some(folder)) = (self.plan.limits(), &self.upload_folder) {
            let boot = RoadRunnerGenerationBoot {
                id: self.id,
                application: self.plan.name.clone(),
                processes: self.plan.processes,
                timeout_ms: limits.timeout.map(|timeout| timeout.as_millis() as u64),
                queue_timeout_ms: limits.queue_timeout.as_millis() as u64,
                requests: limits.requests,
                idle_ttl_ms: self.plan.idle_ttl().map(|ttl| ttl.as_millis() as u64),
                upload_folder: folder.path().to_owned(),
            };
            messages.push((ToRouter::AddRoadRunnerGeneration(boot), Vec::new()));
        } else {
            let endpoint = |process: &ProgramProcess| match process.interface() {
                ProcessInterface::Http(address) => Some(address.endpoint.to_string()),
                ProcessInterface::RoadRunner(_) => None,
            };
            let listening_user = |process: &ProgramProcess| match process.interface() {
                ProcessInterface::Http(address) => address.listening_user,
                ProcessInterface::RoadRunner(_) => None,
            };
            let addresses = announced().filter_map(|(process, start)| Some((endpoint(process)?, start.is_some())));
            let boot = HttpGenerationBoot {
                id: self.id,
                listening_user: self.processes.iter().find_map(listening_user),
                processes: addresses.collect(),
            };
            messages.push((ToRouter::AddHttpGeneration(boot), Vec::new()));
        }
        for (index, (process, start)) in (0..).zip(announced()) {
            if let (ProcessInterface::RoadRunner(relay), Some(start)) = (process.interface(), *start)
                && process.ready_start() == Some(start)
            {
                messages.push((self.worker_ready(RoadRunnerWorker { index, start }), relay.for_router()?));
            }
        }
        Ok(messages)
    }

    /// The notices for the router, once: which processes are ready.
    pub fn take_notices(&mut self) -> Vec<(ToRouter, Vec<OwnedFd>)> {
        let mut notices = Vec::new();
        for position in 0..self.processes.len() {
            let (index, start) = (position as u16, self.processes[position].ready_start());
            let generation = self.id;
            if let ProcessInterface::RoadRunner(relay) = self.processes[position].interface() {
                let former = self.announced[position];
                if let Some(former) = former.filter(|former| start != Some(*former)) {
                    let worker = RoadRunnerWorker { index, start: former };
                    notices.push((ToRouter::RoadRunnerWorkerGone { generation, worker }, Vec::new()));
                    self.announced[position] = None;
                }
                // Without descriptors, the next round tries again.
                if let Some(start) = start.filter(|start| former != Some(*start))
                    && let Ok(descriptors) = relay.for_router()
                {
                    notices.push((self.worker_ready(RoadRunnerWorker { index, start }), descriptors));
                    self.announced[position] = Some(start);
                }
                if self.processes[position].take_has_grown()
                    && let Some(start) = start
                {
                    let worker = RoadRunnerWorker { index, start };
                    notices.push((ToRouter::RetireRoadRunnerWorker { generation, worker }, Vec::new()));
                }
                continue;
            }
            let former = std::mem::replace(&mut self.announced[position], start);
            if former != start
                && let ProcessInterface::Http(address) = self.processes[position].interface()
            {
                let (address, is_ready) = (address.endpoint.to_string(), start.is_some());
                notices.push((ToRouter::HttpProcess { generation, index, address, is_ready }, Vec::new()));
            }
        }
        if let Some(worker) = self.ages.as_mut().and_then(AgeWatch::take_aged) {
            let generation = self.id;
            notices.push((ToRouter::RetireRoadRunnerWorker { generation, worker }, Vec::new()));
        }
        notices
    }

    fn worker_ready(&self, worker: RoadRunnerWorker) -> ToRouter {
        ToRouter::RoadRunnerWorkerReady { generation: self.id, worker }
    }

    /// The router sends a worker of RoadRunner no more requests.
    pub fn on_released(&mut self, worker: RoadRunnerWorker, reason: ReleaseReason, now: Instant) {
        let process = self.processes.get_mut(usize::from(worker.index));
        let Some(process) = process.filter(|process| process.ready_start() == Some(worker.start)) else { return };
        match reason {
            ReleaseReason::Retired => process.replace(&self.plan, now),
            ReleaseReason::OnRequest => process.replace_after_pause(&self.plan, now),
            ReleaseReason::Closed => process.on_closed(now),
            ReleaseReason::Discarded => process.discard(),
        }
    }

    /// The router is dead. Workers of RoadRunner that it knew may have a request, whose answer no other router must take
    /// for that to its own request: they are replaced.
    pub fn on_router_death(&mut self, now: Instant) {
        for (process, announced) in self.processes.iter_mut().zip(&mut self.announced) {
            if matches!(process.interface(), ProcessInterface::RoadRunner(_)) && announced.take().is_some() {
                process.replace(&self.plan, now);
            }
        }
    }

    // Events

    /// The result of the next check. Copies what the processes write.
    pub fn poll_checked(&mut self, cx: &mut Context<'_>) -> Poll<CheckedProcess> {
        // All are polled, because each registers for its own output.
        let mut results = self.processes.iter_mut().map(|process| process.poll(cx));
        results.find(Poll::is_ready).unwrap_or(Poll::Pending)
    }

    /// Takes the result of a check.
    pub fn on_checked(&mut self, checked: CheckedProcess, now: Instant) {
        if let Some(process) = self.processes.get_mut(usize::from(checked.index)) {
            process.on_checked(checked, &self.plan, now);
        }
        self.is_proven |= self.processes.iter().all(ProgramProcess::is_proven);
    }

    /// A child of the supervisor is dead. Returns `false` if it belongs to another application.
    pub fn on_death(&mut self, dead: Pid, end: ProcessEnd, now: Instant) -> bool {
        let Some(process) = self.processes.iter_mut().find(|process| process.pid() == Some(dead)) else { return false };
        self.tally.died(if process.is_leaving() { Death::InOrder } else { Death::by(end) });
        process.on_death(dead, end, &self.plan, self.is_proven, now)
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.processes
            .iter()
            .filter_map(ProgramProcess::next_deadline)
            .chain(self.drained_at)
            .chain(self.ages.as_ref().map(AgeWatch::deadline))
            .min()
    }

    /// Starts, checks and kills processes.
    pub fn on_time(&mut self, now: Instant) {
        if self.drained_at.take_if(|at| *at <= now).is_some() {
            tracing::warn!(
                "old processes of {:?} still send responses after \"drain_timeout\"; stopping them",
                self.plan.name
            );
            self.stop(now);
        }
        for process in &mut self.processes {
            process.on_time(&self.plan, self.is_proven, now);
        }
        if let Some(ages) = &mut self.ages {
            let starts = self.processes.iter().zip(&self.announced).map(|(process, announced)| {
                let is_known = process.ready_start().is_some() && process.ready_start() == *announced;
                process.ready_start().zip(process.running_since()).filter(|_| is_known)
            });
            ages.on_time(starts, now);
        }
    }

    // Its end

    /// Another generation serves its application: its responses have a limited time, if that is configured.
    pub fn on_former(&mut self, now: Instant) {
        if let Some(timeout) = self.plan.drain_timeout() {
            self.drained_at.get_or_insert(now + divided(timeout));
        }
    }

    /// Asks all processes to exit. The router has released the generation, so no client waits, or their time is over.
    pub fn stop(&mut self, now: Instant) {
        self.drained_at = None;
        self.processes.iter_mut().for_each(|process| process.stop(&self.plan, now));
    }

    /// Kills all processes.
    pub fn kill(&mut self) {
        self.processes.iter_mut().for_each(ProgramProcess::kill);
    }

    /// Whether no process is left.
    pub fn is_over(&self) -> bool {
        self.processes.iter().all(ProgramProcess::is_ended)
    }
}
