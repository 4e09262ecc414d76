//! How the number of workers follows the load, in simulations of minutes.

use super::pages::{ms, seconds};
use super::simulated::{Automatic, automatic, automatic_with};
use howdah_simulator::scenario::{Arrivals, Clients, Disturbance, DisturbanceKind, Page, Scenario};
use std::time::Duration;

const COMPUTES: Page = Page::computes(ms(10));
const WAITS: Page = Page::waits(ms(1), ms(49));

#[test]
fn code_that_computes_has_a_worker_for_each_core_even_under_overload() {
    for per_second in [50.0, 150.0, 600.0] {
        let outcome = automatic(&Scenario::new(seconds(60), vec![Clients::open(per_second, COMPUTES)]));
        assert!((2..=4).contains(&outcome.most_workers), "{}", outcome.most_workers);
        let expected = per_second.min(196.0);
        let finished = outcome.ok_per_second(seconds(0), seconds(60));
        assert!(finished >= expected * 0.92, "{finished} of {expected}");
    }
}

#[test]
fn code_that_waits_has_as_many_workers_as_its_requests_need() {
    for per_second in [100.0, 500.0, 1500.0] {
        let clients = Clients::new(Arrivals::Open { per_second, is_random: false }, WAITS);
        let outcome = automatic(&Scenario::new(seconds(30), vec![clients]));
        let needed = (per_second * 0.05) as usize;
        let workers = outcome.workers_at(seconds(30));
        assert!((needed..=needed * 5 / 2 + 8).contains(&workers), "{needed}: {workers}");
        let p99 = outcome.percentile(0.99, seconds(3), seconds(30));
        assert!(p99 <= ms(65), "p99 {p99:?} with {workers} workers for {per_second} requests/s");
        assert!(outcome.turns <= 2, "{} turns", outcome.turns);
    }
}

#[test]
fn a_burst_gets_workers_within_some_tens_of_milliseconds_and_they_are_retired_slowly() {
    let burst = Clients::burst(seconds(5), 1500, WAITS);
    let outcome = automatic(&Scenario::new(seconds(760), vec![Clients::open(10.0, WAITS), burst]));
    // 1500 requests of 1 ms of a processor: 750 ms at least.
    let slowest = outcome.percentile(1.0, seconds(5), seconds(10));
    assert!(slowest < ms(1150), "{slowest:?}");
    assert!(outcome.workers_at(ms(5200)) > 50);
    assert!(outcome.workers_at(seconds(30)) > 50, "{}", outcome.workers_at(seconds(30)));
    assert!(outcome.workers_at(seconds(760)) <= 8, "{}", outcome.workers_at(seconds(760)));
    assert!(outcome.turns <= 2, "{} turns", outcome.turns);
}

#[test]
fn a_slow_database_gets_more_workers_and_a_quick_one_fewer() {
    let page = |wait| Page::waits(ms(2), ms(wait));
    let clients = [(0, 40, 8), (40, 80, 400), (80, 740, 8)]
        .map(|(from, until, wait)| Clients::open(100.0, page(wait)).between(seconds(from), seconds(until)));
    let outcome = automatic(&Scenario::new(seconds(740), clients.to_vec()));
    assert!(outcome.workers_at(seconds(30)) <= 12, "{}", outcome.workers_at(seconds(30)));
    assert!((40..=100).contains(&outcome.workers_at(seconds(60))), "{}", outcome.workers_at(seconds(60)));
    assert!(outcome.workers_at(seconds(739)) <= 12, "{}", outcome.workers_at(seconds(739)));
    assert_eq!(outcome.waiting, 0);
    assert!(outcome.turns <= 16, "{} turns", outcome.turns);
}

#[test]
fn workers_that_use_much_memory_stay_within_it() {
    // A worker of 100 MiB, and 1000 MiB.
    let scenario = Scenario::new(seconds(30), vec![Clients::closed(100, WAITS)]);
    let mut policy = Automatic::new(&scenario).with_worker_bytes(100 << 20);
    let outcome = automatic_with(&mut policy, &scenario);
    assert!(outcome.most_workers <= 10, "{}", outcome.most_workers);
    assert_eq!(outcome.workers_at(seconds(30)), 10);
}

