//! The policy and the pace of rejections, in a simulation of processors, workers and clients.

use super::super::refusals::RefusalPace;
use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const TIMEOUT: Duration = Duration::from_secs(10);
const CORES: f64 = 2.0;
/// The processor time of a rejection, in milliseconds: the router, the kernel, and a client on the same machine.
const REJECTION: f64 = 0.2;

/// The clients of a simulation.
#[derive(Clone, Copy, Debug)]
enum Clients {
    /// Requests come at this rate, in each millisecond, without regard to answers.
    Open(fn(u64) -> f64),
    /// This number of clients comes within this time, in milliseconds. Each waits for its answer, and comes again at once.
    /// After a rejection it comes again after a pause.
    Loop(usize, u64, Pause),
}

/// The pause of a client after its first, second, … rejection in sequence.
type Pause = fn(u32) -> u64;

const AT_ONCE: Pause = |_| 0;
const A_SECOND: Pause = |_| 1000;
const BACK_OFF: Pause = |rejections| 250 << rejections.min(6);

/// The machine of a simulation.
#[derive(Clone, Copy)]
struct Machine {
    /// How long a request uses a processor, in milliseconds.
    page: f64,
    workers: u64,
    /// The share of the processors that the workers have at a time.
    share: Share,
}

type Share = fn(u64) -> f64;

const QUICK: Machine = Machine { page: 10.0, workers: 2, share: |_| 1.0 };

/// The clients' experience, in milliseconds.
#[derive(Default)]
struct Seen {
    /// For each served request: when it came, and how long it took.
    served: Vec<(u64, u64)>,
    /// For each rejected request: when it came, and how long that took.
    rejected: Vec<(u64, u64)>,
    /// How often each client was served.
    turns: Vec<u32>,
}

/// A request that waits for its rejection.
struct Held {
    client: usize,
    came: u64,
    turn: Option<u64>,
}

struct Simulation {
    start: Instant,
    queue: Queue,
    pace: RefusalPace,
    workers: u64,
    waiting: VecDeque<(usize, u64, Duration)>,
    held: Vec<Held>,
    /// When clients come again.
    returning: BinaryHeap<Reverse<(u64, usize)>>,
    rejections: Vec<u32>,
    pause: Option<Pause>,
    seen: Seen,
}

impl Simulation {
    fn at(&self, now: u64) -> Instant {
        self.start + Duration::from_millis(now)
    }

    fn arrival(&self) -> Arrival {
        Arrival { waiting: self.waiting.len() as u64, workers: self.workers, places: self.workers }
    }

    fn measure(&mut self, now: u64) {
        if self.queue.measure(self.waiting.len() as u64, self.at(now)).is_some() {
            self.decide_about_held(now);
        }
    }

    fn come(&mut self, client: usize, now: u64) {
        self.measure(now);
        match self.queue.enqueue(self.arrival()) {
            Verdict::Admit(longest) => self.waiting.push_back((client, now, longest)),
            _ if !self.pace.begin_delay() => self.reject(client, now, now),
            _ => self.decide(Held { client, came: now, turn: None }, now),
        }
    }

    /// As `SharedGeneration::wait_for_admission` does.
    fn decide(&mut self, mut held: Held, now: u64) {
        match (self.queue.forecast(self.arrival()), held.turn) {
            (Verdict::Hold, _) => held.turn = None,
            (_, Some(_)) => {}
            (Verdict::Admit(longest), None) => {
                self.pace.end_delay();
                self.waiting.push_back((held.client, held.came, longest));
                return;
            }
            (Verdict::Reject(_), None) => {
                let at = self.at(now);
                held.turn = Some(now + (self.pace.reserve(at) - at).as_millis() as u64);
            }
        }
        if held.turn.is_some_and(|turn| turn <= now) {
            self.pace.end_delay();
            self.reject(held.client, held.came, now);
        } else {
            self.held.push(held);
        }
    }

