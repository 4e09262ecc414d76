//! Processes of an application that a signal has stopped: a warning about each.
//!
//! Their user may stop them for a purpose, so they are left alone, unlike the router. A worker that is stopped holds
//! its request, and neither its client nor the application's log shows the reason. Stops of less than [`CONFIRM`] are
//! normal, as when a shell or a debugger starts.

use crate::os::processes::process::Process;
use crate::policy::pace::heartbeat;
use rustix::process::Pid;
use std::time::{Duration, Instant};

/// The processes that were found stopped.
#[derive(Debug)]
pub struct StoppedProcesses {
    /// When to look for them again.
    look_at: Instant,
    /// Found at the last look.
    found: Vec<Process>,
    /// Found at two looks: they were reported.
    reported: Vec<Process>,
}

/// A process that is still stopped after this time is reported.
const CONFIRM: Duration = Duration::from_secs(1);

// === impl StoppedProcesses ===

impl StoppedProcesses {
    /// None are known.
    pub fn new(now: Instant) -> StoppedProcesses {
        StoppedProcesses { look_at: now + heartbeat::interval(), found: Vec::new(), reported: Vec::new() }
    }

    /// When [`Self::on_time`] has something to do.
    pub fn deadline(&self) -> Instant {
        self.look_at
    }

    /// Logs those of the prototype and the workers that a signal has stopped, if it is time to look at them.
    pub fn on_time(
        &mut self,
        prototype: Option<Pid>,
        workers: impl IntoIterator<Item = Process>,
        application: &str,
        now: Instant,
    ) {
        if self.look_at > now {
            return;
        }
        let prototype = prototype.and_then(Process::find);
        let all = prototype.into_iter().chain(workers);
        for process in self.look(all.filter(|process| process.is_stopped_by_signal()).collect(), now) {
            warn_of(process, prototype == Some(process), application);
        }
    }

    /// Takes the processes that are stopped now. Returns those that are to be reported: each is returned once.
    fn look(&mut self, stopped: Vec<Process>, now: Instant) -> Vec<Process> {
        self.reported.retain(|process| stopped.contains(process));
        let unreported = stopped.iter().copied().filter(|process| !self.reported.contains(process));
        let (confirmed, fresh): (Vec<_>, Vec<_>) = unreported.partition(|process| self.found.contains(process));
        self.reported.extend(&confirmed);
        self.look_at = now + if fresh.is_empty() { heartbeat::interval() } else { CONFIRM };
        self.found = stopped;
        confirmed
    }
}

/// Logs that a signal has stopped this process of an application.
fn warn_of(process: Process, is_prototype: bool, application: &str) {
    let (kind, effect) = match is_prototype {
        true => ("prototype", "no worker can be started"),
        false => ("worker", "its request waits"),
    };
    let pid = process.pid.as_raw_pid();
    tracing::warn!(
        "the {kind} of {application:?} (pid {pid}) is stopped by a signal, and {effect}: kill -CONT {pid} continues it"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;

    #[test]
    fn a_process_that_stays_stopped_is_reported_once() {
        let now = Instant::now();
        let process = |pid| Process { pid: Pid::from_raw(pid).unwrap(), started: 1 };
        let (first, second) = (process(1), process(2));
        let mut processes = StoppedProcesses::new(now);
        assert_eq!(processes.look(vec![first], now), []);
        assert_eq!(processes.deadline(), now + CONFIRM);
        assert_eq!(processes.look(vec![], now), [], "it has continued");
        assert_eq!(processes.deadline(), now + heartbeat::interval());
        assert_eq!(processes.look(vec![first], now), []);
        assert_eq!(processes.look(vec![first, second], now), [first]);
        assert_eq!(processes.look(vec![first, second], now), [second]);
        assert_eq!(processes.look(vec![first, second], now), []);
        assert_eq!(processes.look(vec![second], now), []);
        assert_eq!(processes.look(vec![first], now), []);
        assert_eq!(processes.look(vec![first], now), [first], "it is stopped again");
    }
}
