//! A port with a real channel. The tests drive the workers and the time.

mod wakes;

use super::running::Outcome;
use super::*;
use crate::backends::buffering::spool::SpoolLimits;
use crate::backends::php::admission::RequestKind;
use crate::backends::php::generation::SharedGeneration;
use crate::report::SupervisorLink;
use crate::response::failure::Failure;
use howdah_channel::RouterEnd;
use howdah_channel::WorkerId;
use howdah_channel::request::RequestHeadWriter;
use howdah_channel::{Claim, ControlEnd, Geometry, Next, WorkerChannel, WorkerEnd, offsets};
use howdah_protocol::messages::router::GenerationBoot;
use howdah_protocol::sockets::control_socket::ControlSocket;
use http::Uri;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::pwrite;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::advance;

const GEOMETRY: Geometry = Geometry { slots: 64, threads: 1, claims: 1 };
const SLOTS: usize = 64;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);

struct Setup {
    control: ControlEnd,
    port: Rc<GenerationPort>,
    _supervisor: ControlSocket,
}

// === impl Setup ===

impl Setup {
    fn new() -> Setup {
        Setup::with_spool(SpoolLimits::RESPONSE)
    }

    /// With an elastic pool.
    fn that_wants_workers() -> Setup {
        Setup::with(SpoolLimits::RESPONSE, Some(1))
    }

    fn with_spool(spool_limits: SpoolLimits) -> Setup {
        Setup::with(spool_limits, None)
    }

    fn with(spool_limits: SpoolLimits, spare_workers: Option<u32>) -> Setup {
        Setup::of(GEOMETRY, spool_limits, spare_workers, None)
    }

    /// With workers that run several requests at a time.
    fn in_async_mode(spool_limits: SpoolLimits, timeout: Duration) -> Setup {
        Setup::of(Geometry { claims: 8, ..GEOMETRY }, spool_limits, None, Some(timeout))
    }

    fn of(
        geometry: Geometry,
        spool_limits: SpoolLimits,
        spare_workers: Option<u32>,
        timeout: Option<Duration>,
    ) -> Setup {
        let control = ControlEnd::create(geometry).unwrap();
        let channel = RouterEnd::attach(control.memfd(), geometry).unwrap();
        let boot = GenerationBoot {
            pool_of: None,
            pools: Vec::new(),
            id: 1,
            application: "app".into(),
            geometry,
            spare_workers,
            timeout_ms: timeout.map(|timeout| timeout.as_millis() as u64),
            queue_timeout_ms: QUEUE_TIMEOUT.as_millis() as u64,
            server_software: None,
            has_log: false,
        };
        let (supervisor, ours) = ControlSocket::pair().unwrap();
        let generation = SharedGeneration::new(
            boot,
            channel,
            Vec::new(),
            &SupervisorLink::new(Arc::new(ours)).expect("a thread"),
            None,
        );
        let mut port = GenerationPort::new(Arc::new(generation), Vec::new(), 0);
        port.spool_limits = spool_limits;
        Setup { control, port: Rc::new(port), _supervisor: supervisor }
    }

    fn worker(&self, index: u16) -> WorkerEnd {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        WorkerChannel::attach(self.control.memfd(), self.control.geometry(), vec![bell])
            .unwrap()
            .worker(WorkerId { index, incarnation: 0 })
    }

    async fn submit(&self) -> Result<Rc<RunningRequest>, Failure> {
        submit_one(Rc::clone(&self.port)).await
    }

    /// A client that waits.
    fn client(&self) -> JoinHandle<Result<Rc<RunningRequest>, Failure>> {
        spawn_local(submit_one(Rc::clone(&self.port)))
    }

    /// One request per slot.
    async fn fill(&self) -> Vec<Rc<RunningRequest>> {
        let mut all = Vec::new();
        for _ in 0..SLOTS {
            all.push(self.submit().await.unwrap());
        }
        all
    }

    /// A turn of the event loop.
    fn drain(&self) {
        self.port.begin_turn();
        self.port.drain();
        self.port.end_turn();
    }

    /// Writes into the shared memory, as a hostile worker.
    fn overwrite(&self, offset: usize, bytes: &[u8]) {
        assert_eq!(pwrite(self.control.memfd(), bytes, offset as u64), Ok(bytes.len()));
    }

    fn sweep(&self) {
        self.port.sweep();
        self.drain();
    }

    /// Does the work of the event loop while this time passes.
    async fn pass(&self, time: Duration) {
        run_others().await;
        advance(time).await;
        self.drain();
        self.sweep();
        run_others().await;
    }
}

