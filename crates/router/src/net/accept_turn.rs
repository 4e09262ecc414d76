//! The turn to accept: one thread has it at a time, so that a new connection wakes only that thread.
//! (EPOLLEXCLUSIVE of epoll_ctl(2) does the same; tokio's event loop does not set it.)
//!
//! A thread that has clearly more connections than another one passes the turn on to it. A thread that does not come back to its
//! event loop loses the turn to one that does, and gets it again when it is back.

use crate::net::load::Load;
use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The turn of a process.
#[derive(Debug)]
pub struct AcceptTurn {
    /// The thread that accepts.
    holder: AtomicUsize,
    threads: Box<[ThreadState]>,
    /// How many connections were accepted.
    accepted: AtomicU64,
    /// When the last round of [`ROUND`] connections ended, in microseconds from the beginning.
    round_ended: AtomicU64,
    /// How many connections were open then.
    open: AtomicU64,
    pace: AtomicU8,
    /// When the turn was last passed on for fewer connections, in microseconds from the beginning.
    passed: AtomicU64,
    began: Instant,
}

/// A thread's view of the turn.
#[derive(Clone, Debug)]
pub struct ThreadTurn {
    turn: Arc<AcceptTurn>,
    thread: usize,
}

#[derive(Debug, Default)]
struct ThreadState {
    /// Wakes its tasks when it gets or loses the turn.
    changed: Notify,
    /// When it was last in its event loop, in milliseconds from the beginning.
    was_seen: AtomicU64,
    /// When its processor time was last read, in microseconds from the beginning.
    measured_at: AtomicU64,
    /// Its processor time then, in microseconds.
    processor_time: AtomicU64,
}

/// The rate of new connections.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Pace {
    /// A thread is woken for each that another one should take.
    Slow,
    /// Most are closed after one request: a thread that is woken for one costs more than it helps.
    Fast,
    /// The thread that accepts has no time for more of them.
    TooFast,
}

/// The number of connections after which the pace is measured again.
const ROUND: u64 = 64;
/// The rate is fast if a round of them takes less time, and half of them are closed meanwhile.
const FAST_ROUND: Duration = Duration::from_millis(64);
/// The processor time of a thread, in percent, from which on it is busy.
const BUSY: u64 = 85;
/// The time between two passes, for each listener: a thread that gets or loses the turn registers or forgets all of them, which
/// takes a fifth of this time.
const PASS_OF_LISTENER: Duration = Duration::from_micros(20);
/// A thread that was not in its event loop for this long is stuck: each thread is there four times a second.
const STUCK: Duration = Duration::from_millis(600);

/// The thread that accepts next, after `own`, with these numbers of open connections of all threads: the one with the fewest
/// connections if it has clearly fewer, or else `own`. A thread that is stuck has `u64::MAX`.
fn next_holder(own: usize, connections: impl Fn(usize) -> u64, threads: usize, pace: Pace) -> usize {
    let least = (0..threads).fold(own, |least, n| if connections(n) < connections(least) { n } else { least });
    let fewest = connections(least);
    let difference = match pace {
        Pace::Slow => fewest / 16 + 1,
        Pace::Fast => fewest / 4 + 64,
        Pace::TooFast => fewest / 4 + 8,
    };
    if connections(own) > fewest + difference { least } else { own }
}

/// The pace, if a round of connections took `round`, `more` connections are open after it than before, and the thread that accepts
/// has worked for `worked` of the last `time`.
fn pace_of(round: Duration, more: u64, worked: Duration, time: Duration) -> Pace {
    match () {
        () if round >= FAST_ROUND || more > ROUND / 2 => Pace::Slow,
        () if worked.as_micros() * 100 > time.as_micros() * u128::from(BUSY) => Pace::TooFast,
        () => Pace::Fast,
    }
}

/// The processor time of the calling thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

// === impl AcceptTurn ===

