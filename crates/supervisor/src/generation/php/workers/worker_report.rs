//! A report of what each worker does, for the status.
//!
//! A worker's account and its request lie in memory that the worker can write, so they may be wrong. Nothing is decided
//! by them. Methods, URLs and paths come from clients; they are cut.

use crate::generation::process_report::{CpuShares, ProcessReport, ReportedState};
use crate::os::processes::process::Process;
use howdah_channel::account::{Account, Current, monotonic};
use howdah_channel::request::{code, texts};
use howdah_channel::{ControlEnd, WorkerId};
use std::time::Instant;

/// How many characters of a client's text are reported.
const MAX_CHARS: usize = 2048;

/// The state of a worker.
pub fn state(control: &ControlEnd, worker: WorkerId, process: Option<Process>, is_leaving: bool) -> ReportedState {
    let account = control.account(worker);
    match (account.and(process), account.and_then(|account| account.current)) {
        (None, _) => ReportedState::Starting,
        _ if is_leaving => ReportedState::Leaving,
        (_, Some(current)) if control.is_answering(current) => ReportedState::Busy,
        (_, Some(_)) => ReportedState::Finishing,
        (_, None) => ReportedState::Idle,
    }
}

/// The report of a worker, with its process as far as it is known.
pub fn of(
    control: &ControlEnd,
    worker: WorkerId,
    process: Option<Process>,
    is_leaving: bool,
    shares: &mut CpuShares,
    now: Instant,
) -> ProcessReport {
    let account: Option<Account> = control.account(worker);
    let current = account.and_then(|account| account.current);
    let state = state(control, worker, process, is_leaving);
    let [method, url, script] = current.map(|current| request_texts(control, current)).unwrap_or_default();
    let pid = process.map(|process| process.pid.as_raw_pid());
    // Of the thread that runs PHP.
    let cpu_time = process.and_then(Process::cpu_times).map(|times| times.ran);
    ProcessReport {
        pid,
        state,
        running: account.map(|account| account.running),
        method,
        url,
        script,
        worker_script: None,
        running_for: current.map(|current| monotonic().saturating_sub(current.began)),
        cpu_share: pid.zip(cpu_time).map(|(pid, cpu)| shares.share(pid, cpu, now)),
        cpu_time,
        private_bytes: process.and_then(Process::private_bytes),
        requests: account.map(|account| account.requests),
    }
}

/// Method, URL and script of a request.
pub fn request_texts(control: &ControlEnd, current: Current) -> [Option<String>; 3] {
    let Some(head) = control.request_head(current) else { return Default::default() };
    texts(&head, [code::REQUEST_METHOD, code::REQUEST_URI, code::SCRIPT_FILENAME])
        .map(|text| text.map(|text| text.chars().take(MAX_CHARS).collect()))
}
