//! The table of workers, step by step.

use super::*;

fn process(number: i32) -> Process {
    Process { pid: Pid::from_raw(number).unwrap(), started: 1 }
}

fn id(index: u16, incarnation: u16) -> WorkerId {
    WorkerId { index, incarnation }
}

#[test]
fn the_index_of_a_dead_worker_is_reused_with_another_incarnation() {
    let now = Instant::now();
    let mut workers = Workers::new(2);
    assert_eq!(workers.start_due(usize::MAX, now), [id(0, 0), id(1, 0)]);
    assert_eq!(workers.start_due(usize::MAX, now), []);
    assert!(workers.started(id(1, 0), Some(process(11))));
    assert!(!workers.started(id(1, 0), Some(process(12))), "a worker is one process");
    assert_eq!(workers.with_pid(process(11).pid), Some(id(1, 0)));
    assert!(workers.died(id(1, 0), now));
    assert!(!workers.died(id(1, 0), now));
    assert_eq!(workers.start_due(usize::MAX, now), [id(1, 1)]);
    assert!(!workers.started(id(1, 0), Some(process(12))));
}

#[test]
fn when_no_worker_can_be_forked_one_is_tried_at_a_time() {
    let now = Instant::now();
    let mut workers = Workers::new(3);
    let all = workers.start_due(usize::MAX, now);
    assert!(workers.started(all[0], Some(process(10))));
    assert!(workers.not_forked(all[1], now) && workers.not_forked(all[2], now));
    assert!(!workers.not_forked(all[2], now) && !workers.not_forked(all[0], now));
    assert_eq!((workers.staying(), workers.started_since(now).count()), (1, 0));
    assert_eq!(workers.start_due(usize::MAX, now), []);
    let retry = workers.next_deadline().unwrap();
    assert!(retry > now);
    let trial = workers.start_due(usize::MAX, retry);
    assert_eq!((trial.len(), workers.start_due(usize::MAX, retry).len(), workers.next_deadline()), (1, 0, None));
    assert!(workers.not_forked(trial[0], retry));
    let later = workers.next_deadline().unwrap();
    assert!(later - retry > retry - now, "the delay grows");
    let trial = workers.start_due(usize::MAX, later);
    assert!(workers.started(trial[0], Some(process(11))));
    assert_eq!((workers.start_due(usize::MAX, later).len(), workers.staying()), (1, 3), "the others start at once");
}

#[test]
fn a_trial_whose_prototype_dies_does_not_block_the_next_one() {
    let now = Instant::now();
    let mut workers = Workers::new(2);
    let all = workers.start_due(usize::MAX, now);
    assert!(workers.not_forked(all[0], now) && workers.not_forked(all[1], now));
    let retry = workers.next_deadline().unwrap();
    assert_eq!(workers.start_due(usize::MAX, retry).len(), 1);
    workers.orphan_all(retry);
    assert_eq!(workers.start_due(usize::MAX, retry).len(), 2);
}

#[test]
fn workers_that_are_not_started_yet_are_the_first_to_be_cancelled() {
    let now = Instant::now();
    let mut workers = Workers::new(4);
    let all = workers.start_due(usize::MAX, now);
    for (worker, number) in all.iter().zip(10..) {
        workers.started(*worker, Some(process(number)));
    }
    assert!(workers.died(all[1], now) && workers.died(all[3], now));
    workers.set_target(3);
    assert_eq!((workers.staying(), workers.running().count()), (3, 2));
    workers.set_target(1);
    assert_eq!((workers.staying(), workers.running().count()), (2, 2), "no running worker is stopped");
}

#[test]
fn the_index_of_a_leaving_worker_is_not_reused() {
    let now = Instant::now();
    let mut workers = Workers::new(2);
    workers.start_due(usize::MAX, now);
    workers.started(id(0, 0), Some(process(10)));
    assert_eq!(workers.orphan_all(now), [(id(0, 0), Some(process(10))), (id(1, 0), None)]);
    assert_eq!(workers.start_due(usize::MAX, now), [id(2, 0), id(3, 0)]);
    assert!(workers.died(id(0, 0), now));
    assert_eq!(workers.start_due(usize::MAX, now), []);
    assert_eq!(workers.expired_orphans(now), []);
    assert_eq!(workers.expired_orphans(now + ORPHAN_TIMEOUT), [(id(1, 0), None)]);
    assert_eq!(workers.expired_orphans(now + ORPHAN_TIMEOUT), []);
}

#[test]
fn retired_workers_count_until_they_are_dead_but_orphans_do_not() {
    let now = Instant::now();
    let mut workers = Workers::new(2).at_most(2);
    workers.start_due(usize::MAX, now);
    workers.started(id(0, 0), Some(process(10)));
    workers.retire(id(0, 0));
    workers.set_target(2);
    assert_eq!(workers.start_due(usize::MAX, now), []);
    workers.died(id(0, 0), now);
    assert_eq!(workers.start_due(usize::MAX, now), [id(0, 1)]);
    workers.orphan_all(now);
    assert_eq!(workers.start_due(usize::MAX, now), [id(2, 0), id(3, 0)]);
}

#[test]
fn a_retired_worker_is_not_replaced() {
    let now = Instant::now();
    let mut workers = Workers::new(2);
    workers.start_due(usize::MAX, now);
    workers.retire(id(1, 0));
    assert_eq!((workers.target(), workers.staying()), (1, 1));
    assert!(workers.died(id(1, 0), now));
    assert_eq!(workers.start_due(usize::MAX, now), []);
    workers.set_target(2);
    assert_eq!(workers.start_due(usize::MAX, now), [id(1, 1)]);
}

#[test]
fn a_worker_that_exits_in_good_order_is_replaced_at_once() {
    let now = Instant::now();
    let mut workers = Workers::new(1);
    for incarnation in 0..10 {
        assert_eq!(workers.start_due(usize::MAX, now), [id(0, incarnation)]);
        assert!(workers.exited(id(0, incarnation), now));
    }
}

#[test]
fn workers_that_die_in_a_request_are_replaced_at_once_until_the_burst_is_spent() {
    let now = Instant::now();
    let mut workers = Workers::new(2);
    for incarnation in 0..5 {
        assert_eq!(workers.start_due(usize::MAX, now), [id(0, incarnation), id(1, incarnation)]);
        assert!(workers.died_in_request(id(0, incarnation), now) && workers.died_in_request(id(1, incarnation), now));
    }
    workers.start_due(usize::MAX, now);
    assert!(
        workers.died_in_request(id(0, 5), now)
            && !workers.died_in_request(id(0, 5), now)
            && !workers.died_in_request(id(7, 0), now)
    );
    assert_eq!(workers.start_due(usize::MAX, now), []);
    assert_eq!(workers.start_due(usize::MAX, workers.next_deadline().unwrap()), [id(0, 6)]);
    workers.retire(id(1, 5));
    assert!(workers.died_in_request(id(1, 5), now), "it is not replaced");
    assert_eq!(workers.next_deadline(), None);
}

#[test]
fn a_worker_that_keeps_dying_early_starts_with_a_delay() {
    let now = Instant::now();
    let mut workers = Workers::new(1);
    for _ in 0..4 {
        let worker = workers.start_due(usize::MAX, now)[0];
        workers.died(worker, now);
    }
    assert_eq!(workers.start_due(usize::MAX, now), []);
    let deadline = workers.next_deadline().unwrap();
    assert_eq!(workers.start_due(usize::MAX, deadline), [id(0, 4)]);
}
