//! The simulator against the laws of queues, and each disturbance.

use super::*;
use crate::policy::{Fixed, WaitUpTo};
use crate::scenario::{Clients, Disturbance, Page, Retry};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const COMPUTES: Page = Page::computes(ms(10));
const WAITS: Page = Page::waits(ms(1), ms(49));

fn play(scenario: &Scenario, workers: usize) -> Outcome {
    run(scenario, &mut Fixed(workers), &mut WaitUpTo(seconds(10)))
}

fn throughput(clients: Clients, workers: usize) -> f64 {
    play(&Scenario::new(seconds(11), vec![clients]), workers).ok_per_second(seconds(1), seconds(11))
}

fn is_near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.08
}

#[test]
fn the_laws_of_queues_hold() {
    let table = [
        // Utilisation law: two processors, 10 ms each.
        (Clients::closed(20, COMPUTES), 2, 200.0),
        (Clients::closed(20, COMPUTES), 16, 200.0),
        (Clients::closed(20, COMPUTES), 1, 100.0),
        // Little's law: 8 workers or clients, 50 ms each.
        (Clients::closed(20, WAITS), 8, 160.0),
        (Clients::closed(8, WAITS), 20, 160.0),
        // All requests that come.
        (Clients::open(150.0, COMPUTES), 2, 150.0),
        (Clients::open(300.0, WAITS.random()), 64, 300.0),
    ];
    for (clients, workers, expected) in table {
        let measured = throughput(clients.clone(), workers);
        assert!(is_near(measured, expected), "{measured} of {expected}: {clients:?}");
    }
}

#[test]
fn more_workers_than_processors_slow_down_a_page_that_is_shorter_than_a_context_switch() {
    let hello = Page::computes(Duration::from_micros(18));
    let [two, many] = [2, 31].map(|workers| throughput(Clients::closed(20, hello), workers));
    assert!(many < two, "{two} with 2, {many} with 31");
}

#[test]
fn a_resource_bounds_the_requests_that_use_it() {
    let clients = Clients::closed(40, WAITS.at_resource());
    let scenario = Scenario { resource: 4, ..Scenario::new(seconds(4), vec![clients]) };
    let measured = play(&scenario, 32).ok_per_second(seconds(1), seconds(4));
    assert!(is_near(measured, 4.0 / 0.049), "{measured}");
}

#[test]
fn disturbances_begin_and_end() {
    let stop = DisturbanceKind::WorkersStop;
    let table = [
        // The kind, the page → the least and the most answers per second meanwhile.
        (stop, COMPUTES, 0.0, 0.0),
        (DisturbanceKind::WaitsHang, WAITS, 0.0, 0.0),
        (DisturbanceKind::PagesSlow { factor: 4.0 }, COMPUTES, 45.0, 55.0),
        (DisturbanceKind::Neighbour { tasks: 2 }, COMPUTES, 80.0, 120.0),
        (DisturbanceKind::Deploy { factor: 4.0 }, COMPUTES, 45.0, 55.0),
    ];
    for (kind, page, least, most) in table {
        let disturbance = Disturbance { from: seconds(2), until: seconds(4), kind };
        let clients = vec![Clients::closed(20, page)];
        let scenario = Scenario { disturbances: vec![disturbance], ..Scenario::new(seconds(6), clients) };
        let outcome = play(&scenario, 2);
        let [before, meanwhile, after] =
            [1000, 2600, 5000].map(|from| outcome.ok_per_second(ms(from), ms(from + 1000)));
        assert!((least..=most).contains(&meanwhile), "{kind:?}: {meanwhile}");
        assert!(is_near(after, before), "{kind:?}: {before} before, {after} after");
    }
}

#[test]
fn a_request_that_waits_for_too_long_is_rejected_and_its_client_returns_as_it_likes() {
    // 400 requests of 10 ms at once are 2 s of work.
    let rejected = |retry| {
        let burst = Clients::burst(Duration::ZERO, 400, COMPUTES).with_retry(retry);
        let outcome = run(&Scenario::new(seconds(6), vec![burst]), &mut Fixed(2), &mut WaitUpTo(seconds(1)));
        (outcome.ok_per_second(Duration::ZERO, seconds(6)) * 6.0, outcome.errors(Duration::ZERO, seconds(6)))
    };
    let (ok, errors) = rejected(Retry::GiveUp);
    assert!(is_near(ok, 200.0) && ok + errors as f64 == 400.0, "{ok} and {errors} errors");
    let (ok, errors) = rejected(Retry::After(Duration::ZERO));
    assert!(ok == 400.0 && errors >= 180, "{ok} and {errors} errors");
    let first = seconds(1);
    let (ok, errors) = rejected(Retry::BackOff { first, longest: seconds(4) });
    assert!(ok == 400.0 && (180..=220).contains(&errors), "{ok} and {errors} errors");
}

#[test]
fn a_client_without_patience_leaves_the_queue() {
    let clients = Clients { patience: Some(ms(300)), ..Clients::burst(Duration::ZERO, 400, COMPUTES) };
    let outcome = play(&Scenario::new(seconds(3), vec![clients]), 2);
    let ok = outcome.ok_per_second(Duration::ZERO, seconds(3)) * 3.0;
    assert!((50.0..=70.0).contains(&ok), "{ok}");
    assert_eq!(outcome.errors(Duration::ZERO, seconds(3)), 400 - ok as usize);
}

/// Refuses, holds or queues by the number of requests that wait.
#[derive(Debug)]
struct Scripted;

impl Admission for Scripted {
    fn admit(&mut self, queue: QueueView, held: Duration, _now: Duration) -> Verdict {
        match queue.waiting {
            0..10 => Verdict::Queue { limit: seconds(1) },
            _ if held < ms(100) => Verdict::Hold { pause: ms(50) },
            _ => Verdict::Refuse { pause: ms(200) },
        }
    }
}

#[test]
fn the_admission_policy_can_hold_and_refuse_after_a_pause() {
    let burst = Clients::burst(Duration::ZERO, 100, COMPUTES);
    let outcome = run(&Scenario::new(seconds(2), vec![burst]), &mut Fixed(2), &mut Scripted);
    let ok = outcome.ok_per_second(Duration::ZERO, seconds(2)) * 2.0;
    // 12 at once, and 20 in the 100 ms of the holds.
    assert!((28.0..=36.0).contains(&ok), "{ok}");
    assert_eq!(outcome.errors(ms(300), ms(400)), 100 - ok as usize);
    assert_eq!(outcome.errors(Duration::ZERO, ms(300)), 0);
}

#[test]
fn the_same_scenario_has_the_same_outcome() {
    let scenario = Scenario::new(seconds(2), vec![Clients::open(500.0, WAITS.random())]);
    let [first, second] = [play(&scenario, 20), play(&scenario, 20)];
    assert_eq!(first.answers.len(), second.answers.len());
    assert_eq!(first.percentile(0.99, ms(0), seconds(2)), second.percentile(0.99, ms(0), seconds(2)));
}
