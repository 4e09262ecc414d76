//! A worker's account of what it does: what it runs, since when, and what all its requests have cost.
//!
//! It lies in shared memory, a cache line for each worker, and is written by the worker alone, without order: a reader
//! may see one request's numbers half entered. Code of strangers can write anything here, so an account decides nothing
//! about another application, and its sums are taken with saturating arithmetic.

use crate::layout::account as at;
use crate::memory::Memory;
use crate::state::WorkerId;
use crate::sync::{AtomicU64, Ordering};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// An account as it was at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The request that it runs, if it runs one.
    pub current: Option<Current>,
    /// How many requests it has finished.
    pub requests: u64,
    /// How long it was busy with those.
    pub wall: Duration,
    /// How long a processor was busy with those.
    pub cpu: Duration,
}

/// A request that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Its slot.
    pub slot: u16,
    /// The slot's sequence number.
    pub sequence: u32,
    /// When it began, by [`monotonic`].
    pub began: Duration,
}

/// Where a worker enters what it does.
#[derive(Debug)]
pub struct Ledger<'m> {
    words: Words<'m>,
}

/// The words of one account.
#[derive(Debug)]
pub(crate) struct Words<'m> {
    memory: &'m Memory,
    at: usize,
}

/// `CLOCK_MONOTONIC`: the same for all processes of a machine.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// How long a processor has been busy with this process.
pub fn process_cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

// === impl Current ===

impl Current {
    /// What it is called: its slot, and the slot's sequence number.
    pub fn name(&self) -> (u16, u32) {
        (self.slot, self.sequence)
    }
}

// === impl Account ===

impl Account {
    /// How long it has been busy until now, with the request that it runs.
    pub fn busy(&self, now: Duration) -> Duration {
        let current = self.current.map_or(Duration::ZERO, |current| now.saturating_sub(current.began));
        self.wall.saturating_add(current)
    }
}

// === impl Ledger ===

impl<'m> Ledger<'m> {
    /// Opens the account of this worker: nothing has been done yet.
    pub(crate) fn open(words: Words<'m>, me: WorkerId) -> Ledger<'m> {
        for offset in [at::BEGAN, at::SLOT, at::REQUESTS, at::WALL, at::CPU] {
            words.set(offset, 0);
        }
        words.word(at::LIFE).store(u64::from(me.incarnation) + 1, Ordering::Release);
        Ledger { words }
    }

    /// A request begins.
    pub fn begin(&self, slot: u16, sequence: u32, now: Duration) {
        self.words.set(at::SLOT, u64::from(sequence) << 32 | u64::from(slot));
        self.words.set(at::BEGAN, nanoseconds(now).max(1));
    }

    /// It is over. `cpu` is what the process has used since it began to serve.
    pub fn finish(&self, now: Duration, cpu: Duration) {
        let began = self.words.get(at::BEGAN);
        self.words.set(at::BEGAN, 0);
        self.words.set(at::WALL, self.words.get(at::WALL).wrapping_add(nanoseconds(now).saturating_sub(began)));
        self.words.set(at::CPU, nanoseconds(cpu));
        self.words.set(at::REQUESTS, self.words.get(at::REQUESTS).wrapping_add(1));
    }
}

// === impl Words ===

impl<'m> Words<'m> {
    pub fn new(memory: &'m Memory, at: usize) -> Words<'m> {
        Words { memory, at }
    }

    /// The account of this worker; `None` before it has opened one.
    pub fn read(&self, worker: WorkerId) -> Option<Account> {
        if self.word(at::LIFE).load(Ordering::Acquire) != u64::from(worker.incarnation) + 1 {
            return None;
        }
        let slot = self.get(at::SLOT);
        let current = |began| Current { slot: slot as u16, sequence: (slot >> 32) as u32, began };
        Some(Account {
            current: Some(self.get(at::BEGAN)).filter(|began| *began > 0).map(Duration::from_nanos).map(current),
            requests: self.get(at::REQUESTS),
            wall: Duration::from_nanos(self.get(at::WALL)),
            cpu: Duration::from_nanos(self.get(at::CPU)),
        })
    }

    fn word(&self, offset: usize) -> &'m AtomicU64 {
        self.memory.u64(self.at + offset)
    }

    fn get(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn set(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Relaxed);
    }
}

/// Of five centuries, at most.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Geometry;
    use crate::view::View;

    #[test]
    fn an_account_says_what_its_worker_entered_and_nothing_of_an_earlier_life() {
        let geometry = Geometry { slots: 64, threads: 1 };
        let control = crate::ControlEnd::create(geometry).unwrap();
        let view = View::map(control.memfd(), geometry).unwrap();
        let (first, second) = (WorkerId { index: 3, incarnation: 0 }, WorkerId { index: 3, incarnation: 1 });
        assert_eq!(control.account(first), None);

        let ledger = Ledger::open(view.account(3), first);
        assert_eq!(control.account(first), Some(Account::default()));
        let at = Duration::from_secs;
        ledger.begin(7, u32::MAX, at(10));
        let account = control.account(first).unwrap();
        assert_eq!(account.current, Some(Current { slot: 7, sequence: u32::MAX, began: at(10) }));
        assert_eq!(account.busy(at(12)), at(2));
        assert_eq!(account.busy(at(9)), at(0), "the clocks of two processors may differ a little");
        ledger.finish(at(13), at(1));
        ledger.begin(8, 0, at(20));
        ledger.finish(at(21), at(2));
        let expected = Account { current: None, requests: 2, wall: at(4), cpu: at(2) };
        assert_eq!(control.account(first), Some(expected));

        Ledger::open(view.account(3), second);
        assert_eq!((control.account(first), control.account(second)), (None, Some(Account::default())));
    }
}
