//! Measures what an application's workers use: time, processors, memory.
//!
//! How long a worker was busy is its own word (its account); what it used of the processors and of the memory is the
//! kernel's, from /proc. A worker that is gone by the time it is looked at is left out.

use crate::os::machine::Machine;
use crate::os::process::Process;
use crate::policy::sizing::{Memory, Usage};
use howdah_channel::{Account, WorkerId, account};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// A worker that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Its name.
    pub worker: WorkerId,
    /// Its process.
    pub process: Process,
    /// What it says of itself.
    pub account: Account,
}

/// What is remembered from one look to the next.
#[derive(Debug)]
pub struct Gauge {
    machine: Machine,
    /// What each worker had used in all its life when it was last looked at.
    spent: BTreeMap<u16, (WorkerId, Usage)>,
    /// When that was.
    looked: Instant,
    /// What a worker takes, in bytes, once one has been weighed that has answered something.
    worker_bytes: Option<u64>,
    /// What it takes as far as those show that have not answered enough yet.
    young_bytes: u64,
    /// When one was last weighed.
    weighed: Option<Instant>,
    /// Who is the next to be weighed, and to be looked at: places among those that there are then.
    next_weighed: usize,
    next_looked_at: usize,
}

/// Workers' use of time is looked at this far apart, at least.
const USAGE_PAUSE: Duration = Duration::from_millis(500);
/// A worker is weighed this far apart: the kernel walks through all its pages for that.
const WEIGH_PAUSE: Duration = Duration::from_secs(1);
/// No more processes than this are looked at, and the others taken to be like them.
const LOOKED_AT: usize = 32;
/// No worker takes less, in bytes: some minutes after its birth.
const LEAST_WORKER: u64 = 4 << 20;
/// What a worker is taken to need before one has been weighed, in bytes.
const UNKNOWN_WORKER: u64 = 32 << 20;
/// After so many requests a worker has about the memory that it will have.
const GROWN_UP: u64 = 3;
/// So much of the memory is left to others, but no more than so many bytes.
const RESERVE: f64 = 0.1;
const MOST_RESERVE: i64 = 512 << 20;
/// A worker that was heavy once counts for less and less.
const FORGET: f64 = 0.99;

// === impl Gauge ===

impl Gauge {
    /// Nothing has been measured yet.
    pub fn new(machine: Machine, now: Instant) -> Gauge {
        let spent = BTreeMap::new();
        Gauge {
            machine,
            spent,
            looked: now,
            worker_bytes: None,
            young_bytes: UNKNOWN_WORKER,
            weighed: None,
            next_weighed: 0,
            next_looked_at: 0,
        }
    }

    /// How many processors there are.
    pub fn cores(&self) -> f64 {
        self.machine.cores()
    }

    /// How many of these processes use a processor or wait for one.
    pub fn runnable(&mut self, busy: &[Process]) -> f64 {
        let looked_at = busy.len().min(LOOKED_AT);
        if looked_at == 0 {
            return 0.0;
        }
        self.next_looked_at = self.next_looked_at.wrapping_add(1);
        let sample = busy.iter().cycle().skip(self.next_looked_at % busy.len()).take(looked_at);
        let runnable = sample.filter(|process| process.is_runnable()).count();
        runnable as f64 * busy.len() as f64 / looked_at as f64
    }

    /// What was used since the last time; `None` when that was a moment ago.
    pub fn usage(&mut self, workers: &[Measured], now: Instant) -> Option<Usage> {
        let within = now.saturating_duration_since(self.looked);
        if within < USAGE_PAUSE {
            return None;
        }
        self.looked = now;
        let clock = account::monotonic();
        let before = std::mem::take(&mut self.spent);
        let mut sum = Usage { within: within.as_secs_f64(), ..Usage::default() };
        for Measured { worker, process, account } in workers {
            let known = before.get(&worker.index).filter(|(known, _)| known == worker).map(|(_, usage)| *usage);
            let (cpu, delayed) = schedule(*process).unwrap_or((account.cpu, Duration::ZERO));
            let spent = Usage {
                within: 0.0,
                wall: account.busy(clock).as_secs_f64(),
                cpu: cpu.as_secs_f64(),
                delayed: delayed.as_secs_f64(),
            };
            self.spent.insert(worker.index, (*worker, spent));
            // Of a worker that is new, its birth is not counted.
            let Some(known) = known else { continue };
            sum.wall += (spent.wall - known.wall).clamp(0.0, sum.within);
            sum.cpu += (spent.cpu - known.cpu).clamp(0.0, sum.within);
            sum.delayed += (spent.delayed - known.delayed).clamp(0.0, sum.within);
        }
        Some(sum)
    }

