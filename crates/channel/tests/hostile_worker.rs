//! A worker that breaks every rule: the router's end reports it, reads nothing that it may not, and loses no slot.

mod hostile;

use hostile::HostileMemory;
use howdah_channel::{
    BODY_RING_BYTES, Claim, ClientGone, ControlEnd, Exchange, Geometry, Next, Progress, RESPONSE_RING_BYTES, Refused,
    RouterEnd, SlotState, Violation, WorkerChannel, WorkerId, offsets,
};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SLOTS: usize = 64;
const GEOMETRY: Geometry = Geometry { slots: SLOTS as u16, threads: 1, claims: 1 };
const MALLORY: WorkerId = WorkerId { index: 7, incarnation: 3 };

struct Channel {
    control: ControlEnd,
    router: RouterEnd,
    hostile: HostileMemory,
    bell: OwnedFd,
    /// The time that the sweeps see.
    now: Cell<Instant>,
    /// The workers that were started.
    started: RefCell<Vec<WorkerId>>,
}

/// How many sweeps at the router's usual distance fit into a little more than a second.
const SECOND: u32 = 5;

impl Channel {
    fn new() -> Channel {
        Channel::of(GEOMETRY)
    }

    fn of(geometry: Geometry) -> Channel {
        let control = ControlEnd::create(geometry).unwrap();
        let router = RouterEnd::attach(control.memfd(), geometry).unwrap();
        let hostile = HostileMemory::map(control.memfd(), geometry);
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        router.worker_started(MALLORY);
        Channel { control, router, hostile, bell, now: Cell::new(Instant::now()), started: RefCell::default() }
    }

    /// The checks that a router's thread runs four times a second.
    fn sweep(&self) -> Result<(), Violation> {
        self.now.set(self.now.get() + Duration::from_millis(250));
        self.router.sweep(0, self.now.get()).map(drop)
    }

    /// The first violation that the sweeps and the exchanges' checks find within about a second.
    fn found_in_a_second(&self, exchanges: &mut [Exchange]) -> Option<Violation> {
        (0..SECOND).find_map(|_| {
            let checked = exchanges.iter_mut().try_for_each(Exchange::check);
            self.sweep().and(checked).err()
        })
    }

    fn submit(&self, head: &[u8]) -> Exchange {
        self.router.submit(0, head, b"", true).unwrap()
    }

    /// A request that Mallory has claimed, and its sequence number.
    fn claimed_by_mallory(&self) -> (Exchange, u32) {
        let mut exchange = self.submit(b"request");
        let sequence = self.hostile.sequence(exchange.slot());
        self.hostile.set_state(exchange.slot(), sequence, SlotState::Claimed(MALLORY));
        assert_eq!(exchange.progress(), Ok(Progress::Running(MALLORY)));
        (exchange, sequence)
    }

    /// A worker that echoes heads until all are stopped.
    fn spawn_worker(&self, index: u16) -> JoinHandle<()> {
        let mut head = Vec::new();
        self.spawn_worker_that(index, move |claim| {
            claim.head(&mut head).unwrap();
            claim.write(&head).unwrap();
        })
    }

