//! A worker that runs several requests at a time.

use howdah_channel::{Claim, ControlEnd, Exchange, Geometry, Progress, RouterEnd, WorkerChannel, WorkerEnd, WorkerId};
use std::time::Duration;

const GEOMETRY: Geometry = Geometry { slots: 64, threads: 1, claims: 8 };

struct Ends {
    control: ControlEnd,
    router: RouterEnd,
    channel: WorkerChannel,
}

impl Ends {
    fn new() -> Ends {
        let control = ControlEnd::create(GEOMETRY).unwrap();
        let router = RouterEnd::attach(control.memfd(), GEOMETRY).unwrap();
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let channel = WorkerChannel::attach(control.memfd(), GEOMETRY, vec![bell]).unwrap();
        Ends { control, router, channel }
    }

    fn worker(&self, index: u16) -> WorkerEnd {
        let me = WorkerId { index, incarnation: 0 };
        self.router.worker_started(me);
        self.channel.worker(me)
    }

    fn submit(&self, head: &str) -> Exchange {
        self.router.submit(0, head.as_bytes(), b"", true).unwrap()
    }
}

/// The head of a request is its response.
fn answer(mut claim: Claim<'_>) {
    let mut head = Vec::new();
    claim.head(&mut head).unwrap();
    claim.write(&head).unwrap();
    claim.finish();
}

fn response(exchange: &mut Exchange) -> String {
    assert!(matches!(exchange.progress(), Ok(Progress::Done(_))));
    let mut bytes = Vec::new();
    exchange.read(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn requests_of_one_worker_end_in_any_order_each_with_its_own_response() {
    let ends = Ends::new();
    let worker = ends.worker(0);
    let mut exchanges: Vec<_> = (0..8).map(|n| ends.submit(&format!("request {n}"))).collect();
    let mut claims: Vec<_> = std::iter::from_fn(|| worker.try_next()).collect();
    assert_eq!(claims.len(), 8);
    for n in [3, 0, 5, 0, 2, 0, 1, 0] {
        answer(claims.remove(n));
    }
    for (n, exchange) in exchanges.iter_mut().enumerate() {
        assert_eq!(response(exchange), format!("request {n}"));
        assert!(!exchange.is_abandoned());
    }
}

#[test]
fn the_death_of_a_worker_costs_its_own_requests_only() {
    let ends = Ends::new();
    let (first, second) = (ends.worker(0), ends.worker(1));
    let mut exchanges: Vec<_> = (0..6).map(|n| ends.submit(&format!("request {n}"))).collect();
    let mut claims = Vec::new();
    for worker in [&first, &second, &first, &first, &second] {
        claims.push(worker.try_next().unwrap());
    }
    let dead = WorkerId { index: 0, incarnation: 0 };
    ends.router.worker_died(dead);
    let lost: Vec<_> = exchanges.iter_mut().map(|exchange| exchange.worker_died(dead).unwrap()).collect();
    assert_eq!(lost, [true, false, true, true, false, false]);
    answer(claims.pop().unwrap());
    assert_eq!(response(&mut exchanges[4]), "request 4");
}

#[test]
fn a_worker_with_a_free_place_is_rung_for_a_request() {
    let ends = Ends::new();
    let worker = ends.worker(0);
    let seen = worker.rings();
    assert!(worker.announce_place());
    assert_eq!(ends.router.demand(), (1, 0));
    let exchange = ends.submit("request");
    assert_ne!(worker.wait_for_ring(seen, None), seen);
    assert_eq!(ends.router.demand().0, 0);
    assert!(!worker.announce_place(), "a request waits");
    assert_eq!(ends.router.demand().0, 0);
    answer(worker.try_next().unwrap());
    drop(exchange);
}

#[test]
fn a_worker_without_a_free_place_passes_its_ring_on() {
    let ends = Ends::new();
    let (full, free) = (ends.worker(0), ends.worker(1));
    let seen = free.rings();
    assert!(full.announce_place() && free.announce_place());
    let _exchange = ends.submit("request");
    assert_eq!(free.rings(), seen, "the first worker is rung");
    full.withdraw();
    assert_ne!(free.rings(), seen);
    assert!(free.try_next().is_some());
    full.pass_on();
    assert_eq!(free.rings(), seen.wrapping_add(1), "no request waits");
}

#[test]
fn an_abandoned_request_is_not_mistaken_for_an_answered_one() {
    let ends = Ends::new();
    let worker = ends.worker(0);
    let mut exchange = ends.submit("request");
    let mut claim = worker.try_next().unwrap();
    claim.write(b"half of a resp").unwrap();
    claim.abandon();
    assert!(matches!(exchange.progress(), Ok(Progress::Done(_))));
    assert!(exchange.is_abandoned());
    drop(exchange);
    let mut next = ends.submit("request");
    answer(worker.try_next().unwrap());
    assert_eq!(response(&mut next), "request");
    assert!(!next.is_abandoned(), "the slot's next request is another one");
}

#[test]
fn a_request_that_timed_out_keeps_its_slot_until_its_worker_has_finished_it() {
    let ends = Ends::new();
    let worker = ends.worker(0);
    let slots = ends.router.free_slots();
    let mut exchange = ends.submit("request");
    let mut claim = worker.try_next().unwrap();
    let (slot, sequence) = claim.name();
    assert_eq!(worker.head_of(slot, sequence).as_deref(), Some(&b"request"[..]));
    assert!(matches!(exchange.progress(), Ok(Progress::Running(_))));
    let seen = worker.rings();
    assert!(!claim.timed_out());
    exchange.time_out();
    assert!(claim.timed_out() && claim.client_gone());
    assert_ne!(worker.wait_for_ring(seen, Some(Duration::from_secs(600))), seen, "its worker is rung");
    assert!(claim.write(b"late").is_err());
    assert_eq!(ends.router.free_slots(), slots - 1);
    claim.finish();
    assert_eq!(worker.head_of(slot, sequence), None);
    assert_eq!(ends.router.sweep(0, std::time::Instant::now()), Ok(1));
    assert_eq!(ends.router.free_slots(), slots);
    drop(ends.control);
}
