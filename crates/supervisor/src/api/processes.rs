//! What each worker of an application does now: `GET /status/applications/NAME/processes`, for `howdah top`.
//!
//! A worker's account and its request lie in memory that it can write: what is said here is what it says. Nothing is
//! decided by it. Methods, URLs and paths are of clients; they are cut, and handed on as text that JSON can hold.

use crate::event_loop::Supervisor;
use crate::generation::Generation;
use crate::generation::gauge::schedule;
use crate::os::process::Process;
use howdah_channel::account::{Account, Current, monotonic};
use howdah_channel::request::{code, texts};
use howdah_channel::{ControlEnd, WorkerId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How much of a processor each process had when it was last looked at.
#[derive(Debug, Default)]
pub struct Shares {
    seen: BTreeMap<i32, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    cpu: Duration,
    share: f64,
}

/// Who asks again sooner hears the same.
const SHORTEST: Duration = Duration::from_millis(200);
/// How much of a text of a client's is told.
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
        self.shares.forget_all_but(&workers);
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
    // Of the thread that runs PHP.
    let cpu = process.and_then(schedule).map(|(cpu, _)| cpu);
    json!({
        "pid": process.map(|process| process.pid.as_raw_pid()),
        "state": state,
        "method": method,
        "url": url,
        "script": script,
        "seconds": current.map(|current| rounded(monotonic().saturating_sub(current.began))),
        "cpu": process.zip(cpu).map(|(process, cpu)| shares.share(process.pid.as_raw_pid(), cpu, now)),
        "cpu_seconds": cpu.map(rounded),
        "memory": process.and_then(|process| private_bytes(process.pid.as_raw_pid())),
        "requests": account.map(|account| account.requests),
    })
}

/// Method, URL and script of a request.
pub fn request(control: &ControlEnd, current: Current) -> [Option<String>; 3] {
    let Some(head) = control.request_head(current) else { return Default::default() };
    texts(&head, [code::REQUEST_METHOD, code::REQUEST_URI, code::SCRIPT_FILENAME])
        .map(|text| text.map(|text| text.chars().take(TEXT_CHARS).collect()))
}

/// What it does not share with files, opcache or the channel. What the prototype left to it, and nobody has written
/// since, counts, too.
fn private_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// In seconds, to the millisecond.
fn rounded(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

// === impl Shares ===

impl Shares {
    /// The share of one processor since the last look; 0 for who is seen for the first time.
    fn share(&mut self, pid: i32, cpu: Duration, now: Instant) -> f64 {
        let share = match self.seen.get(&pid) {
            Some(seen) if now - seen.at < SHORTEST => return seen.share,
            Some(seen) => cpu.saturating_sub(seen.cpu).as_secs_f64() / (now - seen.at).as_secs_f64(),
            None => 0.0,
        };
        let share = (share * 1000.0).round() / 1000.0;
        self.seen.insert(pid, Seen { at: now, cpu, share });
        share
    }

    fn forget_all_but(&mut self, workers: &[(WorkerId, Option<Process>)]) {
        let lives = |pid: i32| workers.iter().any(|(_, process)| process.is_some_and(|it| it.pid.as_raw_pid() == pid));
        self.seen.retain(|pid, _| lives(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_since_the_last_look() {
        let (mut shares, start) = (Shares::default(), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let cpu = Duration::from_secs_f64;
        assert_eq!(shares.share(1, cpu(5.0), at(0.0)), 0.0);
        assert_eq!(shares.share(1, cpu(5.5), at(1.0)), 0.5);
        assert_eq!(shares.share(1, cpu(9.0), at(1.1)), 0.5, "too soon");
        assert_eq!(shares.share(1, cpu(6.0), at(3.0)), 0.25);
        shares.forget_all_but(&[]);
        assert_eq!(shares.share(1, cpu(6.0), at(4.0)), 0.0);
    }

    #[test]
    fn our_own_process_has_used_memory() {
        let own = rustix::process::getpid().as_raw_pid();
        assert!(private_bytes(own).is_some_and(|bytes| bytes > 4096));
        assert_eq!(private_bytes(0), None);
    }
}
