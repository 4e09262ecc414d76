//! The policy in a simulation: what [`crate::generation`] does with the real workers.

use crate::policy::demand::Demand;
use crate::policy::sizing::{Bounds, Memory, QUEUED_INTERVAL, Sample, Sizing, Usage};
use howdah_simulator::policy::{Order, PoolView, WaitUpTo, WorkerView};
use howdah_simulator::{Outcome, Scenario, run};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// `"processes": "auto"` in a simulation.
#[derive(Debug)]
pub struct Automatic {
    pub sizing: Sizing,
    /// The real time of the simulation's start.
    pub start: Instant,
    bounds: Bounds,
    /// How much memory a worker uses after its first request, and how much there is, in bytes.
    memory: (u64, u64),
    /// The router's last report.
    waiting: (usize, Duration),
    /// When the last decision was made, and the pause that it asked for.
    decided: Option<(Duration, Duration)>,
    /// The accounts of the workers, as they were read last, and when that was.
    accounts: (Duration, BTreeMap<u64, WorkerView>),
    /// The accounts at the last measurement of the usage, and when that was.
    measured: (Duration, BTreeMap<u64, WorkerView>),
    /// How long the processors had been idle then.
    idle: Duration,
    finished: u64,
}

/// The accounts of real workers may be this late.
const LATE: Duration = Duration::from_millis(20);

pub const TWO_CORES: Bounds = Bounds { cores: 2.0, max: 512, memory: None };

/// Plays a scenario with the policy, where no request is refused before it has waited for ten seconds.
pub fn automatic(scenario: &Scenario) -> Outcome {
    automatic_with(&mut Automatic::new(scenario), scenario)
}

/// The same, with this policy.
pub fn automatic_with(policy: &mut Automatic, scenario: &Scenario) -> Outcome {
    run(scenario, policy, &mut WaitUpTo(Duration::from_secs(10)))
}

// === impl Automatic ===

impl Automatic {
    /// On the machine of this scenario.
    pub fn new(scenario: &Scenario) -> Automatic {
        let bounds = Bounds { cores: scenario.cores as f64, ..TWO_CORES };
        Automatic {
            sizing: Sizing::new(bounds),
            start: Instant::now(),
            bounds,
            memory: (1 << 20, 1000 << 20),
            waiting: (0, Duration::ZERO),
            decided: None,
            accounts: Default::default(),
            measured: Default::default(),
            idle: Duration::ZERO,
            finished: 0,
        }
    }

    /// With workers that use this much memory.
    pub fn with_worker_bytes(self, bytes: u64) -> Automatic {
        Automatic { memory: (bytes, self.memory.1), ..self }
    }

    fn sample(&mut self, pool: &PoolView<'_>, now: Duration) -> Sample {
        let idle = pool.workers.iter().filter(|worker| worker.began.is_none()).count();
        let is_blocked = |worker: &&WorkerView| {
            worker.is_waiting && worker.began.is_some_and(|began| now - began >= Duration::from_millis(1))
        };
        if now - self.accounts.0 >= LATE {
            self.accounts = (now, pool.workers.iter().map(|worker| (worker.number, *worker)).collect());
            self.finished = pool.finished;
        }
        let usage = self.usage(pool, now);
        let is_old = |worker: &&WorkerView| worker.requests > 0;
        let old = pool.workers.iter().filter(is_old).count();
        let all = pool.workers.len() + pool.starting;
        let (worker, total) = self.memory;
        let room = total as i64 - ((old + pool.leaving) as u64 * worker) as i64;
        let (waiting, at) = self.waiting;
        Sample {
            demand: Demand {
                idle,
                starting: pool.starting,
                all,
                waiting: if now - at < 3 * QUEUED_INTERVAL { waiting } else { 0 },
            },
            finished: self.finished,
            blocked: pool.workers.iter().filter(is_blocked).count() as f64,
            young: all - old,
            leaving: pool.leaving,
            usage,
            memory: Some(Memory { room, worker, room_for_more: room }),
        }
    }

    fn usage(&mut self, pool: &PoolView<'_>, now: Duration) -> Option<Usage> {
        let within = now - self.measured.0;
        if within < crate::policy::sizing::usage_interval(self.accounts.1.len()) {
            return None;
        }
        let before = std::mem::replace(&mut self.measured, (now, self.accounts.1.clone())).1;
        let idle = (pool.idle_processors - self.idle).as_secs_f64() / self.bounds.cores;
        self.idle = pool.idle_processors;
        let mut usage = Usage { within: within.as_secs_f64(), idle, ..Usage::default() };
        for (number, worker) in &self.measured.1 {
            let known = before.get(number).copied().unwrap_or_default();
            usage.requests += (worker.requests - known.requests) as f64;
            usage.wall += (worker.busy - known.busy).as_secs_f64();
            usage.cpu += (worker.ran - known.ran).as_secs_f64();
            usage.delayed += (worker.delayed - known.delayed).as_secs_f64();
        }
        Some(usage)
    }
}

impl howdah_simulator::Sizing for Automatic {
    fn at_start(&self) -> usize {
        self.bounds.least()
    }

    fn on_workers_wanted(&mut self, waiting: usize, now: Duration) -> Option<Duration> {
        self.waiting = (waiting, now);
        Some(self.decided.map_or(now, |(decided, pause)| decided + pause))
    }

    fn decide(&mut self, pool: &PoolView<'_>, now: Duration) -> Order {
        let sample = self.sample(pool, now);
        let decision = self.sizing.decide(sample, self.start + now);
        self.decided = Some((now, decision.pause));
        let all = sample.demand.all;
        Order { start: decision.wanted - all, retire: decision.surplus, decide_again_in: decision.decide_again_in }
    }
}
