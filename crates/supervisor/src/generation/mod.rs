//! One application with one configuration: its processes, and what the router must know of them.
//!
//! - [`php`]: of a PHP application: a prototype, its workers, and the channel that they share with the router
//! - [`program`]: of another program: its processes, which are HTTP servers or workers of RoadRunner
//! - [`fastcgi`]: of an application whose server howdah does not start: it has no processes
//! - [`generations`]: all of them
//! - [`tally`]: what is counted of the processes
//! - [`process_output`]: what a process writes; [`own_streams`]: where to, without files of the application; [`process_report`]: what the API shows of a process
//!
//! [`Generation`] is one of them. Changes, deploys, the shutdown and the status do not ask which one it is.

pub mod fastcgi;
pub mod generations;
pub mod own_streams;
pub mod php;
mod process_output;
pub mod process_report;
pub mod program;
pub mod tally;

use crate::os::identity::UserAccount;
use crate::plan::application::Plan;
use crate::plan::php::application::Release;
use fastcgi::FastCgiGeneration;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::prototype::FromPrototype;
use howdah_protocol::messages::router::{ReleaseReason, RoadRunnerWorker, ToRouter};
use php::PhpGeneration;
use process_report::{ProcessReport, ReportedState};
use program::ProgramGeneration;
use program::process::CheckedProcess;
use rustix::process::Pid;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Instant;
use tally::ProcessTally;

/// A running application.
#[derive(Debug)]
pub enum Generation {
    /// Of a PHP application.
    Php(Box<PhpGeneration>),
    /// Of an application that is another program.
    Program(Box<ProgramGeneration>),
    /// Of an application that another server runs.
    FastCgi(Box<FastCgiGeneration>),
}

/// An event of the processes of a generation.
#[derive(Debug)]
pub enum GenerationEvent {
    /// A message of the prototype; `None` when it has closed its socket.
    Prototype(Option<FromPrototype>),
    /// The result of a check of a process of another program.
    Checked(CheckedProcess),
}

macro_rules! with_generation {
    ($self:expr, $generation:ident => $result:expr) => {
        match $self {
            Generation::Php($generation) => $result,
            Generation::Program($generation) => $result,
            Generation::FastCgi($generation) => $result,
        }
    };
}

// === impl Generation ===

