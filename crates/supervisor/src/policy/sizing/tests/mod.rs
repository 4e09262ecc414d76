//! The policy by tables, and in simulations.

mod behaviour;
mod fixed_numbers;
mod pages;
mod simulated;
mod transitions;

use super::trial::{Candidates, Growth, Probe};
use super::*;
use crate::policy::demand::Demand;
use simulated::TWO_CORES;

const MIB: i64 = 1 << 20;

fn sample(demand: (usize, usize, usize, usize), blocked: f64) -> Sample {
    let (idle, starting, all, waiting) = demand;
    Sample {
        demand: Demand { idle, starting, all, waiting },
        finished: 0,
        blocked,
        young: 0,
        leaving: 0,
        usage: None,
        memory: None,
    }
}

/// Of 100 requests in a second.
fn usage(wall: f64, cpu: f64, delayed: f64) -> Usage {
    Usage { within: 1.0, requests: 100.0, wall, cpu, delayed, idle: 1.0 }
}

/// The decision about requests that have waited for some milliseconds.
fn decide(sizing: &mut Sizing, sample: Sample, now: Instant) -> Decision {
    let first = sizing.decide(Sample { usage: None, ..sample }, now);
    assert_eq!(first.wanted, sample.demand.all, "a wait of less than a few milliseconds is no reason");
    sizing.decide(sample, now + SHORT_WAIT)
}

#[test]
fn workers_are_added_only_if_there_is_a_processor_for_them() {
    // idle, starting, all, waiting; blocked; the use of a second's requests → wanted
    let unknown = Usage::default();
    let table = [
        ((2, 0, 2, 0), 0.0, unknown, 2),
        // Nothing is known: twice as many, or four times.
        ((0, 0, 2, 9), 1.0, unknown, 4),
        ((0, 0, 2, 9), 2.0, unknown, 8),
        ((0, 0, 16, 900), 15.6, unknown, 64),
        // Workers that are not seen to wait use the processors.
        ((0, 0, 2, 9), 0.0, unknown, 2),
        ((0, 0, 16, 900), 0.0, unknown, 16),
        // No more than there are requests.
        ((0, 0, 16, 3), 15.6, unknown, 19),
        // Workers that are being started count.
        ((0, 2, 4, 2), 2.0, unknown, 4),
        ((0, 2, 4, 9), 1.0, unknown, 4),
        // An idle worker takes them: the router's report is old.
        ((2, 0, 2, 31), 0.0, unknown, 2),
        // Nineteen twentieths are waiting: 2 / 0.05 at once, and a reserve of three deviations.
        ((0, 0, 2, 900), 1.9, usage(2.0, 0.1, 0.0), 58),
        // The processors are busy.
        ((0, 0, 2, 900), 0.0, usage(2.0, 2.0, 0.0), 2),
        ((0, 0, 58, 900), 56.0, usage(40.0, 2.0, 0.0), 58),
        // Waiting for a processor is no reason for more.
        ((0, 0, 8, 900), 0.0, usage(8.0, 2.0, 6.0), 8),
        ((0, 0, 512, 900), 511.0, usage(400.0, 1.0, 0.0), 512),
    ];
    for (demand, blocked, usage, wanted) in table {
        let mut sizing = Sizing::new(TWO_CORES);
        let decision = decide(&mut sizing, Sample { usage: Some(usage), ..sample(demand, blocked) }, Instant::now());
        assert_eq!((decision.wanted, decision.surplus), (wanted, 0), "{demand:?} {blocked} {usage:?}");
    }
}

