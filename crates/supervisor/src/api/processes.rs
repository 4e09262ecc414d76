//! The current activity of each worker of an application: `GET /status/applications/NAME/processes`, for `howdah top`.
//!
//! A worker's account and its request lie in memory that the worker can write, so the answer is what the workers claim,
//! and nothing is decided by it. Methods, URLs and paths come from clients: they are cut, and passed on as text that is
//! valid in JSON.

use crate::event_loop::Supervisor;
use crate::generation::Generation;
use crate::os::process::Process;
use howdah_channel::account::{Account, Current, monotonic};
use howdah_channel::request::{code, texts};
use howdah_channel::{ControlEnd, WorkerId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The share of a processor that each process used at the last request.
#[derive(Debug, Default)]
pub struct Shares {
    samples: BTreeMap<i32, CpuSample>,
}

#[derive(Clone, Copy, Debug)]
struct CpuSample {
    at: Instant,
    cpu: Duration,
    share: f64,
}

/// A request that follows sooner gets the same share again.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// Texts from clients are cut after this number of characters.
const TEXT_CHARS: usize = 2048;

// === impl Supervisor ===

impl Supervisor {
    /// The workers of an application, those of its former configurations included, while they leave.
    pub(crate) fn describe_workers(&mut self, name: &str) -> Value {
        let now = Instant::now();
        let current = self.in_force().generations.get(name).copied();
        let generations = self.generations.iter_mut().filter(|generation| generation.name() == name);
        generations.flat_map(|generation| generation.describe_workers(Some(generation.id()) != current, now)).collect()
    }
}

// === impl Generation ===

impl Generation {
    fn describe_workers(&mut self, leaves: bool, now: Instant) -> Vec<Value> {
        let workers: Vec<_> = self.workers.alive().collect();
        self.shares.retain(&workers);
        workers
            .into_iter()
            .map(|(worker, process)| {
                let leaves = leaves || self.workers.is_leaving(worker);
                let account = self.control.account(worker);
                describe(&self.control, account, process, leaves, &mut self.shares, now)
            })
            .collect()
    }
}

fn describe(
    control: &ControlEnd,
    account: Option<Account>,
    process: Option<Process>,
    leaves: bool,
    shares: &mut Shares,
    now: Instant,
) -> Value {
    let current = account.and_then(|account| account.current);
    let state = match (account.and(process), current) {
        (None, _) => "starting",
        _ if leaves => "leaving",
        (_, Some(current)) if control.is_answering(current) => "busy",
        (_, Some(_)) => "finishing",
        (_, None) => "idle",
    };
    let [method, url, script] = current.map(|current| request(control, current)).unwrap_or_default();
    // The time of the thread that runs PHP.
    let cpu = process.and_then(Process::cpu_times).map(|times| times.ran);
    json!({
        "pid": process.map(|process| process.pid.as_raw_pid()),
        "state": state,
        "method": method,
        "url": url,
        "script": script,
        "seconds": current.map(|current| rounded(monotonic().saturating_sub(current.began))),
        "cpu": process.zip(cpu).map(|(process, cpu)| shares.share(process.pid.as_raw_pid(), cpu, now)),
        "cpu_seconds": cpu.map(rounded),
        "memory": process.and_then(Process::private_bytes),
        "requests": account.map(|account| account.requests),
    })
}

/// Method, URL and script of a request.
pub fn request(control: &ControlEnd, current: Current) -> [Option<String>; 3] {
    let Some(head) = control.request_head(current) else { return Default::default() };
    texts(&head, [code::REQUEST_METHOD, code::REQUEST_URI, code::SCRIPT_FILENAME])
        .map(|text| text.map(|text| text.chars().take(TEXT_CHARS).collect()))
}

/// In seconds, to the millisecond.
fn rounded(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

// === impl Shares ===

impl Shares {
    /// The share of one processor since the last request; 0 for a process that is new.
    fn share(&mut self, pid: i32, cpu: Duration, now: Instant) -> f64 {
        let share = match self.samples.get(&pid) {
            Some(sample) if now - sample.at < MIN_INTERVAL => return sample.share,
            Some(sample) => cpu.saturating_sub(sample.cpu).as_secs_f64() / (now - sample.at).as_secs_f64(),
            None => 0.0,
        };
        let share = (share * 1000.0).round() / 1000.0;
        self.samples.insert(pid, CpuSample { at: now, cpu, share });
        share
    }

    fn retain(&mut self, workers: &[(WorkerId, Option<Process>)]) {
        let lives = |pid: i32| workers.iter().any(|(_, process)| process.is_some_and(|it| it.pid.as_raw_pid() == pid));
        self.samples.retain(|pid, _| lives(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_since_the_last_request() {
        let (mut shares, start) = (Shares::default(), Instant::now());
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
