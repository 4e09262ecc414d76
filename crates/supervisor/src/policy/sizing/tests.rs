//! The policy by tables, and by a simulation of processors, workers and requests.

use super::*;

const MIB: i64 = 1 << 20;
const TWO_CORES: Bounds = Bounds { cores: 2.0, max: 512, memory: None };

fn sample(demand: (usize, usize, usize, usize), runnable: f64) -> Sample {
    let (idle, starting, all, waiting) = demand;
    Sample {
        demand: Demand { idle, starting, all, waiting },
        runnable,
        young: 0,
        leaving: 0,
        usage: None,
        memory: None,
    }
}

fn usage(wall: f64, cpu: f64, delayed: f64) -> Usage {
    Usage { within: 1.0, wall, cpu, delayed }
}

#[test]
fn workers_are_added_only_if_there_is_a_processor_for_them() {
    // idle, starting, all, waiting; runnable; what a second's requests used → wanted
    let unknown = Usage::default();
    let table = [
        ((2, 0, 2, 0), 0.0, unknown, 2),
        // Nothing is known: twice as many, or four times.
        ((0, 0, 2, 9), 1.0, unknown, 4),
        ((0, 0, 2, 9), 0.0, unknown, 8),
        ((0, 0, 16, 900), 0.4, unknown, 64),
        // No more than there are requests.
        ((0, 0, 16, 3), 0.4, unknown, 19),
        // Workers that are being started count.
        ((0, 2, 4, 2), 0.0, unknown, 4),
        ((0, 2, 4, 9), 1.0, unknown, 4),
        // An idle worker takes them: the router's report is old.
        ((2, 0, 2, 31), 0.0, unknown, 2),
        // Nineteen twentieths are waiting: 2 / 0.05 at once.
        ((0, 0, 2, 900), 0.1, usage(2.0, 0.1, 0.0), 40),
        // The processors are busy.
        ((0, 0, 2, 900), 2.0, usage(2.0, 2.0, 0.0), 2),
        ((0, 0, 40, 900), 2.0, usage(40.0, 2.0, 0.0), 40),
        // Waiting for a processor is no reason for more.
        ((0, 0, 8, 900), 8.0, usage(8.0, 2.0, 6.0), 8),
        ((0, 0, 512, 900), 1.0, usage(400.0, 1.0, 0.0), 512),
    ];
    for (demand, runnable, usage, wanted) in table {
        let mut sizing = Sizing::new(TWO_CORES);
        let decision = sizing.decide(Sample { usage: Some(usage), ..sample(demand, runnable) }, Instant::now());
        assert_eq!((decision.wanted, decision.surplus), (wanted, 0), "{demand:?} {runnable} {usage:?}");
    }
}

#[test]
fn memory_bounds_the_number_and_a_lack_of_it_retires_workers() {
    let memory = |room, worker| Some(Memory { room, worker, room_for_more: room });
    // room and a worker's memory in MiB, "memory" in MiB → wanted, surplus of 16, of which none is idle
    let table = [
        (1000, 10, None, (64, 0)),
        (45, 10, None, (20, 0)),
        (0, 10, None, (16, 0)),
        (-15, 10, None, (16, 2)),
        (-900, 10, None, (16, 4)),
        (1000, 10, Some(180), (18, 0)),
        (1000, 10, Some(140), (16, 2)),
    ];
    for (room, worker, bound, expected) in table {
        let mut sizing = Sizing::new(Bounds { memory: bound.map(|bound: u64| bound << 20), ..TWO_CORES });
        let demand = sample((0, 0, 16, 900), 0.0);
        let decision =
            sizing.decide(Sample { memory: memory(room * MIB, (worker * MIB) as u64), ..demand }, Instant::now());
        assert_eq!((decision.wanted, decision.surplus), expected, "{room} {worker} {bound:?}");
    }
}

