//! A worker's account: the request that it runs, since when, and the cost of all its requests.
//!
//! It is a cache line of shared memory for each worker. Only its worker writes it, with relaxed stores: a reader may see
//! one request's numbers half entered. Hostile PHP code can write any value here. Therefore an account decides nothing
//! about another application, and readers add its numbers with saturating arithmetic.

use crate::memory::layout::account as offset;
use crate::slot_state::WorkerId;
use crate::sync::{AtomicU64, Ordering};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// An account at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The request that it runs, if there is one; the oldest, if it runs several.
    pub current: Option<Current>,
    /// The number of requests that it runs.
    pub running: u64,
    /// When its event loop last asked for a request, by [`monotonic`], if it runs several requests at a time.
    pub turn: Duration,
    /// The number of requests that it has finished.
    pub requests: u64,
    /// The time that these took.
    pub wall: Duration,
    /// The processor time that these took. While the worker is busy, the last millisecond of work may be missing.
    pub cpu: Duration,
}

/// A request that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Its slot.
    pub slot: u16,
    /// The slot's sequence number.
    pub sequence: u32,
    /// Its start, by [`monotonic`].
    pub began: Duration,
}

/// The worker's side of its account: it enters its requests here.
#[derive(Debug)]
pub struct Ledger<'m> {
    words: AccountWords<'m>,
}

/// The words of one account.
#[derive(Debug)]
pub(crate) struct AccountWords<'m> {
    words: &'m [AtomicU64],
}

/// `CLOCK_MONOTONIC`: the same for all processes of a machine.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The processor time that this process has used.
pub fn process_cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

/// The largest result is about five centuries.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

// === impl Current ===

impl Current {
    /// The name of the request: its slot, and the slot's sequence number.
    pub fn name(&self) -> (u16, u32) {
        (self.slot, self.sequence)
    }
}

// === impl Account ===

impl Account {
    /// The time that the worker was busy until now, including the request that it runs.
    pub fn busy(&self, now: Duration) -> Duration {
        let current = self.current.map_or(Duration::ZERO, |current| now.saturating_sub(current.began));
        self.wall.saturating_add(current)
    }
}

// === impl Ledger ===

