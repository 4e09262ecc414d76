//! The wake-ups of workers that sleep.

use super::*;
use crate::resources::processors::processors;
use howdah_channel::MAX_WORKERS;

const QUICK: Duration = Duration::from_micros(15);

fn start_workers(generation: &SharedGeneration, count: usize) {
    (0..count as u16).for_each(|index| generation.worker_started(WorkerId { index, incarnation: 0 }));
}

/// The last requests were quick.
fn make_quick(generation: &SharedGeneration) {
    (0..2000).for_each(|_| generation.occupied(QUICK));
}

/// A worker that sleeps until it answers one request.
fn sleeping_worker(setup: &Setup) -> std::thread::JoinHandle<()> {
    let worker = setup.worker(0);
    let (sender, id) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid()).expect("the test waits");
        answer(&worker);
    });
    let stat = format!("/proc/self/task/{}/stat", id.recv().expect("a thread").as_raw_nonzero());
    let sleeps = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
    while setup.port.generation.channel.sleepers() == 0 || !sleeps() {
        std::thread::yield_now();
    }
    thread
}

fn assert_ends(thread: std::thread::JoinHandle<()>) {
    let began = std::time::Instant::now();
    while !thread.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(20), "it sleeps on");
        std::thread::yield_now();
    }
    thread.join().expect("it has answered");
}

#[tokio::test(start_paused = true)]
async fn a_quick_request_waits_a_millisecond_for_workers_that_are_awake() {
    let setup = Setup::new();
    LocalSet::new()
        .run_until(async {
            let generation = &setup.port.generation;
            // One of them sleeps. The others are awake, and take no request.
            start_workers(generation, processors() + 1);
            make_quick(generation);
            let sleeper = sleeping_worker(&setup);
            let _running = setup.submit().await;
            run_others().await;
            assert_eq!(generation.channel.sleepers(), 1, "it waits");
            advance(Duration::from_millis(2)).await;
            run_others().await;
            assert_ends(sleeper);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_longer_wake_workers_at_once_again() {
    let setup = Setup::new();
    LocalSet::new()
        .run_until(async {
            let generation = &setup.port.generation;
            let awake = processors() as u64;
            start_workers(generation, processors() + 1);
            make_quick(generation);
            assert!(generation.wake_threshold(awake) > 0);
            // The only one that answers answers one.
            let sleeper = sleeping_worker(&setup);
            let first = setup.submit().await;
            let _second = setup.submit().await;
            setup.pass(Duration::from_millis(2)).await;
            assert_ends(sleeper);
            drop(first);
            setup.pass(A_SECOND).await;
            make_quick(generation);
            // A response without an end.
            let endless = setup.submit().await.expect("a slot");
            let worker = setup.worker(1);
            let (_second, _endless) = (begin(&worker), begin(&worker));
            for _ in 0..3 {
                setup.pass(SWEEP).await;
            }
            assert_eq!(generation.wake_threshold(awake), 0, "two requests run for long");
            make_quick(generation);
            setup.port.cancel(&endless);
            assert_eq!(generation.wake_threshold(awake), 0, "one did not end by itself");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_wakes_a_worker_at_once_if_requests_are_not_quick_or_none_is_awake() {
    for (occupied, workers) in [(Duration::from_millis(1), 9), (QUICK, 1)] {
        let setup = Setup::new();
        LocalSet::new()
            .run_until(async {
                let generation = &setup.port.generation;
                start_workers(generation, workers);
                (0..2000).for_each(|_| generation.occupied(occupied));
                let sleeper = sleeping_worker(&setup);
                let _running = setup.submit().await;
                run_others().await;
                assert_ends(sleeper);
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn workers_that_pretend_to_sleep_are_woken_a_limited_number_of_times() {
    let setup = Setup::new();
    LocalSet::new()
        .run_until(async {
            let generation = &setup.port.generation;
            start_workers(generation, processors() + 1);
            make_quick(generation);
            setup.overwrite(offsets::idle_bits(GEOMETRY), &[1]);
            let _running = setup.submit().await;
            run_others().await;
            assert_eq!(generation.channel.sleepers(), 1, "it waits");
            setup.overwrite(offsets::idle_bits(GEOMETRY), &[0xff; MAX_WORKERS as usize / 8]);
            for _ in 0..500 {
                advance(Duration::from_millis(1)).await;
                run_others().await;
            }
            let woken = u32::from(MAX_WORKERS) - generation.channel.sleepers();
            assert!((50..=150).contains(&woken), "{woken}");
        })
        .await;
}