#[test]
fn requests_that_wait_less_than_a_few_milliseconds_start_no_worker() {
    // The time between two decisions in microseconds, the requests that were finished meanwhile, those that wait; the
    // use of time by a second's requests → whether workers are added
    let (short, long) = (usage(0.004, 0.006, 0.0), usage(1.9, 0.1, 0.0));
    let table = [
        // 20,000 requests per second, of which 20 wait for a millisecond.
        (5_000, 100, 20, short, false),
        (5_000, 100, 59, short, false),
        (5_000, 100, 61, short, true),
        (5_000, 0, 1, short, true),
        (2_000, 0, 1, short, false),
        // Each waits 18 ms for others: more than 1.8 ms for a worker is worth another worker.
        (5_000, 5, 1, long, false),
        (5_000, 5, 2, long, true),
    ];
    for (passed, finished, waiting, usage, adds) in table {
        let (mut sizing, now) = (Sizing::new(TWO_CORES), Instant::now());
        sizing.decide(Sample { usage: Some(usage), ..sample((0, 0, 2, waiting), 2.0) }, now);
        let second = Sample { finished, ..sample((0, 0, 2, waiting), 2.0) };
        let decisions: Vec<_> =
            (0..2).map(|_| sizing.decide(second, now + Duration::from_micros(passed)).wanted).collect();
        // The processors of `short` are not seen to be idle before some samples.
        let is_long = sizing.occupied.is_some();
        assert_eq!(is_long, adds, "{passed} {finished} {waiting}: {decisions:?}");
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
        let sample = Sample { memory: memory(room * MIB, (worker * MIB) as u64), ..sample((0, 0, 16, 900), 16.0) };
        let now = Instant::now();
        let first = sizing.decide(Sample { memory: None, ..sample }, now);
        assert_eq!((first.wanted, first.surplus), (16, 0));
        let decision = sizing.decide(sample, now + SHORT_WAIT);
        assert_eq!((decision.wanted, decision.surplus), expected, "{room} {worker} {bound:?}");
    }
}