impl<'m> Ledger<'m> {
    /// Opens the account of this worker, without requests.
    pub(crate) fn open(words: AccountWords<'m>, me: WorkerId) -> Ledger<'m> {
        use offset::{BEGAN, CPU, REQUESTS, RUNNING, SLOT, TURN, WALL};
        for number in [BEGAN, SLOT, REQUESTS, WALL, CPU, RUNNING, TURN] {
            words.set(number, 0);
        }
        words.word(offset::LIFE).store(u64::from(me.incarnation) + 1, Ordering::Release);
        Ledger { words }
    }

    /// Enters the start of a request.
    pub fn begin(&self, slot: u16, sequence: u32, now: Duration) {
        self.words.set(offset::SLOT, u64::from(sequence) << 32 | u64::from(slot));
        self.words.set(offset::BEGAN, nanoseconds(now).max(1));
    }

    /// Enters the end of the request.
    pub fn finish(&self, now: Duration) {
        self.finish_oldest(None, now);
    }

    /// Enters the end of the entered request, which is the oldest of those that the worker runs. `next` is the oldest one now.
    /// The time of requests that run at the same time counts once.
    pub fn finish_oldest(&self, next: Option<Current>, now: Duration) {
        let began = self.words.get(offset::BEGAN);
        let wall = nanoseconds(next.map_or(now, |next| next.began)).saturating_sub(began);
        self.words.set(offset::BEGAN, 0);
        self.words.set(offset::WALL, self.words.get(offset::WALL).wrapping_add(wall));
        next.into_iter().for_each(|next| self.begin(next.slot, next.sequence, next.began));
        self.finish_younger();
    }

    /// Enters the end of a request that is not the oldest one.
    pub fn finish_younger(&self) {
        self.words.set(offset::REQUESTS, self.words.get(offset::REQUESTS).wrapping_add(1));
    }

    /// Enters the number of requests that the worker runs, if these are several.
    pub fn enter_running(&self, running: usize) {
        self.words.set(offset::RUNNING, running as u64);
    }

    /// Enters that the event loop asks for a request.
    pub fn enter_turn(&self, now: Duration) {
        self.words.set(offset::TURN, nanoseconds(now));
    }

    /// Enters the processor time of the process since it began to serve.
    pub fn enter_cpu(&self, cpu: Duration) {
        self.words.set(offset::CPU, nanoseconds(cpu));
    }
}

// === impl AccountWords ===

impl<'m> AccountWords<'m> {
    /// The words of a worker's record from [`crate::memory::layout::worker::ACCOUNT`] on.
    pub fn new(words: &'m [AtomicU64]) -> AccountWords<'m> {
        AccountWords { words }
    }

    /// The account of this worker; `None` before it has opened one.
    pub fn read(&self, worker: WorkerId) -> Option<Account> {
        if self.word(offset::LIFE).load(Ordering::Acquire) != u64::from(worker.incarnation) + 1 {
            return None;
        }
        let slot = self.get(offset::SLOT);
        let current = |began| Current { slot: slot as u16, sequence: (slot >> 32) as u32, began };
        let current = Some(self.get(offset::BEGAN)).filter(|began| *began > 0).map(Duration::from_nanos).map(current);
        Some(Account {
            current,
            running: self.get(offset::RUNNING).max(current.is_some().into()),
            turn: Duration::from_nanos(self.get(offset::TURN)),
            requests: self.get(offset::REQUESTS),
            wall: Duration::from_nanos(self.get(offset::WALL)),
            cpu: Duration::from_nanos(self.get(offset::CPU)),
        })
    }

    fn word(&self, offset: usize) -> &'m AtomicU64 {
        &self.words[offset / 8]
    }

    fn get(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn set(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_contains_its_workers_entries_and_none_of_an_earlier_life() {
        let words: Vec<_> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let (first, second) = (WorkerId { index: 3, incarnation: 0 }, WorkerId { index: 3, incarnation: 1 });
        let account_of = |worker| AccountWords::new(&words).read(worker);
        assert_eq!(account_of(first), None);

        let ledger = Ledger::open(AccountWords::new(&words), first);
        assert_eq!(account_of(first), Some(Account::default()));
        let at = Duration::from_secs;
        ledger.begin(7, u32::MAX, at(10));
        let account = account_of(first).unwrap();
        assert_eq!(account.current, Some(Current { slot: 7, sequence: u32::MAX, began: at(10) }));
        assert_eq!(account.busy(at(12)), at(2));
        assert_eq!(account.busy(at(9)), at(0), "the clocks of two processors may differ a little");
        ledger.finish(at(13));
        ledger.begin(8, 0, at(20));
        ledger.finish(at(21));
        ledger.enter_cpu(at(2));
        let expected = Account { requests: 2, wall: at(4), cpu: at(2), ..Account::default() };
        assert_eq!(account_of(first), Some(expected));

        ledger.begin(7, 1, at(30));
        ledger.finish_younger();
        let younger = Current { slot: 9, sequence: 2, began: at(33) };
        ledger.finish_oldest(Some(younger), at(35));
        ledger.enter_running(5);
        ledger.enter_turn(at(35));
        let account = account_of(first).unwrap();
        assert_eq!((account.current, account.wall, account.requests), (Some(younger), at(7), 4));
        assert_eq!((account.running, account.turn), (5, at(35)));
        assert_eq!(account.busy(at(36)), at(10), "it is busy since second 30");
        ledger.finish(at(36));
        assert_eq!(account_of(first).unwrap().wall, at(10));

        Ledger::open(AccountWords::new(&words), second);
        assert_eq!((account_of(first), account_of(second)), (None, Some(Account::default())));
    }
}