impl AcceptTurn {
    /// The turn of this many threads; the first one begins.
    pub fn new(threads: usize) -> Arc<AcceptTurn> {
        Arc::new(AcceptTurn {
            holder: 0.into(),
            threads: (0..threads).map(|_| ThreadState::default()).collect(),
            accepted: 0.into(),
            round_ended: 0.into(),
            open: 0.into(),
            pace: (Pace::Slow as u8).into(),
            passed: 0.into(),
            began: Instant::now(),
        })
    }

    /// The view of a thread.
    pub fn of(self: &Arc<AcceptTurn>, thread: usize) -> ThreadTurn {
        ThreadTurn { turn: Arc::clone(self), thread }
    }

    fn pass(&self, from: usize, to: usize) {
        if from != to && self.holder.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            [from, to].iter().for_each(|thread| self.threads[*thread].changed.notify_waiters());
        }
    }

    fn is_stuck(&self, thread: usize, now: Duration) -> bool {
        let was_seen = Duration::from_millis(self.threads[thread].was_seen.load(Ordering::Relaxed));
        now.saturating_sub(was_seen) > STUCK
    }

    /// Counts a connection that this thread has accepted. `worked` is the thread's processor time; it is read once each round.
    fn count(
        &self,
        thread: usize,
        now: Duration,
        worked: impl FnOnce() -> Duration,
        connections: impl Fn(usize) -> u64,
    ) {
        if !(self.accepted.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(ROUND) {
            return;
        }
        let since = |last: &AtomicU64, now: Duration| {
            now.saturating_sub(Duration::from_micros(last.swap(now.as_micros() as u64, Ordering::Relaxed)))
        };
        let open: u64 = (0..self.threads.len()).map(connections).sum();
        let more = open.saturating_sub(self.open.swap(open, Ordering::Relaxed));
        let state = &self.threads[thread];
        let pace = pace_of(
            since(&self.round_ended, now),
            more,
            since(&state.processor_time, worked()),
            since(&state.measured_at, now),
        );
        self.pace.store(pace as u8, Ordering::Relaxed);
    }

    /// The pace of the last round, if it has just ended.
    fn pace(&self, now: Duration) -> Pace {
        if now.saturating_sub(Duration::from_micros(self.round_ended.load(Ordering::Relaxed))) >= FAST_ROUND {
            return Pace::Slow;
        }
        let pace = self.pace.load(Ordering::Relaxed);
        [Pace::Slow, Pace::Fast, Pace::TooFast].into_iter().find(|known| *known as u8 == pace).unwrap_or(Pace::Slow)
    }
}

// === impl ThreadTurn ===

impl ThreadTurn {
    /// Whether this thread accepts.
    pub fn is_own(&self) -> bool {
        self.turn.holder.load(Ordering::Acquire) == self.thread
    }

    /// Waits until this thread accepts.
    pub fn begins(&self) -> impl Future<Output = ()> {
        self.becomes(true)
    }

    /// Waits until another thread accepts.
    pub fn ends(&self) -> impl Future<Output = ()> {
        self.becomes(false)
    }

    /// Passes the turn on after this thread has taken a connection, if another one has clearly fewer. Each thread has this number of
    /// listeners.
    pub fn took_connection(&self, loads: &[Arc<Load>], listeners: usize) {
        let now = self.turn.began.elapsed();
        let connections = |thread: usize| loads[thread].connections();
        self.turn.count(self.thread, now, processor_time, connections);
        let is_stuck = |thread| thread != self.thread && self.turn.is_stuck(thread, now);
        let usable = |thread| if is_stuck(thread) { u64::MAX } else { connections(thread) };
        let next = next_holder(self.thread, usable, loads.len(), self.turn.pace(now));
        let passed = Duration::from_micros(self.turn.passed.load(Ordering::Relaxed));
        let pause = PASS_OF_LISTENER * u32::try_from(listeners).unwrap_or(u32::MAX);
        if next != self.thread && now.saturating_sub(passed) >= pause {
            self.turn.passed.store(now.as_micros() as u64, Ordering::Relaxed);
            self.turn.pass(self.thread, next);
        }
    }