#[test]
fn memory_that_new_workers_will_use_counts_and_so_does_that_of_leaving_workers() {
    let decide = |young, leaving, promised: i64| {
        let memory = Some(Memory { room: 45 * MIB, worker: 10 << 20, room_for_more: (45 - promised) * MIB });
        let sample = Sample { young, leaving, memory, ..sample((0, 0, 16, 900), 0.0) };
        let decision = Sizing::new(TWO_CORES).decide(sample, Instant::now());
        (decision.wanted, decision.surplus, decision.lacks_memory)
    };
    assert_eq!(decide(0, 0, 0), (20, 0, Some(20)));
    assert_eq!(decide(3, 0, 0), (17, 0, Some(17)));
    assert_eq!(decide(6, 0, 0), (16, 0, Some(16)), "no worker is retired while there is memory");
    assert_eq!(decide(6, 3, 0), (17, 0, Some(17)));
    // Another application has just started workers.
    assert_eq!(decide(0, 0, 30), (17, 0, Some(17)));
    assert_eq!(decide(0, 0, 300), (16, 0, Some(16)));
}

#[test]
fn the_reason_is_readable() {
    let mut sizing = Sizing::new(TWO_CORES);
    let memory = Some(Memory { room: 1280 * MIB, worker: 10 << 20, room_for_more: 1280 * MIB });
    assert_eq!(
        sizing.reason(1, Instant::now()).to_string(),
        "1 worker: 2 cores, too few requests to measure what they wait for, at most 512"
    );
    let now = Instant::now();
    let demand = Sample { usage: Some(usage(10.0, 1.3, 0.0)), memory, ..sample((0, 0, 12, 0), 0.0) };
    sizing.decide(demand, now);
    let why = "12 workers: 2 cores, 87 % of a request is waiting, memory allows 140";
    assert_eq!(sizing.reason(12, now).to_string(), why);
    assert_eq!(sizing.reason(12, now + 9 * PEAK_PERIOD).to_string(), why);
    for moment in [8, 10] {
        sizing.decide(sample((0, 0, 20, 900), 0.0), now + moment * PEAK_PERIOD);
    }
    sizing.decide(sample((70, 0, 80, 0), 0.0), now + 20 * PEAK_PERIOD);
    assert_eq!(
        sizing.reason(80, now + 55 * PEAK_PERIOD).to_string(),
        "80 workers: 2 cores, 87 % of a request is waiting, 80 were useful 45 s ago, memory allows 140"
    );
}

/// A request computes, then waits for others; both in milliseconds.
#[derive(Clone, Copy)]
struct Page {
    cpu: u32,
    wait: u32,
}

/// The result of a simulation.
struct Outcome {
    /// How many workers there were, at the end of each second.
    workers: Vec<usize>,
    /// The most that there were at any time.
    most: usize,
    /// How long the requests took, in milliseconds, in the order of their ends.
    times: Vec<u32>,
    /// How many requests waited at the end.
    waiting: usize,
    /// How often a number that had grown shrank, or the other way round.
    turns: usize,
}

#[derive(Clone, Copy)]
struct Worker {
    /// It has not answered a request yet.
    is_young: bool,
    /// The rest of its request, and when that arrived.
    request: Option<(f64, f64, u32)>,
}

impl Default for Worker {
    fn default() -> Self {
        Worker { is_young: true, request: None }
    }
}

impl Worker {
    fn is_idle(&self) -> bool {
        self.request.is_none()
    }
}

