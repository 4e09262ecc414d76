//! Measures what an application's workers use: time, processors, memory.
//!
//! A worker's account of its own busy time is trusted up to the clock. Its use of processors and memory comes from the
//! kernel, from /proc. A worker that is gone by the time it is measured is left out.

use crate::generation::php::scaling::weighing::Weighing;
use crate::os::machine::Machine;
use crate::os::processes::process::Process;
use crate::policy::sizing::{Memory, Usage, usage_interval};
use howdah_channel::account::Current;
use howdah_channel::{Account, WorkerId, account};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A worker that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The worker.
    pub worker: WorkerId,
    /// Its process.
    pub process: Process,
    /// Its own account.
    pub account: Account,
}

/// The measurements, and what one of them leaves for the next.
#[derive(Debug)]
pub struct Gauge {
    machine: Machine,
    /// The usage of each worker since its start, at the last measurement. By index.
    spent: BTreeMap<u16, (WorkerId, Usage)>,
    /// When that was.
    measured: Instant,
    /// How long the machine's processors had been idle then.
    idle: Duration,
    /// How many requests each worker had finished at the last count. By index.
    counted: BTreeMap<u16, (WorkerId, u64)>,
    /// How many requests all workers have finished, those included that are gone.
    finished: u64,
    /// How much memory a worker uses, in bytes; `None` until a worker that has served requests was weighed.
    worker_bytes: Option<u64>,
    /// The same, as far as workers show that have served too few requests yet.
    young_bytes: u64,
    /// When a worker was last weighed.
    weighed: Option<Instant>,
    weighing: Option<Weighing>,
    /// Which worker is weighed next, and which are sampled next: counters modulo the number of workers.
    next_weighed: usize,
    next_sampled: usize,
}

/// The time between two weighings: the kernel walks through all pages of a worker for one.
const WEIGH_INTERVAL: Duration = Duration::from_secs(1);
/// A request that has run for less time may be over before its process is looked at.
const LASTING: Duration = Duration::from_millis(1);
/// At most this number of processes is sampled. The others are assumed to be like them.
const MAX_SAMPLED: usize = 32;
/// A worker uses at least this, in bytes, some minutes after its start.
const MIN_WORKER_BYTES: u64 = 4 << 20;
/// A worker is assumed to use this, in bytes, before one was weighed.
const ASSUMED_WORKER_BYTES: u64 = 32 << 20;
/// After this number of requests a worker uses about as much memory as it ever will.
const GROWN_REQUESTS: u64 = 3;
/// This share of the memory is left to others, up to a number of bytes.
const RESERVE: f64 = 0.1;
const MAX_RESERVE_BYTES: i64 = 512 << 20;
/// The weight of the heaviest worker decays by this factor at each weighing.
const DECAY: f64 = 0.99;

// === impl Gauge ===

impl Gauge {
    /// Nothing has been measured yet.
    pub fn new(machine: Machine, now: Instant) -> Gauge {
        let spent = BTreeMap::new();
        let idle = machine.idle().unwrap_or_default();
        Gauge {
            machine,
            spent,
            measured: now,
            idle,
            counted: BTreeMap::new(),
            finished: 0,
            worker_bytes: None,
            young_bytes: ASSUMED_WORKER_BYTES,
            weighed: None,
            weighing: None,
            next_weighed: 0,
            next_sampled: 0,
        }
    }

    /// How many processors there are.
    pub fn cores(&self) -> f64 {
        self.machine.cores()
    }

    /// How many of these busy workers have run their request for a while, and wait for others than the processors.
    /// `current` returns the request that a worker runs now.
    pub fn blocked(&mut self, busy: &[Measured], current: impl Fn(WorkerId) -> Option<Current>) -> f64 {
        let sampled = busy.len().min(MAX_SAMPLED);
        if sampled == 0 {
            return 0.0;
        }
        self.next_sampled = self.next_sampled.wrapping_add(1);
        let clock = account::monotonic();
        let is_blocked = |it: &&Measured| {
            let lasts = |current: &Current| clock.saturating_sub(current.began) >= LASTING;
            // A process that sleeps after its request waits for the next one.
            it.account
                .current
                .filter(lasts)
                .is_some_and(|before| it.process.is_asleep() && current(it.worker) == Some(before))
        };
        let sample = busy.iter().cycle().skip(self.next_sampled % busy.len()).take(sampled);
        sample.filter(is_blocked).count() as f64 * busy.len() as f64 / sampled as f64
    }

    /// How many requests the workers have finished since the application started.
    pub fn finished(&mut self, workers: &[Measured]) -> u64 {
        let before = std::mem::take(&mut self.counted);
        for Measured { worker, account, .. } in workers {
            let known = before.get(&worker.index).filter(|(known, _)| known == worker).map_or(0, |(_, count)| *count);
            // A hostile worker can write any number.
            self.finished = self.finished.saturating_add(account.requests.saturating_sub(known));
            self.counted.insert(worker.index, (*worker, account.requests));
        }
        self.finished
    }