#[test]
fn memory_that_new_workers_will_use_counts_and_so_does_that_of_leaving_workers() {
    let decide = |young, leaving, promised: i64| {
        let memory = Some(Memory { room: 45 * MIB, worker: 10 << 20, room_for_more: (45 - promised) * MIB });
        let sample = Sample { young, leaving, memory, ..sample((0, 0, 16, 900), 16.0) };
        let decision = decide(&mut Sizing::new(TWO_CORES), sample, Instant::now());
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
fn the_law_follows_requests_that_wait_far_less_than_the_last_ones() {
    let tenth = |wall, cpu| Usage { within: 0.1, wall, cpu, ..Usage::default() };
    let (waits, computes, between) = (tenth(10.0, 0.05), tenth(0.2, 0.2), tenth(0.5, 0.05));
    // After two seconds of a hundred workers that wait → the useful workers for each processor
    let table = [
        (vec![waits], 199.0..201.0),
        (vec![computes; 2], 20.0..200.0),
        (vec![computes; 3], 1.0..1.1),
        (vec![between; 3], 9.9..10.1),
        // Some tenths of a second prove nothing.
        (vec![computes, waits, computes, waits, computes, waits], 20.0..200.0),
    ];
    for (after, expected) in table {
        let mut law = Law::default();
        (0..20).for_each(|_| law.record(waits));
        after.iter().for_each(|usage| law.record(*usage));
        let useful = law.for_each_core().unwrap();
        assert!(expected.contains(&useful), "{useful}: {after:?}");
    }
}

#[test]
fn a_rate_is_that_of_a_constant_number_of_loaded_workers() {
    let (mut window, start) = (RateWindow::default(), Instant::now());
    let at = |millis| start + Duration::from_millis(millis);
    // A request per millisecond, and half of the four workers are busy.
    for millis in (0..=400).step_by(10) {
        window.record(4, 2, millis, true, at(millis));
        assert_eq!(window.rate().is_some(), millis >= 280, "{millis}");
    }
    assert_eq!(window.rate(), Some(Rate { workers: 4, busy: 2.0, per_second: 1000.0 }));
    window.record(5, 2, 410, true, at(410));
    assert_eq!(window.rate(), None, "another number");
    for millis in (420..=2000).step_by(10) {
        // No request waits from the first second on.
        window.record(5, 5, millis, millis < 1000, at(millis));
        assert_eq!(window.rate().is_some(), (690..1590).contains(&millis), "{millis}");
    }
}

#[test]
fn a_rate_needs_a_request_of_each_worker() {
    let (mut window, start) = (RateWindow::default(), Instant::now());
    for tenths in 0..=100 {
        let millis = tenths * 100;
        window.record(8, 8, tenths / 10, true, start + Duration::from_millis(millis));
        assert_eq!(window.rate().is_some(), tenths >= 80, "{millis}");
    }
}

fn rate(workers: usize, per_second: f64) -> Rate {
    Rate { workers, busy: workers as f64, per_second }
}

#[test]
fn a_growth_is_taken_back_if_it_brought_less_than_it_should() {
    // 10 workers finish 1000 requests per second; more workers with their rate → how many are kept
    let table = [
        ((40, 4000.0), 40),
        ((40, 3300.0), 40),
        // Another bottleneck than workers: twice as many as needed.
        ((40, 1500.0), 30),
        ((40, 1040.0), 10),
        ((40, 500.0), 10),
        ((11, 1060.0), 11),
    ];
    let now = Instant::now();
    for ((workers, per_second), keep) in table {
        let mut growth = Growth::default();
        growth.begin(Some(rate(10, 1000.0)));
        let verdict = growth.judge(Some(rate(workers, per_second)), now).unwrap();
        assert_eq!(verdict.keep, keep, "{workers} {per_second}");
        let ceiling = growth.ceiling(now);
        assert_eq!(ceiling, if keep < workers { keep } else { usize::MAX });
        assert!(!growth.is_under_way());
    }
}

#[test]
fn a_growth_that_failed_is_tried_again_after_a_pause_that_grows() {
    let (mut growth, mut now) = (Growth::default(), Instant::now());
    for seconds in [2, 4, 8, 16, 32, 60, 60] {
        growth.begin(Some(rate(2, 100.0)));
        growth.judge(Some(rate(8, 100.0)), now).unwrap();
        let end = now + Duration::from_secs(seconds);
        assert_eq!(growth.ceiling(end - Duration::from_millis(1)), 2);
        assert_eq!(growth.ceiling(end), usize::MAX);
        now = end;
    }
    growth.begin(Some(rate(2, 100.0)));
    growth.judge(Some(rate(8, 400.0)), now).unwrap();
    growth.begin(Some(rate(8, 400.0)));
    growth.judge(Some(rate(16, 400.0)), now).unwrap();
    assert_eq!(growth.ceiling(now + Duration::from_secs(2)), usize::MAX, "a success ends the growth of the pause");
}

#[test]
fn a_growth_that_failed_is_restored_if_the_number_that_is_left_is_worse() {
    // 10 workers finished 1000 requests per second, 40 finish 500; the 10 that are left → how many there are then
    let now = Instant::now();
    for (per_second, keep) in [(900.0, 10), (490.0, 10), (400.0, 25), (200.0, 40), (100.0, 40)] {
        let mut growth = Growth::default();
        growth.begin(Some(rate(10, 1000.0)));
        assert_eq!(growth.judge(Some(rate(40, 500.0)), now).map(|verdict| verdict.keep), Some(10));
        assert!(growth.is_confirming());
        assert_eq!(growth.judge(Some(rate(10, per_second)), now).map(|verdict| verdict.keep), Some(keep));
        assert_eq!(growth.ceiling(now), if keep < 40 { keep } else { usize::MAX });
        assert!(!growth.awaits_rate());
    }
}

#[test]
fn requests_that_compute_are_no_yardstick_for_requests_that_wait() {
    let (mut sizing, start) = (Sizing::new(TWO_CORES), Instant::now());
    let at = |millis: u64| start + Duration::from_millis(millis);
    let busy = |finished, waiting, blocked| Sample { finished, ..sample((0, 0, 2, waiting), blocked) };
    sizing.decide(Sample { usage: Some(usage(2.0, 2.0, 0.0)), ..busy(0, 0, 0.0) }, at(0));
    for millis in (10..500).step_by(10) {
        sizing.decide(busy(2 * millis, 0, 0.0), at(millis));
    }
    assert_eq!(sizing.last_rate.map(|(_, rate)| rate.per_second), Some(2000.0));
    // The same workers sleep in requests that last.
    let wanted = (0..2).map(|tenth| sizing.decide(busy(980, 9, 2.0), at(500 + 10 * tenth)).wanted).max();
    assert_eq!((wanted, sizing.growth.is_under_way()), (Some(4), false));
}

/// Plays trials of one worker more or fewer for some seconds, each window a quarter of a second. Returns the numbers.
fn probe(workers: usize, seconds: u64, per_second: impl Fn(usize, u64) -> f64) -> Vec<usize> {
    let (mut probe, mut workers, start) = (Probe::default(), workers, Instant::now());
    let candidates = |workers: usize| Candidates {
        more: Some(workers + 1).filter(|number| *number <= 4),
        fewer: Some(workers - 1).filter(|number| *number >= 2),
        gain_of_fewer: 1.0,
    };
    let windows = 0..seconds * 4;
    windows
        .map(|window| {
            let now = start + Duration::from_millis(250) * window as u32;
            (workers, _) =
                probe.step(workers, Some(rate(workers, per_second(workers, window))), candidates(workers), now);
            workers
        })
        .collect()
}

#[test]
fn one_worker_more_or_fewer_is_kept_if_it_finishes_more() {
    // The requests per second of 2, 3 and 4 workers → the number after three seconds
    let table = [
        ([100.0, 90.0, 80.0], 2),
        ([100.0, 114.0, 110.0], 3),
        ([100.0, 110.0, 120.0], 4),
        // One more must finish more; one fewer must not finish less.
        ([100.0, 100.0, 100.0], 2),
    ];
    for (rates, best) in table {
        for first in 2..=4 {
            let numbers = probe(first, 60, |workers, _| rates[workers - 2]);
            let kept = numbers[12..].iter().filter(|number| **number == best).count();
            assert!(kept as f64 > 0.75 * numbers[12..].len() as f64, "{rates:?} from {first}: {numbers:?}");
            assert!(numbers.iter().all(|number| (2..=4).contains(number)));
        }
    }
}

#[test]
fn a_load_that_grows_during_a_trial_proves_nothing() {
    // Two and three workers finish the same, but ever more requests come.
    let numbers = probe(2, 10, |_, window| 100.0 + 10.0 * window as f64);
    assert!(numbers.iter().all(|number| *number <= 3), "{numbers:?}");
    assert_eq!(*numbers.last().unwrap(), 2, "{numbers:?}");
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
    assert_eq!(sizing.reason(12, now + 9 * peaks::PERIOD).to_string(), why);
    for moment in [8, 10] {
        decide(&mut sizing, sample((0, 0, 80, 900), 78.0), now + moment * peaks::PERIOD);
    }
    sizing.decide(sample((70, 0, 80, 0), 0.0), now + 20 * peaks::PERIOD);
    assert_eq!(
        sizing.reason(80, now + 55 * peaks::PERIOD).to_string(),
        "80 workers: 2 cores, 87 % of a request is waiting, 26 were useful 45 s ago, memory allows 140"
    );
    let (before, tried) = (rate(2, 31_120.0), rate(3, 30_004.0));
    sizing.verdict = Some((now, Verdict { before, tried, keep: 2 }));
    assert_eq!(
        sizing.reason(2, now + Duration::from_secs(12)).to_string(),
        "2 workers: 2 cores, 87 % of a request is waiting, tried 12 s ago: 31120 requests/s with 2 workers, 30004 with \
         3, memory allows 140"
    );
}
