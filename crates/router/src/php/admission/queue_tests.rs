//! The policy, in a simulation of clients.

use super::*;
use std::collections::VecDeque;

const TIMEOUT: Duration = Duration::from_secs(10);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The clients' experience, in milliseconds.
#[derive(Default)]
struct Seen {
    /// For each served request: when it came, and how long it took.
    served: Vec<(u64, u64)>,
    /// For each rejected request: how long that took.
    rejected: Vec<u64>,
}

/// `capacity` requests are finished per second, `coming(now)` come in each millisecond. `looping` clients wait for their
/// answer before they send the next request.
fn simulate(seconds: u64, capacity: f64, looping: usize, coming: impl Fn(u64) -> f64) -> Seen {
    let start = Instant::now();
    let mut queue = Queue::new(TIMEOUT);
    let (mut waiting, mut seen) = (VecDeque::<(u64, Duration)>::new(), Seen::default());
    let (mut credit, mut due, mut idle_clients) = (0.0, 0.0, looping);
    for now in 0..seconds * 1000 {
        let at = start + MILLISECOND * now as u32;
        due += coming(now);
        let open = due as usize;
        due -= open as f64;
        for _ in 0..open + std::mem::take(&mut idle_clients) {
            let arrival = Arrival { waiting: waiting.len() as u64, workers: 4 };
            queue.measure(arrival.waiting, at);
            match queue.enqueue(arrival) {
                Ok(allowed) => waiting.push_back((now, allowed)),
                Err(_) => {
                    seen.rejected.push(0);
                    idle_clients += usize::from(looping > 0);
                }
            }
        }
        credit = (credit + capacity / 1000.0).min(4.0);
        while credit >= 1.0
            && let Some((came, _)) = waiting.pop_front()
        {
            credit -= 1.0;
            queue.finished(1);
            seen.served.push((came, now - came));
            idle_clients += usize::from(looping > 0);
        }
        if now % 250 == 0 {
            queue.measure(waiting.len() as u64, at);
            waiting.retain(|(came, allowed)| {
                let late = Duration::from_millis(now - came) > queue.longest_wait(*allowed);
                if late {
                    seen.rejected.push(now - came);
                    idle_clients += usize::from(looping > 0);
                }
                !late
            });
        }
    }
    seen
}

fn percentile(times: impl Iterator<Item = u64>, share: f64) -> u64 {
    let mut sorted: Vec<_> = times.collect();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

#[test]
fn under_lasting_overload_the_served_stay_quick_and_the_others_are_rejected_at_once() {
    let seen = simulate(60, 500.0, 0, |_| 1.5);
    assert!(seen.served.len() as f64 >= 0.95 * 500.0 * 60.0, "{} served", seen.served.len());
    let slow = percentile(seen.served.iter().map(|(_, took)| *took), 0.99);
    assert!(slow < 2 * (TIMEOUT / BOUND).as_millis() as u64, "p99 {slow} ms");
    assert_eq!(percentile(seen.rejected.iter().copied(), 0.9), 0, "most are rejected when they come");
}

#[test]
fn after_the_overload_everything_is_quick_again() {
    let seen = simulate(30, 500.0, 0, |now| if now < 15_000 { 1.5 } else { 0.25 });
    let late = seen.served.iter().filter(|(came, _)| *came > 17_000).map(|(_, took)| *took);
    assert!(percentile(late, 0.99) <= 5);
    let served_late = seen.served.iter().filter(|(came, _)| *came >= 17_000).count();
    assert_eq!(served_late, 13_000 / 4);
}

#[test]
fn a_burst_is_queued() {
    let seen = simulate(10, 500.0, 0, |now| if now == 100 { 1500.0 } else { 0.1 });
    assert_eq!((seen.rejected.len(), seen.served.len()), (0, 1500 + 999));
}

#[test]
fn clients_that_wait_for_their_answers_are_all_served() {
    for (clients, capacity) in [(1500, 2000.0), (1500, 200.0), (100, 15.0)] {
        let seen = simulate(60, capacity, clients, |_| 0.0);
        assert_eq!(seen.rejected.len(), 0, "{clients} at {capacity}");
    }
}

#[test]
fn a_request_that_cannot_be_served_in_time_is_rejected_at_once() {
    // 1500 clients at 100 a second: the last ones would wait for 15 s.
    let seen = simulate(60, 100.0, 1500, |_| 0.0);
    assert!(!seen.rejected.is_empty());
    assert!(seen.served.iter().all(|(_, took)| Duration::from_millis(*took) <= TIMEOUT + 250 * MILLISECOND));
    assert!(seen.served.len() >= 95 * 60, "{}", seen.served.len());
}

#[test]
fn slow_code_keeps_all_workers_at_work() {
    // Four workers, two seconds for each request, six times too many.
    let seen = simulate(120, 2.0, 0, |_| 0.012);
    assert!(seen.served.len() >= 2 * 120 * 95 / 100, "{} served", seen.served.len());
}

#[test]
fn a_request_is_rejected_at_once_if_its_turn_comes_too_late() {
    let now = Instant::now();
    let mut queue = Queue::new(TIMEOUT);
    let arrival = |waiting| Arrival { waiting, workers: 1 };
    assert_eq!(queue.enqueue(arrival(0)), Ok(TIMEOUT));
    // A hundred requests are finished per second.
    queue.measure(400, now);
    queue.finished(100);
    queue.measure(400, now + WINDOW);
    assert_eq!(queue.enqueue(arrival(400)), Ok(TIMEOUT));
    assert_eq!(queue.enqueue(arrival(1100)), Err(TooBusy { retry_after: 11 }));
}
