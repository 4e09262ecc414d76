//! The policy against the best constant number of workers, in hundreds of simulations: it never loses to a number.
//!
//! A cell is a page, a number of clients and a machine. From the third second on, the policy completes at least
//! [`SHARE`] of the requests of the best number. Pages that only compute are compared with the numbers that they may
//! have: up to the processors and two.

use super::pages::*;
use super::simulated::automatic;
use howdah_simulator::policy::{Fixed, WaitUpTo};
use howdah_simulator::run;
use howdah_simulator::scenario::{Arrivals, Clients, Costs, Disturbance, DisturbanceKind, Page, Scenario};
use std::time::Duration;

const SHARE: f64 = 0.95;

const LENGTH: Duration = seconds(5);
const WINDOW: Duration = seconds(2);
/// Requests per second.
const FAST: f64 = 5000.0;

/// The constant numbers of workers. Fewer than the processors and two for pages that only compute; more for others.
const NUMBERS: [usize; 11] = [1, 2, 3, 4, 5, 6, 8, 16, 32, 64, 128];

fn computes(pages: &[Page]) -> bool {
    pages.iter().all(|page| page.wait == Duration::ZERO)
}

/// The policy's requests per second, and those of the best number.
fn race(scenario: &Scenario, only_computes: bool) -> (f64, (f64, usize)) {
    let outcome = automatic(scenario);
    if only_computes {
        let most = outcome.most_workers_between(Duration::ZERO, scenario.length);
        assert!(most <= scenario.cores + 2, "{most} workers: {scenario:?}");
    }
    let is_useful = |number: &usize| match only_computes {
        true => *number <= scenario.cores + 2,
        // All clients have a worker each: a larger number is the same.
        false => *number >= 4 && *number < 2 * scenario.clients.iter().map(Clients::most_at_a_time).sum::<usize>(),
    };
    let ours = outcome.ok_per_second(scenario.length - WINDOW, scenario.length);
    // Of a fast page, a short window has enough requests.
    let (from, until) = if ours > FAST { (LENGTH / 5, LENGTH / 3) } else { (LENGTH - WINDOW, LENGTH) };
    let rates = NUMBERS.into_iter().filter(is_useful).map(|number| {
        let scenario = Scenario { length: until, ..scenario.clone() };
        let outcome = run(&scenario, &mut Fixed(number), &mut WaitUpTo(seconds(10)));
        (outcome.ok_per_second(from, until), number)
    });
    let best = rates.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    (ours, best)
}

/// Plays all cells, and lists the ones that were lost.
fn expect_no_loss(cells: impl IntoIterator<Item = (String, Scenario, bool)>) -> usize {
    let mut count = 0;
    let mut lost = Vec::new();
    for (name, scenario, only_computes) in cells {
        let (ours, (best, number)) = race(&scenario, only_computes);
        count += 1;
        println!("{:.3} {name}: {ours:.0} requests/s, {best:.0} with {number} workers", ours / best);
        if ours < SHARE * best {
            lost.push(format!("{name}: {ours:.0} requests/s, {best:.0} with {number} workers: {:.2}", ours / best));
        }
    }
    assert!(lost.is_empty(), "{} of {count} cells lost:\n{}", lost.len(), lost.join("\n"));
    count
}

fn cells<'p>(
    pages: &'p [(&'p str, &'p [Page])],
    cores: &'p [usize],
    connections: &'p [usize],
) -> impl Iterator<Item = (String, Scenario, bool)> {
    pages.iter().flat_map(move |(name, pages)| {
        cores.iter().flat_map(move |cores| {
            connections.iter().map(move |count| {
                let scenario = Scenario { cores: *cores, ..Scenario::new(LENGTH, vec![clients(*count, pages)]) };
                (format!("{name}, {count} connections, {cores} cores"), scenario, computes(pages))
            })
        })
    })
}

#[test]
fn short_pages_that_compute() {
    expect_no_loss(cells(&[("hello", &[HELLO]), ("json", &[JSON])], &[2], &[8, 20, 100, 500]));
    expect_no_loss(cells(&[("hello", &[HELLO]), ("json", &[JSON])], &[4], &[100]));
}

