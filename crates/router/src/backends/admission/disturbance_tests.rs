//! The queue and the pace of rejections on a simulated machine, on which clients, router and workers share the processors:
//! whatever disturbs a load that can be sustained, its errors end soon after it.

use super::queue::{Arrival, Queue, Verdict};
use super::refusals::RefusalPace;
use howdah_simulator::policy::{Admission, Fixed, QueueView, Verdict as Simulated};
use howdah_simulator::scenario::{Clients, Disturbance, DisturbanceKind, Page, Retry, Scenario};
use howdah_simulator::{Outcome, run};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a held request asks again. The router wakes it when the decision changes.
const ASK_AGAIN: Duration = Duration::from_millis(20);
const PAGE: Page = Page::computes(Duration::from_millis(10));
const DISTURBED: u64 = 5;
const LENGTH: u64 = 25;

/// howdah's policy, as `SharedGeneration` applies it.
struct Howdah {
    start: Instant,
    queue: Queue,
    pace: RefusalPace,
}

impl fmt::Debug for Howdah {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(f)
    }
}

impl Howdah {
    fn new() -> Howdah {
        Howdah { start: Instant::now(), queue: Queue::new(TIMEOUT), pace: RefusalPace::new(2) }
    }
}

fn arrival(view: QueueView) -> Arrival {
    Arrival { waiting: view.waiting as u64, workers: view.workers as u64, places: view.workers as u64 }
}

impl Admission for Howdah {
    fn admit(&mut self, view: QueueView, held: Duration, now: Duration) -> Simulated {
        let verdict = match held.is_zero() {
            true => self.queue.enqueue(arrival(view)),
            false => self.queue.forecast(arrival(view)),
        };
        match verdict {
            Verdict::Admit(longest) => Simulated::Queue { limit: longest.saturating_sub(held) },
            Verdict::Hold if held < TIMEOUT => Simulated::Hold { pause: ASK_AGAIN },
            Verdict::Hold | Verdict::Reject(_) => {
                let now = self.start + now;
                Simulated::Refuse { pause: self.pace.reserve(now) - now }
            }
        }
    }

    fn longest_wait(&self, limit: Duration) -> Duration {
        self.queue.longest_wait(limit)
    }

    fn on_finished(&mut self, _now: Duration) {
        self.queue.finished(1);
    }

    fn on_rejected(&mut self, _now: Duration) {
        self.queue.rejected();
    }

    fn on_left(&mut self, _now: Duration) {
        self.queue.cancel();
    }

    fn on_deploy(&mut self, _now: Duration) {
        *self = Howdah { start: self.start, ..Howdah::new() };
    }