    /// The usage since the last measurement; `None` if that was a moment ago.
    pub fn usage(&mut self, workers: &[Measured], now: Instant) -> Option<Usage> {
        let within = now.saturating_duration_since(self.measured);
        if within < usage_interval(workers.len()) {
            return None;
        }
        self.measured = now;
        let clock = account::monotonic();
        let before = std::mem::take(&mut self.spent);
        // Without /proc, the machine counts as idle.
        let idle = self.machine.idle().unwrap_or(self.idle + within);
        let idle_before = std::mem::replace(&mut self.idle, idle);
        let mut sum = Usage {
            within: within.as_secs_f64(),
            idle: idle.saturating_sub(idle_before).as_secs_f64(),
            ..Usage::default()
        };
        for Measured { worker, process, account } in workers {
            let known = before.get(&worker.index).filter(|(known, _)| known == worker).map(|(_, usage)| *usage);
            let times = process.cpu_times();
            let cpu = times.map_or(account.cpu, |times| times.ran);
            let delayed = times.map_or(Duration::ZERO, |times| times.waited);
            let spent = Usage {
                requests: account.requests as f64,
                wall: account.busy(clock).as_secs_f64(),
                cpu: cpu.as_secs_f64(),
                delayed: delayed.as_secs_f64(),
                ..Usage::default()
            };
            self.spent.insert(worker.index, (*worker, spent));
            // The boot of a new worker does not count: it is not work on requests.
            let Some(known) = known else { continue };
            sum.requests += (spent.requests - known.requests).max(0.0);
            sum.wall += (spent.wall - known.wall).clamp(0.0, sum.within);
            sum.cpu += (spent.cpu - known.cpu).clamp(0.0, sum.within);
            sum.delayed += (spent.delayed - known.delayed).clamp(0.0, sum.within);
        }
        Some(sum)
    }

    /// How much memory there is for more workers. `promised` bytes of it will be used by new workers of other
    /// applications.
    pub fn memory(&mut self, workers: &[Measured], promised: u64, now: Instant) -> Option<Memory> {
        self.end_weighing();
        if self.weighing.is_none() && self.weighed.is_none_or(|at| now.saturating_duration_since(at) >= WEIGH_INTERVAL)
        {
            self.begin_weighing(workers, now);
        }
        let memory = self.machine.memory(0)?;
        let for_more = if promised > 0 { self.machine.memory(promised)? } else { memory };
        let reserve = ((memory.total as f64 * RESERVE) as i64).min(MAX_RESERVE_BYTES);
        let (room, room_for_more) = (memory.available as i64 - reserve, for_more.available as i64 - reserve);
        Some(Memory { room, room_for_more, worker: self.worker_bytes() })
    }

    /// How much memory a worker uses, as far as that is known, in bytes.
    pub fn worker_bytes(&self) -> u64 {
        self.worker_bytes.unwrap_or(self.young_bytes)
    }

    /// Begins to weigh one of the workers that have served requests. While there are none, the others show the least that
    /// a worker uses.
    fn begin_weighing(&mut self, workers: &[Measured], now: Instant) {
        let is_young = workers.iter().all(Measured::is_young);
        let candidates: Vec<_> = workers.iter().filter(|worker| worker.is_young() == is_young).collect();
        if candidates.is_empty() {
            return;
        }
        self.weighed = Some(now);
        self.next_weighed = self.next_weighed.wrapping_add(1);
        let process = candidates[self.next_weighed % candidates.len()].process;
        // Without a thread for it, the last value stays.
        self.weighing = Weighing::begin(is_young, move || process.proportional_bytes()).ok();
    }

    /// Takes the result of a weighing that has ended.
    fn end_weighing(&mut self) {
        let Some(weighing) = &self.weighing else { return };
        let (Some(ended), is_young) = (weighing.ended(), weighing.is_young) else { return };
        self.weighing = None;
        let Some(bytes) = ended else { return };
        if is_young {
            self.young_bytes = self.young_bytes.max(bytes);
            return;
        }
        let before = self.worker_bytes.map_or(0, |before| (before as f64 * DECAY) as u64);
        self.worker_bytes = Some(bytes.max(before).max(MIN_WORKER_BYTES));
    }
}

// === impl Measured ===