    fn decide_about_held(&mut self, now: u64) {
        for held in std::mem::take(&mut self.held) {
            self.decide(held, now);
        }
    }

    fn reject(&mut self, client: usize, came: u64, now: u64) {
        self.queue.rejected();
        self.seen.rejected.push((came, now - came));
        if let Some(pause) = self.pause {
            self.returning.push(Reverse((now + 1 + pause(self.rejections[client]), client)));
            self.rejections[client] += 1;
        }
    }

    fn serve(&mut self, now: u64) {
        let Some((client, came, _)) = self.waiting.pop_front() else { return };
        self.queue.finished(1);
        self.seen.served.push((came, now - came));
        if self.pause.is_some() {
            self.seen.turns[client] += 1;
            self.rejections[client] = 0;
            self.returning.push(Reverse((now + 1, client)));
        }
    }
}

/// Milliseconds, one by one.
fn simulate(seconds: u64, machine: Machine, clients: Clients) -> Seen {
    let mut simulation = Simulation {
        start: Instant::now(),
        queue: Queue::new(TIMEOUT),
        pace: RefusalPace::new(CORES as u32),
        workers: machine.workers,
        waiting: VecDeque::new(),
        held: Vec::new(),
        returning: BinaryHeap::new(),
        rejections: Vec::new(),
        pause: None,
        seen: Seen::default(),
    };
    let (mut credit, mut due) = (0.0, 0.0);
    if let Clients::Loop(count, within, pause) = clients {
        simulation.pause = Some(pause);
        simulation.rejections = vec![0; count];
        simulation.seen.turns = vec![0; count];
        simulation.returning =
            (0..count).map(|client| Reverse((client as u64 * within / count as u64, client))).collect();
    }
    for now in 0..seconds * 1000 {
        let before = simulation.seen.rejected.len();
        if let Clients::Open(rate) = clients {
            due += rate(now);
            while due >= 1.0 {
                due -= 1.0;
                simulation.come(0, now);
            }
        }
        while let Some(Reverse((at, client))) = simulation.returning.peek().copied()
            && at <= now
        {
            simulation.returning.pop();
            simulation.come(client, now);
        }
        if simulation.held.iter().any(|held| held.turn.is_some_and(|turn| turn <= now)) {
            simulation.decide_about_held(now);
        }
        if now % 250 == 0 {
            simulation.measure(now);
            let (at, longest_wait) = (now, simulation.queue.longest_wait(TIMEOUT));
            let is_late = |came: u64, allowed: Duration| Duration::from_millis(at - came) > allowed.min(longest_wait);
            let late: Vec<_> =
                simulation.waiting.iter().filter(|(_, came, longest)| is_late(*came, *longest)).copied().collect();
            simulation.waiting.retain(|(_, came, longest)| !is_late(*came, *longest));
            for (client, came, _) in late {
                simulation.reject(client, came, now);
            }
        }
        // Rejections take the processors first.
        let rejected = (simulation.seen.rejected.len() - before) as f64;
        let workers = (machine.workers as f64).min(CORES) * (machine.share)(now);
        credit += workers.min((CORES - rejected * REJECTION).max(0.0)) / machine.page;
        while credit >= 1.0 && !simulation.waiting.is_empty() {
            credit -= 1.0;
            simulation.serve(now);
        }
        credit = credit.min(1.0);
    }
    simulation.seen
}

