//! A report of what each worker does, for the status.
//!
//! A worker's account and its request lie in memory that the worker can write, so they may be wrong. Nothing is decided
//! by them. Methods, URLs and paths come from clients; they are cut.

use crate::os::processes::process::Process;
use howdah_channel::account::{Account, Current, monotonic};
use howdah_channel::request::{code, texts};
use howdah_channel::{ControlEnd, WorkerId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A worker at this moment.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// Its process id, once that is known.
    pub pid: Option<i32>,
    /// Its state.
    pub state: ReportedState,
    /// The method of its request.
    pub method: Option<String>,
    /// The URL of its request.
    pub url: Option<String>,
    /// The script that runs.
    pub script: Option<String>,
    /// How long its request has run.
    pub running_for: Option<Duration>,
    /// Which share of one processor it used since the last report.
    pub cpu_share: Option<f64>,
    /// How much processor time it has used in its life.
    pub cpu_time: Option<Duration>,
    /// How much memory it has for itself, in bytes.
    pub private_bytes: Option<u64>,
    /// How many requests it has answered.
    pub requests: Option<u64>,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedState {
    /// It has not reported yet.
    Starting,
    /// It exits when it has nothing more to do.
    Leaving,
    /// It runs a request.
    Busy,
    /// It has answered its request, whose script goes on.
    Finishing,
    /// It waits for a request.
    Idle,
}

/// How much of a processor each process used when it was last reported.
#[derive(Debug, Default)]
pub struct CpuShares {
    last: BTreeMap<i32, LastShare>,
}

#[derive(Clone, Copy, Debug)]
struct LastShare {
    at: Instant,
    cpu: Duration,
    share: f64,
}

/// A share is not computed again before this time.
const SHORTEST: Duration = Duration::from_millis(200);
/// How many characters of a client's text are reported.
const MAX_CHARS: usize = 2048;

// === impl WorkerReport ===

impl WorkerReport {
    /// Of a worker, with its process as far as it is known.
    pub fn new(
        control: &ControlEnd,
        worker: WorkerId,
        process: Option<Process>,
        is_leaving: bool,
        shares: &mut CpuShares,
        now: Instant,
    ) -> WorkerReport {
        let account: Option<Account> = control.account(worker);
        let current = account.and_then(|account| account.current);
        let state = match (account.and(process), current) {
            (None, _) => ReportedState::Starting,
            _ if is_leaving => ReportedState::Leaving,
            (_, Some(current)) if control.is_answering(current) => ReportedState::Busy,
            (_, Some(_)) => ReportedState::Finishing,
            (_, None) => ReportedState::Idle,
        };
        let [method, url, script] = current.map(|current| request_texts(control, current)).unwrap_or_default();
        let pid = process.map(|process| process.pid.as_raw_pid());
        // Of the thread that runs PHP.
        let cpu_time = process.and_then(Process::cpu_times).map(|times| times.ran);
        WorkerReport {
            pid,
            state,
            method,
            url,
            script,
            running_for: current.map(|current| monotonic().saturating_sub(current.began)),
            cpu_share: pid.zip(cpu_time).map(|(pid, cpu)| shares.share(pid, cpu, now)),
            cpu_time,
            private_bytes: process.and_then(Process::private_bytes),
            requests: account.map(|account| account.requests),
        }
    }
}

// === impl ReportedState ===

impl ReportedState {
    /// Its name in the status.
    pub fn name(self) -> &'static str {
        match self {
            ReportedState::Starting => "starting",
            ReportedState::Leaving => "leaving",
            ReportedState::Busy => "busy",
            ReportedState::Finishing => "finishing",
            ReportedState::Idle => "idle",
        }
    }
}

/// Method, URL and script of a request.
pub fn request_texts(control: &ControlEnd, current: Current) -> [Option<String>; 3] {
    let Some(head) = control.request_head(current) else { return Default::default() };
    texts(&head, [code::REQUEST_METHOD, code::REQUEST_URI, code::SCRIPT_FILENAME])
        .map(|text| text.map(|text| text.chars().take(MAX_CHARS).collect()))
}

// === impl CpuShares ===

impl CpuShares {
    /// The share of one processor since the last report; 0 for a process in its first report.
    fn share(&mut self, pid: i32, cpu: Duration, now: Instant) -> f64 {
        let share = match self.last.get(&pid) {
            Some(last) if now - last.at < SHORTEST => return last.share,
            Some(last) => cpu.saturating_sub(last.cpu).as_secs_f64() / (now - last.at).as_secs_f64(),
            None => 0.0,
        };
        let share = (share * 1000.0).round() / 1000.0;
        self.last.insert(pid, LastShare { at: now, cpu, share });
        share
    }

    /// Forgets processes that are none of these workers.
    pub fn retain(&mut self, workers: &[(WorkerId, Option<Process>)]) {
        let lives = |pid: i32| workers.iter().any(|(_, process)| process.is_some_and(|it| it.pid.as_raw_pid() == pid));
        self.last.retain(|pid, _| lives(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_since_the_last_report() {
        let (mut shares, start) = (CpuShares::default(), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let cpu = Duration::from_secs_f64;
        assert_eq!(shares.share(1, cpu(5.0), at(0.0)), 0.0);
        assert_eq!(shares.share(1, cpu(5.5), at(1.0)), 0.5);
        assert_eq!(shares.share(1, cpu(9.0), at(1.1)), 0.5, "too soon");
        assert_eq!(shares.share(1, cpu(6.0), at(3.0)), 0.25);
        shares.retain(&[]);
        assert_eq!(shares.share(1, cpu(6.0), at(4.0)), 0.0);
    }
}