impl Generation {
    /// Prepares a generation. Nothing runs yet.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn new(id: u64, plan: Plan, router_threads: u16, now: Instant) -> io::Result<Generation> {
        Ok(match plan {
            Plan::Php(plan) => Generation::Php(Box::new(PhpGeneration::new(id, *plan, router_threads, now)?)),
            Plan::Program(plan) => Generation::Program(Box::new(ProgramGeneration::new(id, *plan, now)?)),
            Plan::FastCgi(plan) => Generation::FastCgi(Box::new(FastCgiGeneration::new(id, *plan, now))),
        })
    }

    /// The generation of a PHP application; `None` if it is of another type.
    pub fn as_php(&self) -> Option<&PhpGeneration> {
        match self {
            Generation::Php(generation) => Some(generation),
            Generation::Program(_) | Generation::FastCgi(_) => None,
        }
    }

    /// The generation of a PHP application; `None` if it is of another type.
    pub fn as_php_mut(&mut self) -> Option<&mut PhpGeneration> {
        match self {
            Generation::Php(generation) => Some(generation),
            Generation::Program(_) | Generation::FastCgi(_) => None,
        }
    }

    /// The generation of a FastCGI application; `None` if it is of another type.
    pub fn as_fastcgi(&self) -> Option<&FastCgiGeneration> {
        match self {
            Generation::FastCgi(generation) => Some(generation),
            Generation::Php(_) | Generation::Program(_) => None,
        }
    }

    // Properties

    /// The kind of its processes, for people; `None` for PHP.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Generation::Php(_) => None,
            Generation::Program(generation) => Some(generation.kind()),
            Generation::FastCgi(generation) => Some(generation.kind()),
        }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        with_generation!(self, generation => generation.id())
    }

    /// Its application's name.
    pub fn name(&self) -> &str {
        with_generation!(self, generation => generation.name())
    }

    /// The user as which it runs.
    pub fn account(&self) -> &UserAccount {
        with_generation!(self, generation => generation.account())
    }

    /// Which release it runs.
    pub fn release(&self) -> &Release {
        with_generation!(self, generation => generation.release())
    }

    /// When it was made. It has read all files that were written before.
    pub fn born(&self) -> Instant {
        with_generation!(self, generation => generation.born())
    }

    /// Whether it works: all its processes have been ready once.
    pub fn is_proven(&self) -> bool {
        with_generation!(self, generation => generation.is_proven())
    }

    /// Whether some of its processes are ready.
    pub fn is_usable(&self) -> bool {
        with_generation!(self, generation => generation.is_usable())
    }

    /// Takes it as proven with the processes that it has.
    pub fn go_on(&mut self) {
        with_generation!(self, generation => generation.go_on());
    }

    /// Why it does not start. `None` while it may still do so.
    pub fn failure(&self) -> Option<&str> {
        with_generation!(self, generation => generation.failure())
    }

    /// How many processes there should be.
    pub fn processes(&self) -> usize {
        with_generation!(self, generation => generation.processes())
    }

    /// How many of its processes run, and how many are being started.
    pub fn process_counts(&self) -> (usize, usize) {
        with_generation!(self, generation => generation.process_counts())
    }

    /// A report of each process. All of them are leaving if the generation drains.
    pub fn process_reports(&mut self, drains: bool, now: Instant) -> Vec<ProcessReport> {
        with_generation!(self, generation => generation.process_reports(drains, now))
    }

    /// The state of each process with its worker script, if there are several, without a look at /proc. All of them are
    /// leaving if the generation drains.
    pub fn process_states(&self, drains: bool) -> Vec<(Option<&str>, ReportedState)> {
        let without_script = |states: Vec<ReportedState>| states.into_iter().map(|state| (None, state)).collect();
        match self {
            Generation::Php(generation) => generation.process_states(drains),
            Generation::Program(generation) => without_script(generation.process_states(drains)),
            Generation::FastCgi(generation) => without_script(generation.process_states(drains)),
        }
    }

    /// How much memory its processes have for themselves, in bytes.
    pub fn private_bytes(&self) -> u64 {
        with_generation!(self, generation => generation.private_bytes())
    }

    /// The numbers of its processes.
    pub fn tally(&self) -> ProcessTally {
        with_generation!(self, generation => generation.tally())
    }

    // The router

    /// The messages that describe it to a router, with their descriptors.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for them.
    pub fn for_router(&self) -> io::Result<Vec<(ToRouter, Vec<OwnedFd>)>> {
        match self {
            Generation::Php(generation) => generation.for_router(),
            Generation::Program(generation) => generation.for_router(),
            Generation::FastCgi(generation) => Ok(generation.for_router()),
        }
    }

    /// The notices for the router, once, with their descriptors.
    pub fn take_notices(&mut self) -> Vec<(ToRouter, Vec<OwnedFd>)> {
        match self {
            Generation::Php(generation) => {
                generation.take_notices().into_iter().map(|notice| (notice, Vec::new())).collect()
            }
            Generation::Program(generation) => generation.take_notices(),
            Generation::FastCgi(_) => Vec::new(),
        }
    }

    /// The router sends a worker of RoadRunner no more requests.
    pub fn on_released_worker(&mut self, worker: RoadRunnerWorker, reason: ReleaseReason, now: Instant) {
        if let Generation::Program(generation) = self {
            generation.on_released(worker, reason, now);
        }
    }

    /// The router is dead, and another one will be started.
    pub fn on_router_death(&mut self, now: Instant) {
        if let Generation::Program(generation) = self {
            generation.on_router_death(now);
        }
    }

    /// Another generation serves its application.
    pub fn on_former(&mut self, now: Instant) {
        match self {
            Generation::Php(generation) => generation.on_former(now),
            Generation::Program(generation) => generation.on_former(now),
            Generation::FastCgi(_) => {}
        }
    }

    // Events

    /// The next event of its processes. Passes on what they write.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<GenerationEvent> {
        match self {
            Generation::Php(generation) => generation.poll_receive(cx).map(GenerationEvent::Prototype),
            Generation::Program(generation) => generation.poll_checked(cx).map(GenerationEvent::Checked),
            Generation::FastCgi(_) => Poll::Pending,
        }
    }

    /// Handles an event of its processes.
    pub fn on_event(&mut self, event: GenerationEvent, now: Instant) {
        match (self, event) {
            (Generation::Php(generation), GenerationEvent::Prototype(Some(message))) => {
                generation.on_message(message, now);
            }
            (Generation::Php(generation), GenerationEvent::Prototype(None)) => generation.on_close(now),
            (Generation::Program(generation), GenerationEvent::Checked(checked)) => generation.on_checked(checked, now),
            (Generation::Php(_), GenerationEvent::Checked(_))
            | (Generation::Program(_), GenerationEvent::Prototype(_))
            | (Generation::FastCgi(_), _) => {}
        }
    }

    /// A child of the supervisor is dead. Returns `false` if it belongs to another application.
    pub fn on_death(&mut self, dead: Pid, end: ProcessEnd, now: Instant) -> bool {
        with_generation!(self, generation => generation.on_death(dead, end, now))
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        with_generation!(self, generation => generation.next_deadline())
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: Instant) {
        with_generation!(self, generation => generation.on_time(now));
    }

    // Its end

    /// Asks all processes to finish what they do and exit. The router has released the generation, so no client waits.
    pub fn stop(&mut self, now: Instant) {
        with_generation!(self, generation => generation.stop(now));
    }

    /// Kills all processes.
    pub fn kill(&mut self) {
        with_generation!(self, generation => generation.kill());
    }

    /// Whether no process is left.
    pub fn is_over(&self) -> bool {
        with_generation!(self, generation => generation.is_over())
    }
}