fn percentile(times: impl Iterator<Item = u64>, share: f64) -> u64 {
    let mut sorted: Vec<_> = times.collect();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// How many requests came after this second and were served.
fn served_after(seen: &Seen, second: u64) -> usize {
    seen.served.iter().filter(|(came, took)| came + took >= second * 1000).count()
}

#[test]
fn under_lasting_overload_the_served_stay_quick_and_the_others_are_rejected_at_once() {
    let seen = simulate(60, QUICK, Clients::Open(|_| 0.6));
    assert!(seen.served.len() as f64 >= 0.95 * 200.0 * 60.0, "{} served", seen.served.len());
    let late = seen.served.iter().filter(|(came, _)| *came > 6000).map(|(_, took)| *took);
    let slow = percentile(late, 0.99);
    assert!(slow < 2 * (TIMEOUT / BOUND).as_millis() as u64, "p99 {slow} ms");
    assert_eq!(percentile(seen.rejected.iter().map(|(_, took)| *took), 0.75), 0, "most are rejected when they come");
}

#[test]
fn after_the_overload_everything_is_quick_again() {
    let seen = simulate(30, QUICK, Clients::Open(|now| if now < 15_000 { 0.6 } else { 0.1 }));
    let late = seen.served.iter().filter(|(came, _)| *came > 17_000).map(|(_, took)| *took);
    assert!(percentile(late, 0.99) <= 15);
    assert!(seen.rejected.iter().all(|(came, _)| *came < 17_000));
}

#[test]
fn a_burst_is_queued() {
    let seen = simulate(20, QUICK, Clients::Open(|now| if now == 100 { 1500.0 } else { 0.1 }));
    assert_eq!((seen.rejected.len(), seen.served.len()), (0, 1500 + 1999));
}

#[test]
fn slow_code_keeps_all_workers_at_work() {
    // Four workers, two seconds for each request, six times too many.
    let slow = Machine { page: 1000.0, workers: 4, share: |_| 1.0 };
    let seen = simulate(120, slow, Clients::Open(|_| 0.012));
    assert!(seen.served.len() >= 2 * 120 * 95 / 100, "{} served", seen.served.len());
}

/// Disturbances from the fifth second on: until when, and the workers' share of the processors.
const DISTURBANCES: [(&str, u64, Share); 5] = [
    ("none", 5, |_| 1.0),
    ("a cold opcache", 3, |now| if now < 3000 { 0.15 } else { 1.0 }),
    ("stopped workers", 8, |now| if (5000..8000).contains(&now) { 0.0 } else { 1.0 }),
    ("a neighbour", 8, |now| if (5000..8000).contains(&now) { 0.25 } else { 1.0 }),
    ("noise", 5, |now| if now / 700 % 3 == 0 { 0.4 } else { 1.0 }),
];

/// Clients that wait for their answers, all of whose turns come within the timeout, see no error, whatever happens.
#[test]
fn clients_that_wait_for_their_answers_are_all_served() {
    for (name, _, share) in DISTURBANCES {
        // The first ones wait while the disturbance lasts, too.
        for (page, count) in [(0.5, 3000), (1.0, 3000), (10.0, 100), (10.0, 500), (10.0, 900), (50.0, 100)] {
            for within in [0, 500, 1500, 2500] {
                for pause in [AT_ONCE, A_SECOND, BACK_OFF] {
                    let seen = simulate(25, Machine { page, share, ..QUICK }, Clients::Loop(count, within, pause));
                    assert_eq!(seen.rejected.len(), 0, "{name}: {count} clients within {within} ms, {page} ms");
                }
            }
        }
    }
}

/// With more clients than can be served in time, no processor time is lost.
#[test]
fn too_many_waiting_clients_do_not_take_the_processors() {
    for (name, after, share) in DISTURBANCES {
        for (page, count) in [(10.0, 2500), (10.0, 4000), (50.0, 500)] {
            for pause in [AT_ONCE, A_SECOND, BACK_OFF] {
                let machine = Machine { page, share, ..QUICK };
                let seen = simulate(30, machine, Clients::Loop(count, 1000, pause));
                let full: f64 = (after * 1000 + 2000..30_000).map(share).sum::<f64>() * CORES / page;
                let served = served_after(&seen, after + 2) as f64;
                assert!(served >= 0.95 * full, "{name}: {count} clients, {page} ms: {served} of {full}");
            }
        }
    }
}

/// Nor are the same clients rejected again and again.
#[test]
fn each_of_too_many_clients_is_served_at_times() {
    for pause in [AT_ONCE, A_SECOND, BACK_OFF] {
        let seen = simulate(100, QUICK, Clients::Loop(4000, 1000, pause));
        let never = seen.turns.iter().filter(|turns| **turns == 0).count();
        assert!(never <= 4000 / 6, "{never} never");
    }
}

/// An overload that is only an appearance ends by itself: the clients that it rejected come again.
#[test]
fn a_false_overload_ends_soon() {
    for (count, pause, seconds) in [(1500, AT_ONCE, 5), (900, AT_ONCE, 5), (1500, A_SECOND, 12)] {
        // A start this slow looks like growing demand.
        let seen = simulate(60, QUICK, Clients::Loop(count, 6000, pause));
        let last = seen.rejected.iter().map(|(came, took)| came + took).max().unwrap_or_default();
        assert!(last <= (6 + seconds) * 1000, "{count}: rejected until {last} ms");
        assert!(served_after(&seen, 20) >= 40 * 200 * 97 / 100, "{count}: {}", served_after(&seen, 20));
    }
}

/// A load that can be sustained is served without an error two seconds after a disturbance.
#[test]
fn errors_end_soon_after_a_disturbance() {
    for (name, until, share) in DISTURBANCES {
        for rate in [(|_| 0.05) as fn(u64) -> f64, |_| 0.1, |_| 0.15] {
            let machine = Machine { share, ..QUICK };
            if name == "noise" && rate(0) > 0.14 {
                continue;
            }
            let seen = simulate(40, machine, Clients::Open(rate));
            let last = seen.rejected.iter().map(|(came, took)| came + took).max().unwrap_or_default();
            assert!(last <= (until + 2) * 1000, "{name}, {}: rejected until {last} ms", rate(0));
        }
    }
}

#[test]
fn only_a_growing_queue_is_an_overload() {
    let start = Instant::now();
    let mut queue = Queue::new(TIMEOUT);
    let arrival = |waiting| Arrival { waiting, workers: 1, places: 1 };
    assert_eq!(queue.enqueue(arrival(0)), Verdict::Admit(TIMEOUT));
    // A hundred requests are finished per second, and five thousand wait.
    for second in 0..30 {
        queue.measure(5000, start + second * WINDOW);
        queue.finished(100);
        assert_eq!(queue.enqueue(arrival(5000)), Verdict::Admit(TIMEOUT));
    }
    for second in 30..33 {
        let waiting = u64::from(second) * 200;
        queue.measure(waiting, start + second * WINDOW);
        queue.finished(100);
        assert_eq!(queue.enqueue(arrival(waiting)), Verdict::Admit(TIMEOUT));
    }
    queue.measure(6600, start + 33 * WINDOW);
    assert_eq!(queue.enqueue(arrival(1100)), Verdict::Reject(TooBusy { retry_after: 11 }));
    assert_eq!(queue.longest_wait(TIMEOUT), TIMEOUT / BOUND);
}

#[test]
fn the_growth_before_the_queue_is_long_counts() {
    let start = Instant::now();
    let mut queue = Queue::new(TIMEOUT);
    let arrival = |waiting| Arrival { waiting, workers: 1, places: 1 };
    queue.measure(1, start);
    // A hundred requests are finished per second, and three hundred come. The queue is long after two seconds.
    for second in 1..=4 {
        let waiting = u64::from(second) * 200;
        assert_eq!(queue.enqueue(arrival(waiting)), Verdict::Admit(TIMEOUT), "after {second} s");
        queue.finished(100);
        queue.measure(waiting, start + second * WINDOW);
    }
    assert!(matches!(queue.enqueue(arrival(800)), Verdict::Reject(_)), "a longer queue would only delay all requests");
}
