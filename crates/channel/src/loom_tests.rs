//! The interleavings of the three lock-free structures, explored by loom: `make loom`.

use crate::lock_free::idle::IdleSet;
use crate::lock_free::mailbox::{Mailbox, Visits};
use crate::lock_free::submission::{Hint, SubmissionQueue};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

struct Shared {
    head: AtomicU64,
    tail: AtomicU64,
    cells: Vec<AtomicU64>,
    bits: Vec<AtomicU64>,
    sleeping: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            cells: (0..4).map(|_| AtomicU64::new(0)).collect(),
            bits: vec![AtomicU64::new(0)],
            sleeping: AtomicU32::new(0),
        })
    }
    fn queue(&self) -> SubmissionQueue<'_> {
        SubmissionQueue { head: &self.head, cells: &self.cells }
    }
    fn idle(&self) -> IdleSet<'_> {
        IdleSet { bits: &self.bits }
    }
    fn mailbox(&self) -> Mailbox<'_> {
        Mailbox { sleeping: &self.sleeping, bits: &self.bits }
    }
    fn push(&self, slot: u16) {
        let ticket = self.tail.fetch_add(1, Ordering::AcqRel);
        self.queue().publish(ticket, Hint { slot, sequence: 1 });
    }
}

/// The worker 0. Returns whether it sees a hint.
fn worker_about_to_sleep(shared: &Arc<Shared>) -> thread::JoinHandle<bool> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        shared.idle().enter(0);
        shared.queue().has_hint()
    })
}

#[test]
fn loom_two_workers_never_take_the_same_hint() {
    loom::model(|| {
        let shared = Shared::new();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.queue().take())
            })
            .collect();
        shared.push(7);
        let taken = takers.into_iter().filter_map(|taker| taker.join().unwrap()).count();
        let left = usize::from(shared.queue().take().is_some());
        assert_eq!(taken + left, 1);
    });
}

#[test]
fn loom_hints_of_two_threads_are_taken_once_each() {
    loom::model(|| {
        let shared = Shared::new();
        let pushers: Vec<_> = (1..=2)
            .map(|slot| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.push(slot))
            })
            .collect();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let mut slots: Vec<u16> = std::iter::from_fn(|| shared.queue().take()).map(|hint| hint.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [1, 2]);
    });
}

#[test]
fn loom_a_queue_in_use_is_never_reported_as_broken() {
    loom::model(|| {
        let shared = Shared::new();
        let pusher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.push(1))
        };
        let taker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.queue().take().is_some())
        };
        assert!(shared.queue().waiting(&shared.tail).is_ok_and(|waiting| waiting <= 1));
        pusher.join().unwrap();
        taker.join().unwrap();
    });
}

#[test]
fn loom_a_queue_is_stuck_only_while_a_thread_is_about_to_publish() {
    loom::model(|| {
        let shared = Shared::new();
        let pusher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.push(1))
        };
        let taker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _ = shared.queue().take();
            })
        };
        let stuck = shared.queue().stuck_at(&shared.tail);
        assert!(stuck.is_none_or(|ticket| ticket == 0));
        pusher.join().unwrap();
        assert_eq!(shared.queue().stuck_at(&shared.tail), None);
        taker.join().unwrap();
    });
}

#[test]
fn loom_a_worker_about_to_sleep_is_woken_or_sees_the_hint() {
    loom::model(|| {
        let shared = Shared::new();
        let worker = worker_about_to_sleep(&shared);
        shared.push(7);
        let woken = shared.idle().wake_one().is_some();
        let seen = worker.join().unwrap();
        assert!(woken || seen, "the worker sleeps and its doorbell is not rung");
    });
}

#[test]
fn loom_a_loop_that_removes_the_sign_of_a_former_ring_gets_the_next_one_or_sees_the_hint() {
    loom::model(|| {
        let shared = Shared::new();
        // In place of the descriptor that the event loop watches: it is readable from a former ring.
        let readable = Arc::new(AtomicU32::new(1));
        let worker = {
            let (shared, readable) = (Arc::clone(&shared), Arc::clone(&readable));
            thread::spawn(move || {
                readable.store(0, Ordering::SeqCst);
                shared.idle().enter(0);
                shared.queue().has_hint()
            })
        };
        shared.push(7);
        if shared.idle().wake_one().is_some() {
            // The thread beside the loop.
            readable.store(1, Ordering::SeqCst);
        }
        let seen = worker.join().unwrap();
        assert!(seen || readable.load(Ordering::SeqCst) == 1, "the loop sleeps, and its descriptor is not readable");
    });
}

#[test]
fn loom_a_request_that_finds_no_sleeper_is_seen_by_the_worker() {
    loom::model(|| {
        let shared = Shared::new();
        let worker = worker_about_to_sleep(&shared);
        shared.push(7);
        let woken_later = shared.idle().sleepers() > 0;
        let seen = worker.join().unwrap();
        assert!(woken_later || seen, "the worker sleeps and no wake-up is scheduled");
    });
}

#[test]
fn loom_a_request_that_waits_for_a_worker_that_is_awake_is_seen_by_it() {
    loom::model(|| {
        let shared = Shared::new();
        // Another worker sleeps, and is not woken.
        shared.idle().enter(1);
        let worker = worker_about_to_sleep(&shared);
        shared.push(7);
        let all_sleep = shared.idle().sleepers() == 2;
        let seen = worker.join().unwrap();
        assert!(all_sleep || seen, "the worker counts as awake, and does not see the hint");
    });
}

#[test]
fn loom_a_router_thread_about_to_sleep_is_woken_or_sees_the_slot() {
    loom::model(|| {
        let shared = Shared::new();
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.mailbox().post(3))
        };
        let slept = shared.mailbox().prepare_to_sleep();
        let bell = worker.join().unwrap();
        if slept {
            assert!(bell, "the thread sleeps and its eventfd is not written");
        } else {
            let mut slots = Vec::new();
            shared.mailbox().drain(&Visits::new(64), |slot| {
                slots.push(slot);
                true
            });
            assert_eq!(slots, [3]);
        }
    });
}