/// Milliseconds, one by one, on a machine with two processors that are shared evenly.
fn simulate(seconds: u32, worker_bytes: u64, mut arrivals: impl FnMut(u32) -> Vec<Page>) -> Outcome {
    const ROOM: i64 = 1000 * MIB;
    let start = Instant::now();
    let mut sizing = Sizing::new(TWO_CORES);
    let mut workers = vec![Worker::default(); TWO_CORES.least()];
    // When forked workers will serve: two milliseconds later.
    let mut boots: Vec<u32> = Vec::new();
    let mut leaving = 0;
    let (mut queue, mut used) = (VecDeque::new(), Usage::default());
    let mut look_at = Some(0);
    let mut outcome = Outcome { workers: Vec::new(), most: 0, times: Vec::new(), waiting: 0, turns: 0 };
    let mut direction = 0;
    for now in 0..seconds * 1000 {
        queue.extend(arrivals(now).into_iter().map(|page| (page, now)));
        let booted = boots.iter().filter(|at| **at <= now).count();
        boots.retain(|at| *at > now);
        workers.extend(std::iter::repeat_n(Worker::default(), booted));
        for worker in workers.iter_mut().filter(|worker| worker.is_idle()) {
            if let Some((page, arrived)) = queue.pop_front() {
                let page: Page = page;
                worker.request = Some((f64::from(page.cpu), f64::from(page.wait), arrived));
            }
        }
        let busy = workers.iter().filter(|worker| !worker.is_idle()).count();
        let runnable = workers.iter().filter_map(|worker| worker.request).filter(|(cpu, ..)| *cpu > 0.0).count();
        let share = (2.0 / runnable.max(1) as f64).min(1.0);
        for worker in &mut workers {
            let Some((cpu, wait, arrived)) = &mut worker.request else { continue };
            match *cpu > 0.0 {
                true => *cpu -= share,
                false => *wait -= 1.0,
            }
            if *cpu <= 0.0 && *wait <= 0.0 {
                outcome.times.push(now + 1 - *arrived);
                *worker = Worker { is_young: false, request: None };
            }
        }
        used.within += 0.001;
        used.wall += busy as f64 / 1000.0;
        used.cpu += runnable as f64 * share / 1000.0;
        used.delayed += runnable as f64 * (1.0 - share) / 1000.0;
        while leaving > 0
            && let Some(idle) = workers.iter().position(Worker::is_idle)
        {
            workers.remove(idle);
            leaving -= 1;
        }
        let all = workers.len() + boots.len() - leaving;
        let wants = !queue.is_empty() && look_at.is_none_or(|at| at > now + QUEUED_INTERVAL.as_millis() as u32);
        if look_at.is_some_and(|at| at <= now) || wants {
            let idle = workers.iter().filter(|worker| worker.is_idle()).count();
            // The kernel sees a worker's memory when its first request has taken it.
            let old = workers.iter().filter(|worker| !worker.is_young).count();
            let young = workers.len() - old + boots.len();
            let room = ROOM - (old as u64 * worker_bytes) as i64;
            outcome.most = outcome.most.max(workers.len() + boots.len());
            let demand = Demand { idle, starting: boots.len(), all, waiting: queue.len() };
            let usage = (used.within >= 0.5).then(|| std::mem::take(&mut used));
            let memory = Some(Memory { room, worker: worker_bytes, room_for_more: room });
            let at = start + Duration::from_millis(now.into());
            let decision =
                sizing.decide(Sample { demand, runnable: runnable as f64, young, leaving, usage, memory }, at);
            boots.extend(std::iter::repeat_n(now + 2, decision.wanted - all));
            leaving += decision.surplus;
            look_at = Some(now + decision.decide_again_in.as_millis() as u32);
            let turn = (decision.wanted - all) as i64 - decision.surplus as i64;
            if turn != 0 && turn.signum() == -direction {
                outcome.turns += 1;
            }
            direction = if turn == 0 { direction } else { turn.signum() };
        }
        if now % 1000 == 999 {
            outcome.workers.push(workers.len() + boots.len() - leaving);
        }
    }
    outcome.waiting = queue.len();
    outcome
}

/// `per_second` requests, evenly.
fn steady(now: u32, per_second: u32, page: Page) -> Vec<Page> {
    let until = |now: u32| now * per_second / 1000;
    vec![page; (until(now + 1) - until(now)) as usize]
}

fn percentile(times: &[u32], share: f64) -> u32 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

const COMPUTES: Page = Page { cpu: 10, wait: 0 };
const WAITS: Page = Page { cpu: 1, wait: 49 };

#[test]
fn code_that_computes_has_a_worker_for_each_core_even_under_overload() {
    for per_second in [50, 150, 600] {
        let outcome = simulate(60, 10 << 20, |now| steady(now, per_second, COMPUTES));
        assert!(outcome.workers.iter().all(|workers| (2..=4).contains(workers)), "{:?}", outcome.workers);
        let finished = per_second.min(200) as usize * 60;
        assert!(outcome.times.len() >= finished * 92 / 100, "{} of {finished}", outcome.times.len());
    }
}

