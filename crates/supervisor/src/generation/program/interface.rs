//! How a process gets requests: what it needs at its start, how it shows that it is ready, and how it is asked to exit.
//! Only this file and the folders below distinguish the types of applications.

use crate::generation::program::http::addresses::ProcessAddress;
use crate::generation::program::http::probe::Probe;
use crate::generation::program::roadrunner::handshake::{Handshake, HandshakeFailure};
use crate::generation::program::roadrunner::relay::WorkerRelay;
use crate::os::processes::reap;
use crate::plan::program::ProgramPlan;
use howdah_config::AddressVariable;
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How a process gets requests.
#[derive(Debug)]
pub enum ProcessInterface {
    /// It listens at an address.
    Http(ProcessAddress),
    /// It is a worker of RoadRunner.
    RoadRunner(WorkerRelay),
}

/// A check in progress. Dropping it ends it.
#[derive(Debug)]
pub enum ProcessCheck {
    /// Of an HTTP server.
    Http(Probe),
    /// Of a worker of RoadRunner.
    RoadRunner(Handshake),
}

/// Why a check failed, as a phrase.
#[derive(Debug)]
pub enum CheckFailure {
    /// Another check may pass.
    NotYet(String),
    /// The process is about to exit, or is useless.
    Silent(String),
    /// The process must be killed.
    Final(String),
}

/// The time between two checks of an HTTP server that starts.
const BOOT_INTERVAL: Duration = Duration::from_millis(20);

// === impl ProcessInterface ===

impl ProcessInterface {
    /// Removes what a dead process left.
    pub fn clear(&mut self) {
        match self {
            ProcessInterface::Http(address) => address.clear(),
            ProcessInterface::RoadRunner(relay) => relay.close(),
        }
    }

    /// The same before a process with this name in messages starts, whose address must be free.
    ///
    /// # Errors
    /// When there is no free address.
    pub fn prepare(&mut self, process: &str) -> io::Result<()> {
        match self {
            ProcessInterface::Http(address) => address.prepare(process),
            ProcessInterface::RoadRunner(relay) => {
                relay.close();
                Ok(())
            }
        }
    }

    /// Prepares it for a process that starts. Returns the standard input and output of the process; `None` if they carry
    /// no requests.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn open(&mut self) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
        match self {
            ProcessInterface::Http(_) => Ok(None),
            ProcessInterface::RoadRunner(relay) => relay.open(),
        }
    }

    /// A socket that the process gets from us.
    pub fn socket(&self) -> Option<&OwnedFd> {
        match self {
            ProcessInterface::Http(address) => address.socket.as_ref(),
            ProcessInterface::RoadRunner(_) => None,
        }
    }

    /// The value of a variable in the command.
    pub fn value(&self, variable: AddressVariable) -> String {
        match self {
            ProcessInterface::Http(address) => address.value(variable),
            ProcessInterface::RoadRunner(_) => String::new(),
        }
    }

    /// The variables of its environment.
    pub fn variables(&self) -> BTreeMap<String, String> {
        match self {
            ProcessInterface::Http(address) => address.variables(),
            ProcessInterface::RoadRunner(relay) => {
                [("RR_MODE".to_owned(), "http".to_owned()), ("RR_RELAY".to_owned(), relay.address())].into()
            }
        }
    }

    /// The end of a sentence about a process that is not ready.
    pub fn location(&self) -> String {
        match self {
            ProcessInterface::Http(address) => format!(" at {}", address.endpoint),
            ProcessInterface::RoadRunner(_) => String::new(),
        }
    }

    /// The output of a process that died before it was ready, as the end of a sentence; `check` was in progress.
    pub fn last_output(&self, check: Option<&ProcessCheck>) -> String {
        let ProcessInterface::RoadRunner(relay) = self else { return String::new() };
        let beginning = match check {
            Some(ProcessCheck::RoadRunner(handshake)) => handshake.text(),
            _ => None,
        };
        let text = relay.last_text(beginning);
        text.map(|text| format!("; it wrote {text} to its standard output")).unwrap_or_default()
    }

    /// Why a process is not ready while no check has failed.
    pub fn silence(&self) -> Option<String> {
        match self {
            ProcessInterface::Http(_) => None,
            ProcessInterface::RoadRunner(relay) => relay.silence(),
        }
    }

    /// The name of what carries its requests, for a log line.
    pub fn medium(&self) -> &'static str {
        match self {
            ProcessInterface::Http(_) => "connections",
            ProcessInterface::RoadRunner(relay) => relay.name(),
        }
    }

    /// Begins a check of this process.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn begin_check(&mut self, pid: Pid, plan: &ProgramPlan) -> io::Result<ProcessCheck> {
        match self {
            ProcessInterface::Http(address) => {
                address.open_to_router();
                let check = plan.health_check().cloned();
                Ok(ProcessCheck::Http(Probe::begin(address.endpoint.clone(), address.listening_user, check)))
            }
            ProcessInterface::RoadRunner(relay) => relay.begin_handshake(pid).map(ProcessCheck::RoadRunner),
        }
    }

    /// The time from a start, or from a failed check while the process starts, to the next check; `None`: no check follows.
    pub fn boot_interval(&self, is_first: bool) -> Option<Duration> {
        match self {
            ProcessInterface::Http(_) => Some(BOOT_INTERVAL),
            // It answers when it has booted.
            ProcessInterface::RoadRunner(_) => is_first.then_some(Duration::ZERO),
        }
    }

    /// Asks the process to exit.
    pub fn request_exit(&self, pid: Pid) {
        match self {
            ProcessInterface::Http(_) => reap::terminate_group(pid),
            // SIGTERM would end PHP within its request.
            ProcessInterface::RoadRunner(relay) => relay.order_exit(),
        }
    }

    /// The name of that request, for a log line.
    pub fn exit_request(&self) -> &'static str {
        match self {
            ProcessInterface::Http(_) => "SIGTERM",
            ProcessInterface::RoadRunner(_) => "the order to stop",
        }
    }
}

// === impl ProcessCheck ===

impl ProcessCheck {
    /// Its result, once.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CheckFailure>> {
        Poll::Ready(match self {
            ProcessCheck::Http(probe) => ready!(probe.poll(cx)).map_err(CheckFailure::NotYet),
            ProcessCheck::RoadRunner(handshake) => ready!(handshake.poll(cx)).map_err(|failure| match failure {
                HandshakeFailure::Closed(problem) => CheckFailure::Silent(problem),
                HandshakeFailure::Wrong(problem) => CheckFailure::Final(problem),
            }),
        })
    }
}