    /// A worker that answers so, until all are stopped.
    fn spawn_worker_that(&self, index: u16, mut answer: impl FnMut(&mut Claim<'_>) + Send + 'static) -> JoinHandle<()> {
        let channel =
            WorkerChannel::attach(self.control.memfd(), GEOMETRY, vec![self.bell.try_clone().unwrap()]).unwrap();
        let me = WorkerId { index, incarnation: 9 };
        self.router.worker_started(me);
        self.started.borrow_mut().push(me);
        std::thread::spawn(move || {
            let end = channel.worker(me);
            while let Next::Run(mut claim) = end.next(|| false) {
                answer(&mut claim);
                claim.finish();
            }
        })
    }

    /// Orders all workers to finish what they do and exit.
    fn stop_all(&mut self) {
        self.control.stop_all(self.started.take());
    }

    /// All workers that ran are dead.
    fn replace_workers(&mut self) {
        self.router.worker_died(MALLORY);
        self.control.workers_replaced();
        self.router.release_quarantined();
    }

    /// All hostile workers are dead: everything is as new, and fresh workers answer a request in every slot.
    fn assert_recovers(mut self) {
        self.replace_workers();
        assert_eq!(self.found_in_a_second(&mut []), None);
        assert_eq!(self.control.check_orders(), Ok(()));
        assert_eq!(self.router.free_slots(), SLOTS, "a slot is lost");
        let workers = [self.spawn_worker(0), self.spawn_worker(1)];
        let exchanges: Vec<_> = (0..SLOTS).map(|n| (n, self.submit(format!("request {n}").as_bytes()))).collect();
        for (n, mut exchange) in exchanges {
            assert_eq!(answer(&self, &mut exchange), format!("request {n}").as_bytes());
        }
        assert_eq!(self.router.free_slots(), SLOTS);
        self.stop_all();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}

/// Waits for a fresh worker's answer.
fn answer(channel: &Channel, exchange: &mut Exchange) -> Vec<u8> {
    while !matches!(exchange.progress().unwrap(), Progress::Done(_)) {
        channel.sweep().unwrap();
        exchange.resubmit_if_stranded();
        std::thread::yield_now();
    }
    let mut response = Vec::new();
    exchange.read(&mut response).unwrap();
    response
}

#[test]
fn a_word_that_no_queued_request_can_have_is_a_violation() {
    let garbage: [fn(u32) -> u64; 8] = [
        |sequence| offsets::word(sequence, SlotState::Free),
        |sequence| offsets::word(sequence.wrapping_add(1), SlotState::Submitted),
        |sequence| offsets::word(sequence.wrapping_sub(1), SlotState::Done(MALLORY)),
        |sequence| offsets::word(sequence, SlotState::Claimed(WorkerId { index: 0xfff, incarnation: 0 })),
        |sequence| offsets::word(sequence, SlotState::Done(WorkerId { index: 1024, incarnation: 0 })),
        |sequence| u64::from(sequence) << 32 | 0xf,
        |sequence| offsets::word(sequence, SlotState::Submitted) | 0xff0,
        |_| u64::MAX,
    ];
    let channel = Channel::new();
    for word in garbage {
        let mut exchange = channel.submit(b"request");
        let sequence = channel.hostile.sequence(exchange.slot());
        channel.hostile.state(exchange.slot()).store(word(sequence), Ordering::SeqCst);
        assert!(exchange.progress().is_err(), "{:x}", word(sequence));
        assert!(!exchange.cancel());
        exchange.quarantine();
    }
    assert_eq!(channel.router.free_slots(), SLOTS - garbage.len());
    channel.assert_recovers();
}

#[test]
fn a_state_does_not_go_back_or_to_another_worker() {
    let other = WorkerId { index: MALLORY.index, incarnation: MALLORY.incarnation + 1 };
    let channel = Channel::new();
    for state in [SlotState::Submitted, SlotState::Free, SlotState::Claimed(other), SlotState::Done(other)] {
        let (mut exchange, sequence) = channel.claimed_by_mallory();
        channel.hostile.set_state(exchange.slot(), sequence, state);
        assert!(exchange.progress().is_err(), "{state:?}");
        assert!(exchange.worker_died(MALLORY).is_err(), "{state:?}");
        exchange.quarantine();
    }
    for state in [SlotState::Submitted, SlotState::Claimed(MALLORY), SlotState::Free] {
        let (mut exchange, sequence) = channel.claimed_by_mallory();
        channel.hostile.set_state(exchange.slot(), sequence, SlotState::Done(MALLORY));
        assert_eq!(exchange.progress(), Ok(Progress::Done(MALLORY)));
        channel.hostile.set_state(exchange.slot(), sequence, state);
        assert!(exchange.progress().is_err(), "{state:?}");
        exchange.quarantine();
    }
    channel.assert_recovers();
}

#[test]
fn an_impossible_length_of_a_response_is_a_violation_and_reads_nothing() {
    let ring = RESPONSE_RING_BYTES as u64;
    let channel = Channel::new();
    for (first, then) in [(0, ring + 1), (0, u64::MAX), (0, 1 << 63), (100, 99), (100, 0), (100, 101 + ring)] {
        let (mut exchange, _) = channel.claimed_by_mallory();
        let written = channel.hostile.control(exchange.slot(), offsets::RESPONSE_WRITTEN);
        let mut out = Vec::new();
        written.store(first, Ordering::SeqCst);
        assert_eq!(exchange.read(&mut out), Ok(first as usize));
        written.store(then, Ordering::SeqCst);
        assert!(exchange.read(&mut out).is_err(), "{first}, then {then}");
        assert_eq!(out.len(), first as usize);
        exchange.quarantine();
    }
    channel.assert_recovers();
}

#[test]
fn a_full_ring_is_read_to_its_last_byte_and_no_further() {
    let channel = Channel::new();
    let (mut exchange, _) = channel.claimed_by_mallory();
    let written = channel.hostile.control(exchange.slot(), offsets::RESPONSE_WRITTEN);
    let mut out = Vec::new();
    for (written_bytes, read) in [(10, 10), (10 + RESPONSE_RING_BYTES, RESPONSE_RING_BYTES)] {
        written.store(written_bytes as u64, Ordering::SeqCst);
        assert_eq!(exchange.read(&mut out), Ok(read));
        assert_eq!(out.len(), written_bytes);
    }
    drop(exchange);
    channel.assert_recovers();
}

#[test]
fn an_impossible_position_in_a_body_is_a_violation() {
    let channel = Channel::new();
    for position in [101, 1 << 63, (BODY_RING_BYTES as u64).wrapping_neg()] {
        let mut exchange = channel.router.submit(0, b"", &[1; 100], false).unwrap();
        channel.hostile.control(exchange.slot(), offsets::BODY_READ).store(position, Ordering::SeqCst);
        assert!(exchange.body_space().is_err(), "{position}");
        assert!(exchange.write_body(&[2; 100]).is_err(), "{position}");
        exchange.quarantine();
    }
    channel.assert_recovers();
}

#[test]
fn a_response_that_is_completed_twice_does_not_answer_the_next_request() {
    let channel = Channel::new();
    let (mut first, sequence) = channel.claimed_by_mallory();
    let slot = first.slot();
    channel.hostile.set_state(slot, sequence, SlotState::Done(MALLORY));
    assert_eq!(first.progress(), Ok(Progress::Done(MALLORY)));
    drop(first);
    let mut second = channel.submit(b"another");
    assert_eq!(second.slot(), slot, "the last slot used is the next");
    channel.hostile.set_state(slot, sequence, SlotState::Done(MALLORY));
    assert_eq!(second.progress(), Err(Violation("a slot's sequence number changed")));
    second.quarantine();
    channel.assert_recovers();
}

#[test]
fn a_head_of_the_queue_out_of_range_is_a_violation_and_is_mended() {
    for delta in [-129i64, -1000, 2, 1000, i64::MIN, i64::MAX] {
        let mut channel = Channel::new();
        let mut waiting = channel.submit(b"waiting");
        let mut cancelled = channel.submit(b"cancelled");
        assert!(cancelled.cancel());
        let head = channel.hostile.queue_head();
        // Two tickets wait: head may be 0 to 2 further.
        let delta = if delta == 2 { 3 } else { delta };
        head.store(head.load(Ordering::SeqCst).wrapping_add(delta as u64), Ordering::SeqCst);
        assert!(matches!(channel.router.submit(0, b"", b"", true), Err(Refused::Broken(_))), "{delta}");
        assert!(channel.sweep().is_err(), "{delta}");
        channel.router.release_quarantined();
        let worker = channel.spawn_worker(0);
        assert_eq!(answer(&channel, &mut waiting), b"waiting", "{delta}");
        drop(waiting);
        assert_eq!(channel.router.free_slots(), SLOTS, "{delta}");
        channel.stop_all();
        worker.join().unwrap();
    }
}

#[test]
fn hints_that_a_worker_skipped_or_overwrote_are_pushed_again() {
    for overwrite in [false, true] {
        let mut channel = Channel::new();
        let mut exchanges: Vec<_> = (0..SLOTS).map(|_| channel.submit(b"still here")).collect();
        let head = channel.hostile.queue_head();
        if overwrite {
            (0..2 * SLOTS).for_each(|n| channel.hostile.queue_cell(n).store(0xdead_beef_dead_beef, Ordering::SeqCst));
            channel.router.release_quarantined();
        } else {
            head.fetch_add(SLOTS as u64, Ordering::SeqCst);
        }
        exchanges.iter_mut().for_each(Exchange::resubmit_if_stranded);
        let worker = channel.spawn_worker(0);
        for mut exchange in exchanges {
            assert_eq!(answer(&channel, &mut exchange), b"still here");
        }
        assert_eq!(channel.router.free_slots(), SLOTS);
        channel.stop_all();
        worker.join().unwrap();
    }
}

#[test]
fn the_overwritten_slot_of_a_client_that_left_is_reported_and_comes_back() {
    let channel = Channel::new();
    let (exchange, sequence) = channel.claimed_by_mallory();
    let slot = exchange.slot();
    drop(exchange);
    assert_eq!(channel.sweep(), Ok(()));
    channel.hostile.set_state(slot, sequence + 5, SlotState::Claimed(MALLORY));
    assert!(channel.sweep().is_err());
    assert_eq!(channel.router.free_slots(), SLOTS - 1);
    channel.assert_recovers();
}

#[test]
fn a_slot_that_was_given_back_can_not_be_set_aside_too() {
    let channel = Channel::new();
    let mut cancelled = channel.submit(b"");
    assert!(cancelled.cancel());
    cancelled.quarantine();
    let (mut lost, _) = channel.claimed_by_mallory();
    assert_eq!(lost.worker_died(MALLORY), Ok(true));
    lost.quarantine();
    channel.router.release_quarantined();
    assert_eq!(channel.router.free_slots(), SLOTS);
    channel.assert_recovers();
}

#[test]
fn garbage_everywhere_at_any_time_is_survived() {
    let rounds = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    let mut channel = Channel::new();
    let stop = AtomicBool::new(false);
    let mut violations = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1u64;
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let slot = (random >> 40) as u16 % GEOMETRY.slots;
                let word = channel.hostile.control(slot, (random >> 20) as usize % 16 * 8);
                match random >> 60 {
                    0 => channel.hostile.queue_head().store(random, Ordering::SeqCst),
                    1 => channel.hostile.queue_cell(random as usize >> 8).store(random, Ordering::SeqCst),
                    2 => word.store(random, Ordering::SeqCst),
                    3 => word.store(random % 100_000, Ordering::SeqCst),
                    4 => drop(channel.hostile.state(slot).fetch_xor(1 << (random >> 30 & 63), Ordering::SeqCst)),
                    5 => channel
                        .hostile
                        .u64(random as usize % (channel.hostile.len() / 8) * 8)
                        .store(random, Ordering::SeqCst),
                    _ => channel.hostile.set_state(slot, channel.hostile.sequence(slot), SlotState::Done(MALLORY)),
                }
            }
        });
        let (mut out, visits) = (Vec::new(), channel.router.visits());
        for round in 0..rounds {
            let mut exchange = match channel.router.submit(0, b"head", &[7; 50_000], false) {
                Ok(exchange) => exchange,
                Err(_) => {
                    violations += 1;
                    channel.router.release_quarantined();
                    continue;
                }
            };
            out.clear();
            let seen = exchange.progress().and_then(|_| exchange.write_body(&[8; 1000])).and_then(|taken| {
                assert!(taken <= 1000);
                exchange.read(&mut out)
            });
            assert!(out.len() <= RESPONSE_RING_BYTES);
            channel.router.drain(0, &visits, |slot| {
                assert!(slot < GEOMETRY.slots);
                true
            });
            let _ = channel.sweep();
            exchange.resubmit_if_stranded();
            match seen {
                Err(_) => {
                    violations += 1;
                    exchange.quarantine();
                }
                Ok(_) if round % 3 == 0 => drop(exchange.cancel()),
                Ok(_) => drop(exchange),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(violations > 0);
    // Orphans of workers that never were, a stuck queue, orders to stop: all of it is found without another broken rule.
    let _ = (channel.found_in_a_second(&mut []), channel.control.check_orders());
    channel.assert_recovers();
}

#[test]
fn workers_that_another_worker_stopped_are_noticed_and_replaced() {
    for everyone in [true, false] {
        let mut channel = Channel::new();
        let worker = channel.spawn_worker(0);
        if everyone {
            channel.hostile.order_all_to_stop(true);
        } else {
            channel.hostile.order_to_stop(0, Some(9));
        }
        // The worker sleeps, or takes the request and then ends.
        let mut exchange = channel.submit(b"request");
        worker.join().unwrap();
        assert!(channel.control.check_orders().is_err());
        channel.replace_workers();
        assert_eq!(channel.control.check_orders(), Ok(()));
        let worker = channel.spawn_worker(0);
        assert_eq!(answer(&channel, &mut exchange), b"request");
        channel.stop_all();
        worker.join().unwrap();
    }
}

#[test]
fn an_order_to_stop_that_was_taken_back_is_repeated() {
    let mut channel = Channel::new();
    let (one, other) = (channel.spawn_worker(0), channel.spawn_worker(1));
    channel.hostile.idle_bits().store(0, Ordering::SeqCst);
    channel.control.stop_worker(WorkerId { index: 0, incarnation: 9 });
    channel.hostile.order_to_stop(0, None);
    assert!(channel.control.check_orders().is_err() && channel.control.check_orders().is_ok());
    one.join().unwrap();
    channel.control.worker_died(WorkerId { index: 0, incarnation: 9 });
    assert_eq!(channel.control.check_orders(), Ok(()));
    channel.stop_all();
    channel.hostile.order_all_to_stop(false);
    assert!(channel.control.check_orders().is_err() && channel.control.check_orders().is_ok());
    other.join().unwrap();
}

#[test]
fn a_claim_in_the_name_of_a_worker_that_does_not_live_is_a_violation() {
    let never = WorkerId { index: 900, incarnation: 0 };
    let later = WorkerId { incarnation: MALLORY.incarnation + 1, ..MALLORY };
    let dead = WorkerId { index: 1, incarnation: 1 };
    for name in [never, later, dead] {
        for client_stays in [true, false] {
            let channel = Channel::new();
            channel.router.worker_started(dead);
            channel.router.worker_died(dead);
            let mut exchange = channel.submit(b"request");
            channel.hostile.set_state(
                exchange.slot(),
                channel.hostile.sequence(exchange.slot()),
                SlotState::Claimed(name),
            );
            assert_eq!(exchange.progress(), Ok(Progress::Running(name)));
            let mut exchanges = vec![exchange];
            if client_stays {
                assert!(channel.found_in_a_second(&mut exchanges).is_some(), "{name}");
                exchanges.remove(0).quarantine();
            } else {
                exchanges.clear();
                assert!(channel.found_in_a_second(&mut []).is_some(), "{name}");
            }
            channel.assert_recovers();
        }
    }
}

#[test]
fn a_worker_that_claims_before_the_news_of_its_birth_is_not_accused() {
    let workers = [12, 13].map(|index| WorkerId { index, incarnation: 0 });
    let channel = Channel::new();
    let mut exchanges = [channel.submit(b"stays"), channel.submit(b"leaves")];
    for (exchange, early) in exchanges.iter_mut().zip(workers) {
        channel.hostile.set_state(
            exchange.slot(),
            channel.hostile.sequence(exchange.slot()),
            SlotState::Claimed(early),
        );
        assert_eq!(exchange.check(), Ok(()));
    }
    let [stays, leaves] = exchanges;
    drop(leaves);
    let mut stays = [stays];
    for _ in 0..2 {
        assert_eq!((channel.sweep(), stays[0].check()), (Ok(()), Ok(())));
    }
    workers.into_iter().for_each(|early| channel.router.worker_started(early));
    assert_eq!(channel.found_in_a_second(&mut stays), None);
    assert_eq!(stays[0].worker_died(workers[0]), Ok(true));
    workers.into_iter().for_each(|early| channel.router.worker_died(early));
    drop(stays);
    channel.assert_recovers();
}

#[test]
fn a_request_of_a_former_router_whose_worker_died_unheard_is_no_violation() {
    let mut channel = Channel::new();
    let (exchange, _) = channel.claimed_by_mallory();
    channel.router = RouterEnd::attach(channel.control.memfd(), GEOMETRY).unwrap();
    std::mem::forget(exchange);
    assert_eq!(channel.router.free_slots(), SLOTS - 1);
    assert_eq!(channel.found_in_a_second(&mut []), None);
    assert_eq!(channel.router.free_slots(), SLOTS);
    channel.assert_recovers();
}

#[test]
fn a_queue_that_no_worker_gets_past_is_found_within_a_second_and_mended() {
    let garbage = |channel: &Channel| {
        let head = channel.hostile.queue_head().load(Ordering::SeqCst);
        channel.hostile.queue_cell(head as usize).store(0xdead_beef_dead_beef, Ordering::SeqCst);
    };
    let set_back = |channel: &Channel| {
        channel.hostile.queue_head().fetch_sub(1, Ordering::SeqCst);
    };
    for spoil in [&garbage as &dyn Fn(&Channel), &set_back] {
        let mut channel = Channel::new();
        let mut exchanges = [channel.submit(b"one"), channel.submit(b"two")];
        spoil(&channel);
        let worker = channel.spawn_worker(0);
        assert!(channel.found_in_a_second(&mut exchanges).is_some());
        assert!(exchanges.iter_mut().all(|exchange| exchange.progress() == Ok(Progress::Queued)));
        channel.replace_workers();
        exchanges.iter_mut().for_each(Exchange::resubmit_if_stranded);
        let answers = exchanges.each_mut().map(|exchange| answer(&channel, exchange));
        assert_eq!(answers, [b"one", b"two"]);
        channel.stop_all();
        worker.join().unwrap();
    }
}

#[test]
fn a_garbage_cell_within_the_queue_delays_no_request_for_ever() {
    let mut channel = Channel::new();
    let mut exchanges: Vec<_> = (0..SLOTS).map(|n| channel.submit(format!("{n}").as_bytes())).collect();
    let head = channel.hostile.queue_head().load(Ordering::SeqCst);
    // The right ticket, but no such slot: taken and dropped.
    for n in [0, 7, 30] {
        let cell = channel.hostile.queue_cell(head as usize + n);
        cell.fetch_or(0xffff_ffff, Ordering::SeqCst);
    }
    let worker = channel.spawn_worker(0);
    for (n, exchange) in exchanges.iter_mut().enumerate() {
        assert_eq!(answer(&channel, exchange), format!("{n}").as_bytes());
    }
    channel.stop_all();
    worker.join().unwrap();
}

#[test]
fn a_cell_is_no_garbage_before_every_thread_had_the_time_to_publish_it() {
    let geometry = Geometry { threads: 2, ..GEOMETRY };
    let control = ControlEnd::create(geometry).unwrap();
    let router = RouterEnd::attach(control.memfd(), geometry).unwrap();
    let hostile = HostileMemory::map(control.memfd(), geometry);
    let _exchange = router.submit(0, b"", b"", true).unwrap();
    hostile.queue_cell(hostile.queue_head().load(Ordering::SeqCst) as usize).store(0, Ordering::SeqCst);
    let mut now = Instant::now();
    for _ in 0..100 {
        now += Duration::from_secs(1);
        assert_eq!(router.sweep(0, now), Ok(0), "the other thread has not swept");
    }
    let found = (0..SECOND).any(|_| {
        now += Duration::from_millis(250);
        router.sweep(1, now).and(router.sweep(0, now)).is_err()
    });
    assert!(found);
}

#[test]
fn a_worker_that_was_removed_from_the_idle_set_is_woken() {
    let mut channel = Channel::new();
    let worker = channel.spawn_worker(3);
    while channel.hostile.idle_bits().swap(0, Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let mut exchange = channel.submit(b"request");
    assert_eq!(answer(&channel, &mut exchange), b"request");
    channel.stop_all();
    worker.join().unwrap();
}

#[test]
fn a_worker_that_is_made_to_wait_by_a_word_of_the_routers_is_freed() {
    const LENGTH: usize = 3 * RESPONSE_RING_BYTES;
    // As if the router had not taken the last ring: there is no room, or less than none if the worker was quick.
    let no_room = |position: usize| (position - RESPONSE_RING_BYTES) as u64;
    let impossible = |_| u64::MAX;
    for spoil in [&no_room as &dyn Fn(usize) -> u64, &impossible] {
        let mut channel = Channel::new();
        let worker = channel.spawn_worker_that(0, |claim| {
            assert_eq!(claim.write(&[1; LENGTH]), Err(ClientGone), "it could write everything");
        });
        let mut exchange = channel.submit(b"");
        let written = channel.hostile.control(exchange.slot(), offsets::RESPONSE_WRITTEN);
        // The ring is full, and the router has not read of it.
        while written.load(Ordering::SeqCst) != RESPONSE_RING_BYTES as u64 {
            std::thread::yield_now();
        }
        let mut out = Vec::new();
        exchange.progress().unwrap();
        assert!(exchange.read(&mut out).is_ok());
        let found = loop {
            let word = channel.hostile.control(exchange.slot(), offsets::RESPONSE_READ);
            word.store(spoil(out.len()), Ordering::SeqCst);
            if let Err(violation) = exchange.check().and_then(|()| exchange.read(&mut out).map(drop)) {
                break violation;
            }
        };
        assert!(out.len() < LENGTH, "{found}");
        exchange.quarantine();
        channel.stop_all();
        worker.join().unwrap();
    }
}

#[test]
fn a_response_that_a_wrong_position_cut_off_does_not_pass_for_a_whole_one() {
    let mut channel = Channel::new();
    let mut exchange = channel.submit(b"");
    channel.hostile.control(exchange.slot(), offsets::RESPONSE_READ).store(1 << 40, Ordering::SeqCst);
    let worker = channel.spawn_worker_that(0, |claim| {
        assert_eq!(claim.write(b"a response"), Err(ClientGone));
        assert_eq!(claim.write(b"more of it"), Err(ClientGone));
    });
    while !matches!(exchange.progress(), Ok(Progress::Done(_))) {
        std::thread::yield_now();
    }
    assert!(exchange.read(&mut Vec::new()).is_err());
    exchange.quarantine();
    channel.stop_all();
    worker.join().unwrap();
}

#[test]
fn words_of_the_routers_that_a_worker_wrote_are_a_violation() {
    for (word, bits) in [
        (offsets::RESPONSE_READ, 1),
        (offsets::BODY_WRITTEN, 1),
        (offsets::FLAGS, 1),
        (offsets::FLAGS, 4),
        (offsets::HEAD_LENGTH, 1 << 32), // the thread
    ] {
        let channel = Channel::new();
        let (mut exchange, _) = channel.claimed_by_mallory();
        assert_eq!(exchange.check(), Ok(()));
        channel.hostile.control(exchange.slot(), word).fetch_xor(bits, Ordering::SeqCst);
        assert!(exchange.check().is_err(), "{word}");
        exchange.quarantine();
        channel.assert_recovers();
    }
}

#[test]
fn withdrawing_the_notice_that_the_client_has_left_is_a_violation() {
    let channel = Channel::new();
    let (exchange, _) = channel.claimed_by_mallory();
    let slot = exchange.slot();
    drop(exchange);
    assert_eq!(channel.found_in_a_second(&mut []), None);
    channel.hostile.control(slot, offsets::FLAGS).store(0, Ordering::SeqCst);
    assert!(channel.found_in_a_second(&mut []).is_some());
    channel.assert_recovers();
}

#[test]
fn a_free_slot_that_looks_like_a_request_is_set_aside() {
    for was_cancelled in [false, true] {
        let channel = Channel::new();
        let mut exchange = channel.submit(b"");
        let slot = exchange.slot();
        if was_cancelled {
            assert!(exchange.cancel());
        } else {
            channel.hostile.set_state(slot, channel.hostile.sequence(slot), SlotState::Done(MALLORY));
            exchange.progress().unwrap();
        }
        drop(exchange);
        channel.hostile.set_state(slot, channel.hostile.sequence(slot), SlotState::Submitted);
        assert!(channel.found_in_a_second(&mut []).is_some());
        channel.assert_recovers();
    }
}

#[test]
fn a_worker_that_claims_more_requests_than_allowed_breaks_the_rules() {
    for (allowed, clients_stay) in [(1, true), (1, false), (5, true), (5, false)] {
        let channel = Channel::of(Geometry { claims: allowed, ..GEOMETRY });
        let mut exchanges: Vec<_> = (0..allowed).map(|_| channel.claimed_by_mallory().0).collect();
        assert_eq!(channel.found_in_a_second(&mut exchanges), None, "{allowed} are allowed");
        exchanges.push(channel.claimed_by_mallory().0);
        if !clients_stay {
            exchanges.clear();
        }
        let found = channel.found_in_a_second(&mut exchanges);
        assert_eq!(found, Some(Violation("a worker claimed more requests than it may run at a time")));
        for exchange in &mut exchanges {
            assert_eq!(exchange.worker_died(MALLORY), Ok(true));
        }
        drop(exchanges);
        channel.assert_recovers();
    }
}

#[test]
fn a_claim_that_a_former_incarnation_left_is_not_counted() {
    let channel = Channel::new();
    let (first, _) = channel.claimed_by_mallory();
    let next = WorkerId { incarnation: MALLORY.incarnation + 1, ..MALLORY };
    channel.router.worker_started(next);
    let second = channel.submit(b"request");
    channel.hostile.set_state(second.slot(), channel.hostile.sequence(second.slot()), SlotState::Claimed(next));
    let mut exchanges = [first, second];
    for _ in 0..2 {
        assert_eq!(channel.sweep(), Ok(()));
    }
    for (exchange, worker) in exchanges.iter_mut().zip([MALLORY, next]) {
        assert_eq!(exchange.worker_died(worker), Ok(true));
    }
    drop(exchanges);
    channel.assert_recovers();
}

#[test]
fn a_broken_rule_is_reported_until_the_workers_are_replaced() {
    let channel = Channel::new();
    let (mut exchange, sequence) = channel.claimed_by_mallory();
    channel.hostile.set_state(exchange.slot(), sequence + 1, SlotState::Free);
    assert!(exchange.progress().is_err());
    exchange.quarantine();
    assert!((0..10).all(|_| channel.sweep().is_err()));
    channel.assert_recovers();
}