/// Lets all tasks look at the clock.
async fn run_others() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn submit_one(port: Rc<GenerationPort>) -> Result<Rc<RunningRequest>, Failure> {
    let wait = port.admit(&Uri::from_static("/"), RequestKind::default()).await?;
    submit(&port, RequestHeadWriter::restart, b"", Remainder::None, None, wait).await
}

fn begin(worker: &WorkerEnd) -> Claim<'_> {
    let Next::Run(mut claim) = worker.next(|| false) else { panic!("asked to stop") };
    let mut head = howdah_channel::response::ResponseHeadWriter::default();
    head.restart(200, b"");
    claim.write(head.finish()).unwrap();
    claim
}

fn answer(worker: &WorkerEnd) {
    begin(worker).finish();
}

const HALF: Duration = QUEUE_TIMEOUT.checked_div(2).unwrap();
const A_SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn slots_of_clients_that_left_do_not_outlast_the_deadline_of_those_that_wait() {
    let setup = Setup::new();
    LocalSet::new()
        .run_until(async {
            // No worker takes anything: the hints of these stay in the queue.
            for running in setup.fill().await {
                setup.port.cancel(&running);
            }
            let clients: Vec<_> = (0..3).map(|_| setup.client()).collect();
            setup.pass(QUEUE_TIMEOUT - A_SECOND).await;
            assert!(clients.iter().all(|client| !client.is_finished()));
            setup.pass(2 * A_SECOND).await;
            for client in clients {
                assert!(client.is_finished(), "waits beyond the deadline");
                assert_eq!(client.await.unwrap().err(), Some(Failure::Unavailable { retry_after: 1 }));
            }
            // The workers find their way through the hints.
            let client = setup.client();
            setup.pass(A_SECOND).await;
            let worker = setup.worker(0);
            let took = std::thread::spawn(move || answer(&worker));
            while !client.is_finished() {
                setup.pass(Duration::from_millis(1)).await;
            }
            let running = client.await.unwrap().unwrap();
            took.join().unwrap();
            setup.pass(A_SECOND).await;
            assert!(head(&setup.port, &running, |_| {}).await.unwrap().complete);
            assert_eq!(setup.port.generation.channel.free_slots(), SLOTS);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_slot_and_for_a_worker_are_one_wait() {
    let setup = Setup::new();
    LocalSet::new()
        .run_until(async {
            let first = setup.fill().await;
            let client = setup.client();
            setup.pass(HALF).await;
            assert!(!client.is_finished());
            answer(&setup.worker(0));
            setup.pass(HALF - A_SECOND).await;
            let submitted = client.await.unwrap().unwrap();
            assert!(submitted.exchange.borrow().is_some());
            assert!(submitted.outcome.get() == Outcome::UnderWay);
            setup.pass(2 * A_SECOND).await;
            assert!(submitted.outcome.get() == Outcome::Failed(Failure::Unavailable { retry_after: 1 }));
            let answered = first.iter().filter(|running| running.outcome.get() == Outcome::Complete).count();
            assert_eq!(answered, 1);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_waits_for_its_client_holds_no_slot() {
    let setup = Setup::new();
    let mut answered = Vec::new();
    for _ in 0..2 * SLOTS {
        answered.push(setup.submit().await.unwrap());
        answer(&setup.worker(0));
        setup.drain();
    }
    assert!(answered.iter().all(|running| running.outcome.get() == Outcome::Complete));
}

#[tokio::test(start_paused = true)]
async fn other_tasks_get_a_turn_between_many_large_responses() {
    const LARGE: usize = 200_000;
    let setup = Setup::of(Geometry { claims: 64, ..GEOMETRY }, SpoolLimits::RESPONSE, None, None);
    let all = setup.fill().await;
    let worker = setup.worker(0);
    let mut claims = Vec::new();
    for _ in 0..SLOTS {
        let mut claim = begin(&worker);
        claim.write(&[b'x'; LARGE]).unwrap();
        claims.push(claim);
    }
    let has_moved = |running: &Rc<RunningRequest>| running.spool.borrow().len() > 0;
    claims.iter_mut().for_each(Claim::flush);
    for turn in 1..=SLOTS / 3 {
        setup.drain();
        assert_eq!(
            all.iter().filter(|running| has_moved(running)).count(),
            3 * turn,
            "three fit into a turn, each time others"
        );
        assert!(!setup.port.prepare_to_sleep(), "the rest still waits");
    }
    setup.drain();
    assert!(all.iter().all(has_moved) && setup.port.prepare_to_sleep());
    claims.into_iter().for_each(Claim::finish);
}

#[tokio::test(start_paused = true)]
async fn of_a_dead_worker_s_large_responses_as_much_is_moved_as_one_turn_may() {
    let setup = Setup::of(Geometry { claims: 64, ..GEOMETRY }, SpoolLimits::RESPONSE, None, None);
    let all = setup.fill().await;
    let worker = setup.worker(7);
    let mut claims = Vec::new();
    for _ in 0..SLOTS {
        let mut claim = begin(&worker);
        claim.write(&[b'x'; 200_000]).unwrap();
        claims.push(claim);
    }
    setup.port.begin_turn();
    setup.port.worker_died(WorkerId { index: 7, incarnation: 0 }, None);
    assert_eq!(all.iter().filter(|running| running.spool.borrow().len() > 0).count(), 3);
    for running in &all {
        assert_eq!(head(&setup.port, running, |_| {}).await.err(), Some(Failure::WorkerDied { had_begun: true }));
    }
}

#[tokio::test]
async fn php_waits_while_the_spool_is_full_and_goes_on_when_the_client_reads() {
    const TOTAL: u64 = 256 * 1024;
    const RESPONSE: usize = 8 * 1024 * 1024;
    let setup = Setup::with_spool(SpoolLimits { memory: 32 * 1024, total: TOTAL, writer_waits: true });
    let running = setup.submit().await.unwrap();
    let worker = setup.worker(0);
    let writer = std::thread::spawn(move || {
        let mut claim = begin(&worker);
        let bytes: Vec<u8> = (0..RESPONSE).map(|at| (at % 251) as u8).collect();
        bytes.chunks(10_000).for_each(|part| claim.write(part).unwrap());
        claim.finish();
    });
    while running.held_back.get().is_none() {
        setup.drain();
    }
    for _ in 0..10 {
        setup.sweep();
        assert!(running.spool.borrow().len() < TOTAL + howdah_channel::RESPONSE_RING_BYTES as u64);
        assert!(!writer.is_finished());
    }
    let mut body = head(&setup.port, &running, |_| {}).await.unwrap().bytes[8..].to_vec();
    while let Some(bytes) = poll_fn(|context| {
        setup.drain();
        let polled = poll_body(&setup.port, &running, context);
        context.waker().wake_by_ref();
        polled
    })
    .await
    {
        body.extend_from_slice(&bytes.unwrap());
    }
    writer.join().unwrap();
    assert_eq!(body.len(), RESPONSE);
    assert!(body.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_other_requests_does_not_wait_for_a_client() {
    let setup = Setup::in_async_mode(SpoolLimits { memory: 100, total: 1000, writer_waits: false }, QUEUE_TIMEOUT);
    LocalSet::new()
        .run_until(async {
            let worker = setup.worker(0);
            let (slow, other) = (setup.submit().await.unwrap(), setup.submit().await.unwrap());
            let mut claim = begin(&worker);
            claim.write(&[b'x'; 5000]).unwrap();
            claim.flush();
            setup.drain();
            assert!(slow.outcome.get() == Outcome::UnderWay, "the client may still read it");
            claim.write(&[b'x'; 5000]).unwrap();
            claim.flush();
            setup.drain();
            assert!(slow.outcome.get() == Outcome::Failed(Failure::BadGateway));
            assert!(claim.client_gone());
            claim.finish();
            answer(&worker);
            setup.drain();
            assert!(other.outcome.get() == Outcome::Complete);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_ends_and_its_worker_goes_on() {
    let setup = Setup::in_async_mode(SpoolLimits::RESPONSE, A_SECOND);
    LocalSet::new()
        .run_until(async {
            let worker = setup.worker(0);
            setup.port.generation.worker_started(WorkerId { index: 0, incarnation: 0 });
            let long = setup.submit().await.unwrap();
            let claim = begin(&worker);
            setup.pass(A_SECOND / 2).await;
            let other = setup.submit().await.unwrap();
            let younger = begin(&worker);
            setup.pass(A_SECOND / 2).await;
            assert!(long.outcome.get() == Outcome::UnderWay && !claim.timed_out());
            setup.pass(3 * A_SECOND / 4).await;
            assert!(long.outcome.get() == Outcome::Failed(Failure::GatewayTimeout));
            assert!(claim.timed_out() && !younger.timed_out());
            claim.finish();
            younger.finish();
            setup.drain();
            assert!(other.outcome.get() == Outcome::Complete);
            setup.sweep();
            assert_eq!(setup.port.generation.channel.free_slots(), SLOTS);
        })
        .await;
}

#[tokio::test]
async fn an_abandoned_request_is_answered_500() {
    let setup = Setup::in_async_mode(SpoolLimits::RESPONSE, QUEUE_TIMEOUT);
    LocalSet::new()
        .run_until(async {
            let running = setup.submit().await.unwrap();
            setup.worker(0).try_next().unwrap().abandon();
            setup.drain();
            assert!(matches!(head(&setup.port, &running, |_| {}).await, Err(Failure::Internal)));
        })
        .await;
}

#[tokio::test]
async fn a_failure_before_the_client_has_a_status_is_an_error() {
    let setup = Setup::new();
    let running = setup.submit().await.unwrap();
    let worker = setup.worker(7);
    let mut claim = begin(&worker);
    claim.write(b"begun").unwrap();
    claim.flush();
    setup.drain();
    setup.port.worker_died(WorkerId { index: 7, incarnation: 0 }, None);
    assert_eq!(head(&setup.port, &running, |_| {}).await.err(), Some(Failure::WorkerDied { had_begun: true }));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_the_death_of_its_worker_is_reported_breaks_no_rule() {
    let setup = Setup::new();
    LocalSet::new()
        .run_until(async {
            let running = setup.submit().await.unwrap();
            let (dead, generation) = (WorkerId { index: 7, incarnation: 0 }, &setup.port.generation);
            generation.worker_started(dead);
            let worker = setup.worker(7);
            let _never_finished = begin(&worker);
            // The generation learns of it first, then the client leaves, then the thread learns of it.
            generation.worker_died(dead);
            setup.port.cancel(&running);
            setup.port.worker_died(dead, None);
            assert_eq!(generation.channel.free_slots(), SLOTS);
            for _ in 0..20 {
                setup.pass(SWEEP).await;
            }
            assert!(generation.channel.sweep(0, std::time::Instant::now()).is_ok());
        })
        .await;
}

#[tokio::test]
async fn a_request_whose_client_left_is_neither_waiting_nor_active() {
    let setup = Setup::new();
    let all = [setup.submit().await.unwrap(), setup.submit().await.unwrap(), setup.submit().await.unwrap()];
    let generation = &setup.port.generation;
    assert_eq!((generation.waiting_requests(), generation.active_requests()), (3, 3));
    setup.port.cancel(&all[0]);
    setup.port.cancel(&all[2]);
    assert_eq!((generation.waiting_requests(), generation.active_requests()), (1, 1));
    // A worker passes what is left of the first one.
    let worker = setup.worker(7);
    let claim = begin(&worker);
    assert_eq!((generation.waiting_requests(), generation.active_requests()), (0, 1));
    claim.finish();
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_wants_workers_can_still_be_released() {
    let setup = Setup::that_wants_workers();
    LocalSet::new()
        .run_until(async {
            let running = setup.submit().await.unwrap();
            setup.pass(Duration::from_millis(50)).await;
            let generation = Arc::downgrade(&setup.port.generation);
            setup.port.cancel(&running);
            drop(running);
            let Setup { port, .. } = setup;
            drop(port);
            advance(Duration::from_millis(50)).await;
            run_others().await;
            assert!(generation.upgrade().is_none(), "no longer used");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_complete_response_is_taken_though_a_worker_clears_the_mailbox() {
    let setup = Setup::new();
    LocalSet::new()
        .run_until(async {
            let running = setup.submit().await.unwrap();
            answer(&setup.worker(0));
            let clear = || setup.overwrite(offsets::mailbox_bits(GEOMETRY, 0), &[0; SLOTS / 8]);
            clear();
            setup.drain();
            assert!(running.outcome.get() == Outcome::UnderWay);
            setup.port.sweep();
            clear();
            assert!(!setup.port.prepare_to_sleep(), "a slot is left");
            setup.drain();
            assert!(running.outcome.get() == Outcome::Complete);
            assert!(setup.port.prepare_to_sleep());
        })
        .await;
}

#[tokio::test]
async fn slots_without_a_request_take_a_part_of_the_turn() {
    let geometry = Geometry { slots: 2048, ..GEOMETRY };
    let setup = Setup::of(geometry, SpoolLimits::RESPONSE, None, None);
    setup.overwrite(offsets::mailbox_bits(geometry, 0), &[0xff; 2048 / 8]);
    setup.port.begin_turn();
    setup.port.drain();
    assert!(setup.port.has_spent_its_turn() && !setup.port.prepare_to_sleep());
    for _ in 0..2 {
        setup.drain();
    }
    assert!(setup.port.prepare_to_sleep());
}