#[test]
fn longer_pages_that_compute() {
    let pages: [(&str, &[Page]); 6] = [
        ("phpinfo", &[PHPINFO]),
        ("loop", &[LOOP]),
        ("10 ms", &[Page::computes(ms(10))]),
        ("20 ms", &[Page::computes(ms(20))]),
        ("2 ms, random", &[LOOP.random()]),
        ("phpinfo and 10 ms", &[PHPINFO, Page::computes(ms(10))]),
    ];
    expect_no_loss(cells(&pages, &[1, 2, 4], &[8, 20, 100, 500]));
}

#[test]
fn pages_that_wait() {
    let pages: [(&str, &[Page]); 8] = [
        ("sleep 5 ms", &[SLEEP_5]),
        ("sleep 5 ms, random", &[SLEEP_5.random()]),
        ("sleep 50 ms", &[SLEEP_50]),
        ("sleep 500 ms", &[Page::waits(us(60), ms(500))]),
        ("1 ms in 5 ms", &[Page::waits(ms(1), ms(4))]),
        ("2 ms in 4 ms", &[Page::waits(ms(2), ms(2))]),
        ("ten queries", &[Page::waits(ms(1), ms(10)).in_waits(10)]),
        ("ten queries, random", &[Page::waits(ms(1), ms(10)).in_waits(10).random()]),
    ];
    expect_no_loss(cells(&pages, &[2, 4], &[8, 20, 100, 500]));
}

#[test]
fn pages_of_both_kinds() {
    let pages: [(&str, &[Page]); 5] = [
        ("half json, half sleep 5 ms", &[JSON, SLEEP_5]),
        ("half json, half sleep 50 ms", &[JSON, SLEEP_50]),
        ("half phpinfo, half sleep 50 ms", &[PHPINFO, SLEEP_50]),
        ("half loop, half sleep 50 ms", &[LOOP, SLEEP_50]),
        ("three loops and a sleep of 500 ms", &[LOOP, LOOP, LOOP, Page::waits(us(60), ms(500))]),
    ];
    expect_no_loss(cells(&pages, &[2, 4], &[8, 20, 100, 500]));
}

#[test]
fn requests_that_come_at_a_rate() {
    let pages: [(&str, Page, f64); 5] = [
        ("json", JSON, 12_000.0),
        ("loop", LOOP, 900.0),
        ("sleep 5 ms", SLEEP_5, 10_000.0),
        ("sleep 50 ms", SLEEP_50, 2500.0),
        ("1 ms in 5 ms", Page::waits(ms(1), ms(4)), 1800.0),
    ];
    let cells = pages.into_iter().flat_map(|(name, page, capacity)| {
        [0.3, 0.6, 0.9].into_iter().flat_map(move |share| {
            [true, false].map(|is_random| {
                let arrivals = Arrivals::Open { per_second: capacity * share, is_random };
                let scenario = Scenario::new(LENGTH, vec![Clients::new(arrivals, page)]);
                (format!("{name}, {share} of the capacity, random: {is_random}"), scenario, computes(&[page]))
            })
        })
    });
    expect_no_loss(cells);
}

#[test]
fn clients_that_think() {
    let pages = [("json", JSON), ("loop", LOOP), ("sleep 5 ms", SLEEP_5), ("sleep 50 ms", SLEEP_50)];
    let cells = pages.into_iter().flat_map(|(name, page)| {
        [20, 100, 500].into_iter().flat_map(move |clients| {
            [10, 100].map(|think| {
                let arrivals = Arrivals::Closed { clients, think: ms(think) };
                let scenario = Scenario::new(LENGTH, vec![Clients::new(arrivals, page)]);
                (format!("{name}, {clients} clients that think for {think} ms"), scenario, computes(&[page]))
            })
        })
    });
    expect_no_loss(cells);
}

