//! The end of a worker, and the wait for a request.

use super::CHECK_AGAIN;
use super::claim::Claim;
use super::own::{Own, WorkerChannel};
use crate::memory::doorbell;
use crate::slot_state::{SlotState, WorkerId, pack, unpack};
use crate::sync::Ordering;
use crate::worker_record::account::Ledger;
use crate::worker_record::opcache::OpcacheNumbers;
use crate::worker_record::sampling::SamplerWords;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// One worker's end.
#[derive(Debug)]
pub struct WorkerEnd {
    pub(super) own: Own,
}

/// The next step of a worker.
#[derive(Debug)]
pub enum Next<'w> {
    /// Run this request.
    Run(Claim<'w>),
    /// Exit: this worker, or all workers, were ordered to stop.
    Stop,
}

// === impl WorkerChannel ===

impl WorkerChannel {
    /// The end of a worker of this name.
    pub fn worker(&self, me: WorkerId) -> WorkerEnd {
        WorkerEnd { own: Own { channel: self.clone(), me, cannot_notify: AtomicBool::new(false) } }
    }
}

// === impl WorkerEnd ===

impl WorkerEnd {
    /// Waits for a request and claims it. `before_sleep` is called before the worker sleeps. While it returns `true` the
    /// worker wakes after a second to call it again: there is something else to watch, such as children of PHP.
    pub fn next(&self, mut before_sleep: impl FnMut() -> bool) -> Next<'_> {
        let view = &*self.own.channel.view;
        loop {
            if self.must_stop() {
                break;
            }
            if let Some(claim) = self.try_next() {
                return Next::Run(claim);
            }
            let timeout = before_sleep().then_some(CHECK_AGAIN);
            let bell = view.doorbell(self.own.me.index);
            let seen = bell.load(Ordering::Acquire);
            view.idle().enter(self.own.me.index);
            if !view.queue().has_hint() && !self.must_stop() {
                doorbell::wait(bell, seen, timeout);
            }
            view.idle().leave(self.own.me.index);
        }
        // The wake-up of this worker may have been for a request.
        self.pass_on();
        Next::Stop
    }

    /// Opens this worker's account: once, before the first request. From now on other workers may exit for replacements.
    pub fn open_ledger(&self) -> Ledger<'_> {
        self.own.channel.view.recycle().give_back(self.own.me);
        Ledger::open(self.own.channel.view.account(self.own.me.index), self.own.me)
    }

    /// This worker's index.
    pub fn index(&self) -> u16 {
        self.own.me.index
    }

    /// Whether this worker can't notify the router, because a script closed its descriptors: it should exit. (The router
    /// checks the slots of a dead worker.)
    pub fn is_cut_off(&self) -> bool {
        self.own.cannot_notify.load(Ordering::Relaxed)
    }

    /// Takes the turn to exit for a replacement. `false` when another worker has it.
    pub fn may_recycle(&self, now: Duration) -> bool {
        self.own.channel.view.recycle().take(self.own.me, now)
    }

    /// The orders to this worker's sampler. Call it once, before the first request: orders to the former worker with this
    /// index are dropped.
    pub fn sampler_words(&self) -> SamplerWords<'_> {
        let view = &*self.own.channel.view;
        let index = self.own.me.index;
        view.end_word(index).store(0, Ordering::SeqCst);
        SamplerWords { bell: view.sampler_bell(index), rate: view.profile_rate(), end: view.end_word(index) }
    }

    /// The number of the recording of memory to which each worker adds a record after each request; 0 without one. Any
    /// worker of the application can write this word.
    pub fn memory_recording(&self) -> u32 {
        self.own.channel.view.memory_recording().load(Ordering::Relaxed)
    }

    /// Whether this worker is to enter the numbers of opcache now.
    pub fn opcache_is_due(&self, now: Duration) -> bool {
        self.own.channel.view.opcache().is_due(now)
    }

    /// Enters the numbers of opcache.
    pub fn enter_opcache(&self, numbers: &OpcacheNumbers) {
        self.own.channel.view.opcache().enter(numbers);
    }

    /// Whether this worker was ordered to finish its request and exit.
    pub fn must_stop(&self) -> bool {
        let view = &*self.own.channel.view;
        view.drain_word().load(Ordering::SeqCst) != 0
            || view.stop_word(self.own.me.index).load(Ordering::SeqCst) == u32::from(self.own.me.incarnation) + 1
    }

    /// Claims a request, if one waits. It does not wait for one.
    pub fn try_next(&self) -> Option<Claim<'_>> {
        let view = &*self.own.channel.view;
        let queue = view.queue();
        while let Some(hint) = queue.take() {
            if hint.slot >= view.layout.geometry.slots {
                continue;
            }
            let words = view.slot(hint.slot);
            let word = words.state().load(Ordering::Acquire);
            let (sequence, state) = unpack(word);
            if state != Some(SlotState::Submitted) || sequence as u16 != hint.sequence {
                continue;
            }
            let claimed = pack(sequence, SlotState::Claimed(self.own.me));
            if words.state().compare_exchange(word, claimed, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            if queue.has_more_hints_than(view.wake_threshold().load(Ordering::Relaxed)) {
                view.wake_a_worker();
            }
            let thread = words.thread().load(Ordering::Relaxed).min(u32::from(view.layout.geometry.threads) - 1) as u16;
            return Some(Claim::new(&self.own, hint.slot, sequence, thread));
        }
        None
    }
}