    fn measure(&mut self, view: QueueView, now: Duration) {
        self.queue.measure(view.waiting as u64, self.start + now);
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn play(clients: Vec<Clients>, disturbance: Option<Disturbance>) -> Outcome {
    let mut scenario = Scenario::new(seconds(LENGTH), clients);
    scenario.disturbances.extend(disturbance);
    run(&scenario, &mut Fixed(2), &mut Howdah::new())
}

/// Names, and how long each lasts.
fn disturbances() -> Vec<(&'static str, u64, DisturbanceKind)> {
    vec![
        ("a cold opcache", 2, DisturbanceKind::PagesSlow { factor: 5.0 }),
        ("stopped workers", 2, DisturbanceKind::WorkersStop),
        ("workers stopped for longer", 3, DisturbanceKind::WorkersStop),
        ("a neighbour", 3, DisturbanceKind::Neighbour { tasks: 6 }),
        ("a deploy", 1, DisturbanceKind::Deploy { factor: 5.0 }),
        ("a deploy of a large application", 3, DisturbanceKind::Deploy { factor: 10.0 }),
    ]
}

const RETRIES: [Retry; 3] = [
    Retry::After(Duration::ZERO),
    Retry::After(Duration::from_secs(1)),
    Retry::BackOff { first: Duration::from_millis(250), longest: Duration::from_secs(16) },
];

#[test]
fn after_a_disturbance_clients_that_wait_for_their_answers_see_no_error() {
    for (name, length, kind) in disturbances() {
        for retry in RETRIES {
            for count in [20, 300, 900] {
                let until = DISTURBED + length;
                let disturbance = Disturbance { from: seconds(DISTURBED), until: seconds(until), kind };
                let outcome = play(vec![Clients::closed(count, PAGE).with_retry(retry)], Some(disturbance));
                let case = format!("{name}, {count} clients, {retry:?}");
                assert_eq!(outcome.errors(Duration::ZERO, seconds(LENGTH)), 0, "{case}");
                let before = outcome.ok_per_second(seconds(1), seconds(DISTURBED));
                let after = outcome.ok_per_second(seconds(until + 2), seconds(LENGTH));
                assert!(after >= 0.97 * before, "{case}: {before} before, {after} after");
            }
        }
    }
}

#[test]
fn after_a_disturbance_requests_at_a_rate_are_all_answered_soon() {
    for (name, length, kind) in disturbances() {
        for retry in RETRIES {
            let until = DISTURBED + length;
            let disturbance = Disturbance { from: seconds(DISTURBED), until: seconds(until), kind };
            let outcome = play(vec![Clients::open(110.0, PAGE).with_retry(retry)], Some(disturbance));
            let errors = outcome.errors(seconds(until + 2), seconds(LENGTH));
            assert_eq!(errors, 0, "{name}, {retry:?}");
        }
    }
}

/// Workers that wait for a database, which hangs.
#[test]
fn after_a_hanging_database_all_requests_are_answered() {
    const LENGTH_OF_HANG: u64 = 5;
    let page = Page::waits(Duration::from_millis(2), Duration::from_millis(20));
    let until = DISTURBED + LENGTH_OF_HANG;
    for retry in RETRIES {
        for clients in [Clients::closed(300, page), Clients::open(300.0, page)] {
            let clients = clients.with_retry(retry);
            let mut scenario = Scenario::new(seconds(LENGTH), vec![clients.clone()]);
            let kind = DisturbanceKind::WaitsHang;
            scenario.disturbances.push(Disturbance { from: seconds(DISTURBED), until: seconds(until), kind });
            let outcome = run(&scenario, &mut Fixed(20), &mut Howdah::new());
            let case = format!("{:?}, {retry:?}", clients.arrivals);
            assert_eq!(outcome.errors(Duration::ZERO, seconds(LENGTH)), 0, "{case}");
            let before = outcome.ok_per_second(seconds(1), seconds(DISTURBED));
            let after = outcome.ok_per_second(seconds(until + 2), seconds(LENGTH));
            assert!(after >= 0.97 * before, "{case}: {before} before, {after} after");
        }
    }
}

#[test]
fn a_burst_beside_clients_that_wait_ends() {
    for retry in RETRIES {
        let clients = [
            Clients::open(60.0, PAGE).with_retry(retry),
            Clients::burst(seconds(DISTURBED), 5000, Page::computes(Duration::from_millis(2)))
                .with_retry(Retry::GiveUp),
        ];
        let outcome = play(clients.to_vec(), None);
        assert_eq!(outcome.errors(Duration::ZERO, seconds(LENGTH)), 0, "{retry:?}");
    }
}

/// More clients than can be served in time: the answers stay as many as the processors can give.
#[test]
fn clients_that_retry_at_once_take_no_processor_time() {
    let few = play(vec![Clients::closed(20, PAGE)], None).ok_per_second(seconds(2), seconds(LENGTH));
    for retry in RETRIES {
        let clients = Clients::closed(3000, PAGE).with_retry(retry);
        let many = play(vec![clients], None).ok_per_second(seconds(2), seconds(LENGTH));
        assert!(many >= 0.95 * few, "{retry:?}: {many} instead of {few} per second");
    }
}