impl Measured {
    /// Whether it will still use more memory than now.
    pub fn is_young(&self) -> bool {
        self.account.requests < GROWN_REQUESTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;

    const INTERVAL: Duration = Duration::from_millis(500);

    fn myself() -> Measured {
        let process = Process::find(getpid()).unwrap();
        Measured { worker: WorkerId { index: 0, incarnation: 0 }, process, account: Account::default() }
    }

    #[test]
    fn usage_is_the_difference_of_two_measurements() {
        let now = Instant::now();
        let mut gauge = Gauge::new(Machine::within(Vec::new(), &[]), now);
        let mut me = myself();
        assert_eq!(gauge.usage(&[me], now), None, "too early");
        let usage = gauge.usage(&[me], now + INTERVAL).unwrap();
        assert_eq!((usage.wall, usage.cpu), (0.0, 0.0), "its boot does not count");
        me.account.wall += Duration::from_millis(300);
        let usage = gauge.usage(&[me], now + 2 * INTERVAL).unwrap();
        assert!((usage.wall - 0.3).abs() < 1e-9 && usage.within == 0.5, "{usage:?}");
        // A false account is bounded by the clock.
        me.account.wall += Duration::from_secs(1_000_000);
        assert_eq!(gauge.usage(&[me], now + 3 * INTERVAL).unwrap().wall, 0.5);
    }

    #[test]
    fn a_worker_is_blocked_while_it_sleeps_in_a_request_that_lasts() {
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let asleep = Process::find(rustix::process::Pid::from_child(&sleeper)).unwrap();
        // Until it runs its program, it may sleep for a moment.
        let mut looks = 0;
        while looks < 20 {
            looks = if asleep.is_asleep() { looks + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut gauge = Gauge::new(Machine::within(Vec::new(), &[]), Instant::now());
        let began = |began| Some(Current { slot: 1, sequence: 1, began });
        let (old, new) = (began(Duration::ZERO), began(account::monotonic() * 2));
        let next = old.map(|current| Current { sequence: 2, ..current });
        // The worker's request before and after its process was looked at → blocked
        let table = [(old, old, 1.0), (old, None, 0.0), (old, next, 0.0), (None, None, 0.0), (new, new, 0.0)];
        for (before, after, expected) in table {
            let account = Account { current: before, ..Account::default() };
            let worker = Measured { process: asleep, account, ..myself() };
            assert_eq!(gauge.blocked(&[worker], |_| after), expected, "{before:?} {after:?}");
        }
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn requests_of_workers_that_are_gone_count() {
        let mut gauge = Gauge::new(Machine::within(Vec::new(), &[]), Instant::now());
        let with = |incarnation, requests| {
            let account = Account { requests, ..Account::default() };
            Measured { worker: WorkerId { index: 0, incarnation }, account, ..myself() }
        };
        let counts = [with(0, 5), with(0, 7), with(1, 2), with(1, 1)].map(|worker| gauge.finished(&[worker]));
        assert_eq!(counts, [5, 7, 9, 9]);
    }

    #[test]
    fn a_worker_is_weighed_once_in_an_interval() {
        let mut gauge = Gauge::new(Machine::within(Vec::new(), &[]), Instant::now());
        let mut me = myself();
        assert_eq!(gauge.blocked(&[], |_| None), 0.0);
        let now = Instant::now();
        let weighed = |gauge: &mut Gauge, me: Measured, now: Instant| {
            gauge.memory(&[me], 0, now);
            while gauge.weighing.is_some() {
                std::thread::yield_now();
                gauge.memory(&[me], 0, now);
            }
            gauge.memory(&[me], 0, now).unwrap()
        };
        let young = weighed(&mut gauge, me, now);
        // It is more if other tests in this process use much.
        assert!(young.worker >= ASSUMED_WORKER_BYTES && young.room != 0, "{young:?}");
        me.account.requests = GROWN_REQUESTS;
        let memory = weighed(&mut gauge, me, now + WEIGH_INTERVAL / 2);
        assert_eq!(memory.worker, young.worker, "it is not weighed again before the interval");
        let memory = weighed(&mut gauge, me, now + WEIGH_INTERVAL);
        assert!(memory.worker >= MIN_WORKER_BYTES && memory.worker != ASSUMED_WORKER_BYTES, "{memory:?}");
    }

    #[test]
    fn a_weighing_that_hangs_is_not_waited_for_and_no_other_begins() {
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let mut gauge = Gauge::new(Machine::within(Vec::new(), &[]), Instant::now());
        let weighing = Weighing::begin(false, move || hangs.recv().ok().map(|()| 77 << 20));
        gauge.weighing = Some(weighing.unwrap());
        let me = myself();
        let now = Instant::now();
        for second in 0..10 {
            let memory = gauge.memory(&[me], 0, now + Duration::from_secs(second)).unwrap();
            assert_eq!(memory.worker, ASSUMED_WORKER_BYTES);
        }
        assert_eq!(gauge.weighed, None);
        release.send(()).unwrap();
        while gauge.worker_bytes() != 77 << 20 {
            std::thread::yield_now();
            gauge.memory(&[me], 0, now);
        }
    }
}