    /// Passes the turn on to the next thread, which may be able to do what this one is not.
    pub fn pass_on(&self) {
        let now = self.turn.began.elapsed();
        let others = (1..self.threads()).map(|distance| (self.thread + distance) % self.threads());
        if let Some(next) = others.into_iter().find(|thread| !self.turn.is_stuck(*thread, now)) {
            self.turn.pass(self.thread, next);
        }
    }

    /// How many threads have a turn.
    pub fn threads(&self) -> usize {
        self.turn.threads.len()
    }

    /// Notes that this thread is in its event loop, and takes the turn of one that is stuck. Call it four times a second.
    pub fn check(&self) {
        let now = self.turn.began.elapsed();
        self.turn.threads[self.thread].was_seen.store(now.as_millis() as u64, Ordering::Relaxed);
        let holder = self.turn.holder.load(Ordering::Acquire);
        if self.turn.is_stuck(holder, now) {
            self.turn.pass(holder, self.thread);
        }
    }

    async fn becomes(&self, own: bool) {
        loop {
            // It waits before it looks: a change in between wakes it.
            let changed = self.turn.threads[self.thread].changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.is_own() == own {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn the_turn_goes_to_a_thread_with_clearly_fewer_connections() {
        // The connections of the threads; the one that accepts next after the first, with each pace.
        let table: [(&[u64], [usize; 3]); _] = [
            (&[1], [0, 0, 0]),
            (&[1, 0], [0, 0, 0]),
            (&[2, 0], [1, 0, 0]),
            (&[2, 1, 0], [2, 0, 0]),
            (&[8, 0, 0], [1, 0, 0]),
            (&[9, 0, 0], [1, 0, 1]),
            (&[9, 2, 1], [2, 0, 0]),
            (&[64, 0, 0], [1, 0, 1]),
            (&[65, 0, 0], [1, 1, 1]),
            (&[86, 80, 90], [0, 0, 0]),
            (&[87, 80, 90], [1, 0, 0]),
            (&[108, 80, 90], [1, 0, 0]),
            (&[109, 80, 90], [1, 0, 1]),
            (&[165, 80, 90], [1, 1, 1]),
            (&[0, 5, 5], [0, 0, 0]),
            (&[200, u64::MAX, 1], [2, 2, 2]),
            (&[200, u64::MAX, u64::MAX], [0, 0, 0]),
        ];
        for (connections, expected) in table {
            let next = |pace| next_holder(0, |thread| connections[thread], connections.len(), pace);
            assert_eq!([Pace::Slow, Pace::Fast, Pace::TooFast].map(next), expected, "{connections:?}");
        }
    }

    #[test]
    fn the_pace_is_that_of_a_round_and_of_the_thread() {
        // Milliseconds of the round, its open connections, milliseconds of the thread's work, and the time that it took for it.
        let table = [
            (64, 0, 10, 1000, Pace::Slow),
            (64, 0, 1000, 1000, Pace::Slow),
            (63, 32, 850, 1000, Pace::Fast),
            (63, 33, 850, 1000, Pace::Slow),
            (63, 0, 851, 1000, Pace::TooFast),
            (0, 0, 0, 0, Pace::Fast),
        ];
        for (round, more, worked, time, expected) in table {
            let [round, worked, time] = [round, worked, time].map(Duration::from_millis);
            assert_eq!(pace_of(round, more, worked, time), expected, "{round:?} {more} {worked:?} {time:?}");
        }
    }

    /// A turn whose threads are never stuck, however slow the machine is.
    fn turn_of(threads: usize) -> Arc<AcceptTurn> {
        let turn = AcceptTurn::new(threads);
        turn.threads.iter().for_each(|thread| thread.was_seen.store(u64::MAX, Ordering::Relaxed));
        turn
    }

    #[test]
    fn one_thread_accepts_at_a_time() {
        let turn = turn_of(3);
        let threads: Vec<_> = (0..3).map(|thread| turn.of(thread)).collect();
        let own = || threads.iter().map(ThreadTurn::is_own).collect::<Vec<_>>();
        assert_eq!(own(), [true, false, false]);
        threads[1].pass_on();
        assert_eq!(own(), [true, false, false], "a thread without the turn cannot pass it on");
        threads[0].pass_on();
        assert_eq!(own(), [false, true, false]);
        threads[1].pass_on();
        threads[2].pass_on();
        assert_eq!(own(), [true, false, false]);
    }

    #[test]
    fn each_round_measures_the_pace() {
        const MS: Duration = Duration::from_millis(1);
        let turn = AcceptTurn::new(1);
        let round = |now, worked, open| {
            (0..ROUND).for_each(|_| turn.count(0, now, || worked, |_| open));
            turn.pace(now)
        };
        assert_eq!(round(1000 * MS, 100 * MS, 0), Pace::Slow);
        assert_eq!(round(1010 * MS, 110 * MS, 0), Pace::TooFast, "it has worked all the time");
        assert_eq!(round(1070 * MS, 160 * MS, 0), Pace::Fast);
        assert_eq!([turn.pace(1133 * MS), turn.pace(1134 * MS)], [Pace::Fast, Pace::Slow], "no connections come");
        assert_eq!(round(1130 * MS, 160 * MS, ROUND), Pace::Slow, "all stay open");
        assert_eq!(round(1190 * MS, 160 * MS, ROUND), Pace::Fast);
    }

    #[test]
    fn a_thread_that_is_stuck_has_no_turn() {
        let mut turn = turn_of(3);
        turn.of(1).check();
        assert!(turn.of(0).is_own());
        [0, 2].iter().for_each(|thread| turn.threads[*thread].was_seen.store(0, Ordering::Relaxed));
        Arc::get_mut(&mut turn).expect("it is the only one").began -= STUCK + Duration::from_millis(1);
        turn.of(0).check();
        assert!(turn.of(0).is_own(), "it is back");
        turn.threads[0].was_seen.store(0, Ordering::Relaxed);
        turn.of(1).check();
        assert!(turn.of(1).is_own());
        // The threads that are stuck have fewer connections.
        let loads: Vec<Arc<Load>> = (0..3).map(|_| Arc::default()).collect();
        let _open: Vec<_> = (0..10).map(|_| loads[1].connection_began()).collect();
        turn.of(1).took_connection(&loads, 1);
        turn.of(1).pass_on();
        assert!(turn.of(1).is_own());
        turn.of(0).check();
        turn.of(1).pass_on();
        assert!(turn.of(0).is_own(), "it skips the one that is stuck");
    }

    #[test]
    fn many_listeners_are_not_passed_on_often() {
        let turn = turn_of(2);
        let loads: Vec<Arc<Load>> = (0..2).map(|_| Arc::default()).collect();
        let _open: Vec<_> = (0..10).map(|_| loads[0].connection_began()).collect();
        turn.passed.store(u64::MAX, Ordering::Relaxed);
        turn.of(0).took_connection(&loads, 1000);
        assert!(turn.of(0).is_own(), "it was passed on just now");
        turn.passed.store(0, Ordering::Relaxed);
        turn.of(0).took_connection(&loads, 0);
        assert!(turn.of(1).is_own());
    }

    #[test]
    fn the_turn_wakes_the_thread_that_gets_it() {
        const TURNS: u64 = 8_000;
        let turn = turn_of(4);
        let ready = Barrier::new(4);
        let turns = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (turn, ready, turns) = (turn.of(thread), &ready, &turns);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                    ready.wait();
                    runtime.block_on(async {
                        for _ in 0..TURNS / 4 {
                            turn.begins().await;
                            turns.fetch_add(1, Ordering::Relaxed);
                            turn.pass_on();
                        }
                    });
                });
            }
        });
        assert_eq!(turns.into_inner(), TURNS);
    }
}
