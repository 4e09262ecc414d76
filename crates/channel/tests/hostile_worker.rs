//! A worker that breaks every rule: the router's end reports it, reads nothing that it may not, and loses no slot.

mod hostile;

use hostile::HostileMemory;
use howdah_channel::{
    BODY_RING_BYTES, ControlEnd, Exchange, Geometry, Next, Progress, RESPONSE_RING_BYTES, Refused, RouterEnd,
    SlotState, Violation, WorkerChannel, WorkerId, offsets,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const SLOTS: usize = 64;
const GEOMETRY: Geometry = Geometry { slots: SLOTS as u16, threads: 1 };
const MALLORY: WorkerId = WorkerId { index: 7, incarnation: 3 };

struct Channel {
    control: ControlEnd,
    router: Arc<RouterEnd>,
    hostile: HostileMemory,
    bell: OwnedFd,
}

impl Channel {
    fn new() -> Channel {
        let control = ControlEnd::create(GEOMETRY).unwrap();
        let router = RouterEnd::attach(control.memfd(), GEOMETRY).unwrap();
        let hostile = HostileMemory::map(control.memfd(), GEOMETRY);
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        Channel { control, router, hostile, bell }
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
        let channel =
            WorkerChannel::attach(self.control.memfd(), GEOMETRY, vec![self.bell.try_clone().unwrap()]).unwrap();
        std::thread::spawn(move || {
            let end = channel.worker(WorkerId { index, incarnation: 9 });
            let mut head = Vec::new();
            while let Next::Run(mut claim) = end.next(|| false) {
                claim.head(&mut head).unwrap();
                claim.write(&head).unwrap();
                claim.finish();
            }
        })
    }

    /// All hostile workers are dead: everything is as new, and fresh workers answer a request in every slot.
    fn assert_recovers(mut self) {
        self.router.worker_died(MALLORY);
        self.router.release_quarantined();
        self.router.sweep().expect("nothing is broken any more");
        assert_eq!(self.router.free_slots(), SLOTS, "a slot is lost");
        let workers = [self.spawn_worker(0), self.spawn_worker(1)];
        let exchanges: Vec<_> = (0..SLOTS).map(|n| (n, self.submit(format!("request {n}").as_bytes()))).collect();
        for (n, mut exchange) in exchanges {
            assert_eq!(answer(&self, &mut exchange), format!("request {n}").as_bytes());
        }
        assert_eq!(self.router.free_slots(), SLOTS);
        self.control.stop_all();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}

/// Waits for a fresh worker's answer.
fn answer(channel: &Channel, exchange: &mut Exchange) -> Vec<u8> {
    while !matches!(exchange.progress().unwrap(), Progress::Done(_)) {
        channel.router.sweep().unwrap();
        exchange.resubmit_if_stranded();
        std::thread::yield_now();
    }
    let mut response = Vec::new();
    exchange.read(&mut response).unwrap();
    response
}

#[test]
fn a_word_that_no_queued_request_can_have_is_a_violation() {
    let garbage: [fn(u32) -> u64; 7] = [
        |sequence| offsets::word(sequence, SlotState::Free),
        |sequence| offsets::word(sequence.wrapping_add(1), SlotState::Submitted),
        |sequence| offsets::word(sequence.wrapping_sub(1), SlotState::Done(MALLORY)),
        |sequence| offsets::word(sequence, SlotState::Claimed(WorkerId { index: 0xfff, incarnation: 0 })),
        |sequence| offsets::word(sequence, SlotState::Done(WorkerId { index: 1024, incarnation: 0 })),
        |sequence| u64::from(sequence) << 32 | 0xf,
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
        assert!(channel.router.sweep().is_err(), "{delta}");
        channel.router.release_quarantined();
        let worker = channel.spawn_worker(0);
        assert_eq!(answer(&channel, &mut waiting), b"waiting", "{delta}");
        drop(waiting);
        assert_eq!(channel.router.free_slots(), SLOTS, "{delta}");
        channel.control.stop_all();
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
        channel.control.stop_all();
        worker.join().unwrap();
    }
}

#[test]
fn the_overwritten_slot_of_a_client_that_left_is_reported_and_comes_back() {
    let channel = Channel::new();
    let (exchange, sequence) = channel.claimed_by_mallory();
    let slot = exchange.slot();
    drop(exchange);
    assert_eq!(channel.router.sweep(), Ok(()));
    channel.hostile.set_state(slot, sequence + 5, SlotState::Claimed(MALLORY));
    assert!(channel.router.sweep().is_err());
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
        let mut out = Vec::new();
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
            channel.router.drain(0, |slot| assert!(slot < GEOMETRY.slots));
            let _ = channel.router.sweep();
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
    // Orphans of workers that never were go with the next violation.
    channel.router.release_quarantined();
    let mut last = channel.submit(b"");
    channel.hostile.state(last.slot()).store(0, Ordering::SeqCst);
    assert!(last.progress().is_err());
    last.quarantine();
    let _ = channel.control.check_orders();
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
        channel.control.workers_replaced();
        assert_eq!(channel.control.check_orders(), Ok(()));
        let worker = channel.spawn_worker(0);
        assert_eq!(answer(&channel, &mut exchange), b"request");
        channel.control.stop_all();
        worker.join().unwrap();
    }
}