#[test]
fn ten_seconds_after_a_burst() {
    let pages =
        [("json", JSON), ("phpinfo", PHPINFO), ("loop", LOOP), ("sleep 5 ms", SLEEP_5), ("sleep 50 ms", SLEEP_50)];
    let cells = pages.into_iter().flat_map(|(name, page)| {
        [8, 20, 100, 500].map(|count| {
            // The burst is over after about a second; the page is measured from the third second on.
            // The burst is over before a constant number is measured, even with four workers.
            let burst = Clients::burst(Duration::ZERO, 200, SLEEP_50);
            let after = clients(count, &[page]);
            let scenario = Scenario::new(seconds(12), vec![burst, after]);
            (format!("{name}, {count} connections"), scenario, false)
        })
    });
    expect_no_loss(cells);
}

#[test]
fn beside_a_noisy_neighbour() {
    let neighbour = |tasks| Disturbance { from: seconds(0), until: LENGTH, kind: DisturbanceKind::Neighbour { tasks } };
    let pages = [("loop", LOOP), ("10 ms", Page::computes(ms(10))), ("sleep 50 ms", SLEEP_50)];
    let cells = pages.into_iter().flat_map(|(name, page)| {
        [8, 20, 100, 500].into_iter().flat_map(move |count| {
            [1, 2].map(|tasks| {
                let scenario = Scenario::new(LENGTH, vec![clients(count, &[page])]);
                let scenario = Scenario { disturbances: vec![neighbour(tasks)], ..scenario };
                (format!("{name}, {count} connections beside {tasks} tasks"), scenario, computes(&[page]))
            })
        })
    });
    expect_no_loss(cells);
}

/// A machine on which a wake-up and a change of the task are expensive: the router and the clients use most of it.
fn slow_costs() -> Costs {
    let Costs { client, request, answer, .. } = Costs::default();
    Costs {
        client: client * 4,
        request: request * 4,
        answer: answer * 4,
        wake: us(12),
        switch: us(30),
        ..Costs::default()
    }
}

#[test]
fn the_router_and_other_programs_leave_a_part_of_the_processors_only() {
    // Other programs compute for a third of the time, some tenths of a second each.
    let neighbours = (0..20).map(|number| {
        let (from, tasks) = (ms(500 * number + 80 * (number % 3)), 1 + number as usize % 2);
        Disturbance { from, until: from + ms(100 + 60 * (number % 4)), kind: DisturbanceKind::Neighbour { tasks } }
    });
    let neighbours: Vec<_> = neighbours.collect();
    for (name, pages, most) in [("half", &[HELLO, SLEEP_5][..], 40), ("sleep 5 ms", &[SLEEP_5][..], 80)] {
        for (connections, disturbances) in [(100, Vec::new()), (100, neighbours.clone()), (500, neighbours.clone())] {
            let is_shared = !disturbances.is_empty();
            let (from, until) = (seconds(3), 2 * LENGTH);
            let scenario = Scenario::new(until, vec![clients(connections, pages)]);
            let scenario = Scenario { costs: slow_costs(), disturbances, ..scenario };
            let outcome = automatic(&scenario);
            let ours = outcome.ok_per_second(from, until);
            let fixed = run(&scenario, &mut Fixed(64), &mut WaitUpTo(seconds(10)));
            let theirs = fixed.ok_per_second(from, until);
            let workers = outcome.most_workers_between(from, until);
            let case = format!("{name}, {connections} connections, shared: {is_shared}");
            assert!(workers <= most, "{case}: {workers} workers");
            assert!(ours >= theirs, "{case}: {ours:.0} requests/s, {theirs:.0} with 64 workers");
        }
    }
}

#[test]
fn workers_start_beside_programs_that_always_compute() {
    for tasks in [2, 4] {
        let kind = DisturbanceKind::Neighbour { tasks };
        let disturbances = vec![Disturbance { from: Duration::ZERO, until: seconds(6), kind }];
        let late = clients(100, &[SLEEP_50]).between(seconds(3), seconds(6));
        let scenario = Scenario { disturbances, ..Scenario::new(seconds(6), vec![late]) };
        let outcome = automatic(&scenario);
        assert!(outcome.workers_at(ms(3500)) >= 90, "{}", outcome.workers_at(ms(3500)));
        let least = (8..12).map(|half| outcome.workers_at(half * ms(500))).min().unwrap();
        assert!(least >= 90, "{least} workers beside {tasks} tasks");
    }
}