#[test]
fn code_that_waits_has_as_many_workers_as_its_requests_need() {
    for per_second in [100, 500, 1500] {
        let outcome = simulate(60, 1 << 20, |now| steady(now, per_second, WAITS));
        let needed = (per_second * 50 / 1000) as usize;
        let last = *outcome.workers.last().unwrap();
        assert!((needed..=needed * 2 + 4).contains(&last), "{needed}: {:?}", outcome.workers);
        let settled = &outcome.times[outcome.times.len() / 10..];
        assert!(percentile(settled, 0.99) <= 60, "p99 {} ms, {:?}", percentile(settled, 0.99), outcome.workers);
        assert!(outcome.turns <= 2, "{} turns", outcome.turns);
    }
}

#[test]
fn a_burst_gets_workers_within_some_tens_of_milliseconds_and_they_are_retired_slowly() {
    // Ten a second, and 1500 at once in second 5.
    let outcome = simulate(760, 1 << 20, |now| {
        let burst = if now == 5000 { 1500 } else { 0 };
        [steady(now, 10, WAITS), vec![WAITS; burst]].concat()
    });
    let slowest = percentile(&outcome.times, 1.0);
    // 1500 requests of 1 ms of a processor: 750 ms at least.
    assert!(slowest < 1100, "{slowest} ms {:?}", outcome.workers);
    assert!(outcome.workers[30] > 50, "{:?}", outcome.workers);
    assert!(*outcome.workers.last().unwrap() <= 4, "{:?}", outcome.workers);
    assert!(outcome.turns <= 2, "{} turns", outcome.turns);
}

#[test]
fn a_slow_database_gets_more_workers_and_a_quick_one_fewer() {
    let page = |now: u32| match now / 1000 {
        40..80 => Page { cpu: 2, wait: 400 },
        _ => Page { cpu: 2, wait: 8 },
    };
    let outcome = simulate(740, 1 << 20, |now| steady(now, 100, page(now)));
    assert!(outcome.workers[30] <= 8, "{:?}", outcome.workers);
    assert!((40..=90).contains(&outcome.workers[60]), "{:?}", outcome.workers);
    assert!(outcome.workers[739] <= 8, "{:?}", outcome.workers);
    assert_eq!(outcome.waiting, 0);
    assert!(outcome.turns <= 3, "{} turns", outcome.turns);
}

#[test]
fn workers_that_use_much_memory_stay_within_it() {
    // A worker of 100 MiB, and 1000 MiB.
    let outcome = simulate(60, 100 << 20, |now| steady(now, 500, WAITS));
    assert!(outcome.most <= 10, "{} at once, {:?}", outcome.most, outcome.workers);
    assert_eq!(*outcome.workers.last().unwrap(), 10);
}

#[test]
fn slow_pages_do_not_block_quick_ones() {
    let mut number = 1u32;
    let outcome = simulate(120, 1 << 20, |now| {
        let mut mixed = |page| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if (number >> 16).is_multiple_of(10) { Page { cpu: 1, wait: 200 } } else { page }
        };
        steady(now, 200, Page { cpu: 2, wait: 0 }).into_iter().map(&mut mixed).collect()
    });
    let last = *outcome.workers.last().unwrap();
    assert!((5..=30).contains(&last), "{:?}", outcome.workers);
    let settled = &outcome.times[outcome.times.len() / 4..];
    assert!(percentile(settled, 0.85) <= 10, "p85 {} ms", percentile(settled, 0.85));
    assert!(outcome.turns <= 6, "{} turns", outcome.turns);
}

#[test]
fn the_number_of_workers_falls_when_waiting_code_begins_to_compute() {
    let page = |now: u32| if now < 40_000 { WAITS } else { COMPUTES };
    let outcome = simulate(720, 1 << 20, |now| steady(now, if now < 40_000 { 1000 } else { 150 }, page(now)));
    assert!(outcome.workers[30] >= 50, "{:?}", outcome.workers);
    assert!(*outcome.workers.last().unwrap() <= 6, "{:?}", outcome.workers);
}