#[test]
fn slow_pages_do_not_block_quick_ones() {
    let pages = vec![(9, Page::computes(ms(2))), (1, Page::waits(ms(1), ms(200)))];
    let clients = Clients::open(200.0, WAITS).with_pages(pages);
    let outcome = automatic(&Scenario::new(seconds(60), vec![clients]));
    assert!((5..=30).contains(&outcome.workers_at(seconds(60))), "{}", outcome.workers_at(seconds(60)));
    let p85 = outcome.percentile(0.85, seconds(15), seconds(60));
    assert!(p85 <= ms(12), "p85 {p85:?}");
    assert!(outcome.turns <= 6, "{} turns", outcome.turns);
}

#[test]
fn the_number_of_workers_falls_when_waiting_code_begins_to_compute() {
    let clients = vec![
        Clients::open(1000.0, WAITS).between(seconds(0), seconds(40)),
        Clients::open(150.0, COMPUTES).between(seconds(40), seconds(720)),
    ];
    let outcome = automatic(&Scenario::new(seconds(720), clients));
    assert!(outcome.workers_at(seconds(30)) >= 50, "{}", outcome.workers_at(seconds(30)));
    assert!(outcome.workers_at(seconds(720)) <= 6, "{}", outcome.workers_at(seconds(720)));
}

#[test]
fn workers_that_compete_for_the_processors_exit_within_some_seconds() {
    let clients = vec![
        Clients::closed(300, WAITS).between(seconds(0), seconds(5)),
        Clients::closed(100, Page::computes(Duration::from_micros(60))).between(seconds(5), seconds(20)),
    ];
    let outcome = automatic(&Scenario::new(seconds(20), clients));
    assert!(outcome.workers_at(seconds(4)) >= 50, "{}", outcome.workers_at(seconds(4)));
    let most = outcome.most_workers_between(seconds(10), seconds(20));
    assert!(most <= 32, "{most} workers five seconds later");
}

#[test]
fn hundreds_of_workers_start_within_a_second_if_requests_wait_for_others() {
    let outcome = automatic(&Scenario::new(
        seconds(2),
        vec![Clients::closed(500, Page::waits(Duration::from_micros(60), ms(50)))],
    ));
    assert!(outcome.workers_at(ms(500)) >= 400, "{}", outcome.workers_at(ms(500)));
}

#[test]
fn more_workers_for_a_lock_are_taken_back() {
    // Four requests at a time have the lock: with more than a few workers, the others only wait for it.
    let clients = vec![
        Clients::closed(3, Page::waits(ms(1), ms(20)).at_resource()).between(seconds(0), seconds(10)),
        Clients::closed(200, Page::waits(ms(1), ms(20)).at_resource()).between(seconds(2), seconds(60)),
    ];
    let scenario = Scenario { resource: 4, ..Scenario::new(seconds(60), clients) };
    let outcome = automatic(&scenario);
    let workers: Vec<_> = (10..60).map(|second| outcome.workers_at(seconds(second))).collect();
    let many = workers.iter().filter(|workers| **workers > 100).count();
    assert!(many <= 8 && *workers.last().unwrap() <= 64, "{workers:?}");
}

#[test]
fn stopped_workers_and_a_noisy_neighbour_are_no_reason_for_many_workers() {
    for (kind, page) in [(DisturbanceKind::WorkersStop, COMPUTES), (DisturbanceKind::Neighbour { tasks: 4 }, COMPUTES)]
    {
        let disturbances = vec![Disturbance { from: seconds(3), until: seconds(6), kind }];
        let scenario = Scenario { disturbances, ..Scenario::new(seconds(15), vec![Clients::closed(300, page)]) };
        let outcome = automatic(&scenario);
        assert!(outcome.most_workers_between(seconds(3), seconds(12)) <= 16, "{kind:?}");
        assert!(outcome.most_workers_between(seconds(12), seconds(15)) <= 4, "{kind:?}");
    }
}