    /// How much memory there is for more workers, of which so much is promised to others.
    pub fn memory(&mut self, workers: &[Measured], promised: u64, now: Instant) -> Option<Memory> {
        if self.weighed.is_none_or(|at| now.saturating_duration_since(at) >= WEIGH_PAUSE) {
            self.weigh(workers, now);
        }
        let memory = self.machine.memory(0)?;
        let for_more = if promised > 0 { self.machine.memory(promised)? } else { memory };
        let reserve = ((memory.total as f64 * RESERVE) as i64).min(MOST_RESERVE);
        let (room, room_for_more) = (memory.available as i64 - reserve, for_more.available as i64 - reserve);
        Some(Memory { room, room_for_more, worker: self.worker_bytes() })
    }

    /// What a worker takes, as far as that is known, in bytes.
    pub fn worker_bytes(&self) -> u64 {
        self.worker_bytes.unwrap_or(self.young_bytes)
    }

    /// Weighs one of those that have answered something. While there are none, the others say at least how heavy a worker
    /// is.
    fn weigh(&mut self, workers: &[Measured], now: Instant) {
        let is_young = workers.iter().all(Measured::is_young);
        let candidates: Vec<_> = workers.iter().filter(|worker| worker.is_young() == is_young).collect();
        if candidates.is_empty() {
            return;
        }
        self.weighed = Some(now);
        self.next_weighed = self.next_weighed.wrapping_add(1);
        let Some(bytes) = candidates[self.next_weighed % candidates.len()].process.proportional_bytes() else { return };
        if is_young {
            self.young_bytes = self.young_bytes.max(bytes);
            return;
        }
        let before = self.worker_bytes.map_or(0, |before| (before as f64 * FORGET) as u64);
        self.worker_bytes = Some(bytes.max(before).max(LEAST_WORKER));
    }
}

// === impl Measured ===

impl Measured {
    /// Whether it has not taken the memory yet that it will.
    pub fn is_young(&self) -> bool {
        self.account.requests < GROWN_UP
    }
}

/// How long the process has used processors, and how long it has waited for one; `None` where Linux does not count it.
pub fn schedule(process: Process) -> Option<(Duration, Duration)> {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", process.pid.as_raw_pid())).ok()?;
    let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse().ok()).map(Duration::from_nanos);
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;

    fn myself() -> Measured {
        let process = Process::find(getpid()).unwrap();
        Measured { worker: WorkerId { index: 0, incarnation: 0 }, process, account: Account::default() }
    }

    #[test]
    fn what_is_used_between_two_looks_counts() {
        let now = Instant::now();
        let mut gauge = Gauge::new(Machine::within(Vec::new(), &[]), now);
        let mut me = myself();
        assert_eq!(gauge.usage(&[me], now), None, "too early");
        let usage = gauge.usage(&[me], now + USAGE_PAUSE).unwrap();
        assert_eq!((usage.wall, usage.cpu), (0.0, 0.0), "its birth is not counted");
        me.account.wall += Duration::from_millis(300);
        let usage = gauge.usage(&[me], now + 2 * USAGE_PAUSE).unwrap();
        assert!((usage.wall - 0.3).abs() < 1e-9 && usage.within == 0.5, "{usage:?}");
        // A lie is bounded by the clock.
        me.account.wall += Duration::from_secs(1_000_000);
        assert_eq!(gauge.usage(&[me], now + 3 * USAGE_PAUSE).unwrap().wall, 0.5);
    }

    #[test]
    fn this_test_uses_a_processor_and_memory() {
        let mut gauge = Gauge::new(Machine::within(Vec::new(), &[]), Instant::now());
        let mut me = myself();
        assert_eq!(gauge.runnable(&[]), 0.0);
        assert!(me.process.proportional_bytes().unwrap() > 1 << 20);
        let now = Instant::now();
        let young = gauge.memory(&[me], 0, now).unwrap();
        // More, if the tests that run beside it take much.
        assert!(young.worker >= UNKNOWN_WORKER && young.room != 0, "{young:?}");
        me.account.requests = GROWN_UP;
        let memory = gauge.memory(&[me], 0, now + WEIGH_PAUSE / 2).unwrap();
        assert_eq!(memory.worker, young.worker, "the kernel is not asked to walk through all pages again so soon");
        let memory = gauge.memory(&[me], 0, now + WEIGH_PAUSE).unwrap();
        assert!(memory.worker >= LEAST_WORKER && memory.worker != UNKNOWN_WORKER, "{memory:?}");
    }
}
