//! The supervisor's end of a channel: creates it, orders workers to stop, reads their accounts, and cleans up after dead
//! workers.
//!
//! The words that stop workers are in shared memory. A hostile worker can write them: stop all workers, or take an order
//! back. Therefore this end keeps the orders in private memory, and [`ControlEnd::check_orders`] compares. Call it when a
//! worker has exited: to exit is all that a false order makes a worker do.

use crate::memory::doorbell;
use crate::memory::layout::{Geometry, Layout, MAX_WORKERS, REQUEST_HEAD_BYTES};
use crate::memory::mapping::Mapping;
use crate::slot_state::{SlotState, WorkerId, unpack};
use crate::sync::{Ordering, fence};
use crate::view::View;
use crate::violation::Violation;
use crate::worker_record::account::{Account, Current, nanoseconds};
use crate::worker_record::opcache::OpcacheNumbers;
use crate::worker_record::sampling::MAX_RATE;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The supervisor's end.
#[derive(Debug)]
pub struct ControlEnd {
    memfd: OwnedFd,
    view: View,
    /// Whether all workers were ordered to stop.
    drained: bool,
    /// The living workers that were ordered to stop: their indexes, and the values of their stop words.
    stopped: BTreeMap<u16, u32>,
}

// === impl ControlEnd ===

impl ControlEnd {
    /// Creates a channel.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn create(geometry: Geometry) -> io::Result<ControlEnd> {
        let memfd = Mapping::create(Layout::new(geometry).total_bytes)?;
        let view = View::map(&memfd, geometry)?;
        Ok(ControlEnd { memfd, view, drained: false, stopped: BTreeMap::new() })
    }

    /// The channel's memory, for the other ends.
    pub fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// The channel's size, for the other ends.
    pub fn geometry(&self) -> Geometry {
        self.view.layout.geometry
    }

    /// Whether the worker with this index reports to be idle. A hostile worker may have written that.
    pub fn reports_idle(&self, index: u16) -> bool {
        self.view.idle().contains(index)
    }

    /// This worker's account; `None` before it serves. A hostile worker may have written any value.
    pub fn account(&self, worker: WorkerId) -> Option<Account> {
        (worker.index < MAX_WORKERS).then(|| self.view.account(worker.index).read(worker)).flatten()
    }

    /// The numbers of opcache; `None` before a worker has reported them. A hostile worker may have written any value.
    pub fn opcache(&self) -> Option<(Duration, OpcacheNumbers)> {
        self.view.opcache().read()
    }

    /// The head of the request that a worker reports to run: see [`crate::request::parse_head`]. `None` when the worker has
    /// finished it. A client of the application sent it, and a worker may have overwritten it.
    pub fn request_head(&self, current: Current) -> Option<Vec<u8>> {
        if !self.is_answering(current) {
            return None;
        }
        let words = self.view.slot(current.slot);
        let len = words.head_length().load(Ordering::Relaxed) as usize;
        if len > REQUEST_HEAD_BYTES {
            return None;
        }
        let mut head = Vec::new();
        words.read_head(len, &mut head);
        fence(Ordering::Acquire);
        self.is_answering(current).then_some(head)
    }

    /// Whether the response of this request is not complete. A hostile worker can write this word, too.
    pub fn is_answering(&self, current: Current) -> bool {
        if current.slot >= self.view.layout.geometry.slots {
            return false;
        }
        let (sequence, state) = unpack(self.view.slot(current.slot).state().load(Ordering::Acquire));
        sequence == current.sequence && matches!(state, Some(SlotState::Claimed(_)))
    }

    /// Orders one worker to finish its request and exit.
    pub fn stop_worker(&mut self, worker: WorkerId) {
        let order = u32::from(worker.incarnation) + 1;
        self.stopped.insert(worker.index, order);
        self.view.stop_word(worker.index).store(order, Ordering::SeqCst);
        doorbell::ring(self.view.doorbell(worker.index));
    }

    /// Orders all workers, future ones too, to finish their requests and exit. `living` are the workers to wake.
    pub fn stop_all(&mut self, living: impl IntoIterator<Item = WorkerId>) {
        self.drained = true;
        self.view.drain_word().store(1, Ordering::SeqCst);
        living.into_iter().for_each(|worker| doorbell::ring(self.view.doorbell(worker.index)));
    }

    /// A worker is dead: takes it out of the idle set, and drops its order to stop.
    pub fn worker_died(&mut self, worker: WorkerId) {
        self.view.idle().leave(worker.index);
        let order = u32::from(worker.incarnation) + 1;
        if self.stopped.get(&worker.index) == Some(&order) {
            self.stopped.remove(&worker.index);
            // Only the order itself: `check_orders` finds any other value.
            let word = self.view.stop_word(worker.index);
            let _ = word.compare_exchange(order, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Compares the words that stop workers with what was ordered, and repeats the orders where they differ.
    ///
    /// # Errors
    /// When a worker wrote one of them: some worker exits, or goes on, against its orders.
    pub fn check_orders(&mut self) -> Result<(), Violation> {
        let drained = u32::from(self.drained);
        let mut kept = self.view.drain_word().swap(drained, Ordering::SeqCst) == drained;
        for index in 0..MAX_WORKERS {
            let order = self.stopped.get(&index).copied().unwrap_or(0);
            let word = self.view.stop_word(index);
            if word.load(Ordering::SeqCst) != order {
                word.store(order, Ordering::SeqCst);
                kept = false;
            }
        }
        if kept {
            return Ok(());
        }
        (0..MAX_WORKERS).for_each(|index| doorbell::ring(self.view.doorbell(index)));
        Err(Violation("the words that stop workers were overwritten"))
    }

    /// All workers that ran when the rules were broken are dead, and none has been started since: clears what they wrote
    /// here, for the workers to come.
    pub fn workers_replaced(&mut self) {
        self.stopped.clear();
        let _ = self.check_orders();
        self.view.idle().clear();
    }

    /// Orders a worker's sampler to end the request that began then: soon, and with PHP's shutdown functions.
    pub fn end_request(&self, worker: WorkerId, current: Current) {
        self.view.end_word(worker.index).store(nanoseconds(current.began), Ordering::SeqCst);
        doorbell::ring(self.view.sampler_bell(worker.index));
    }

    /// Orders the samplers of all workers, future ones too, to sample stacks at this rate per second; 0 stops them. `living`
    /// are the workers to wake.
    pub fn sample(&self, rate: u32, living: impl Iterator<Item = WorkerId>) {
        self.view.profile_rate().store(rate.min(MAX_RATE), Ordering::SeqCst);
        living.for_each(|worker| doorbell::ring(self.view.sampler_bell(worker.index)));
    }

    /// Orders all workers, future ones too, to record their memory after each request. Each recording has another number; 0
    /// ends it.
    pub fn record_memory(&self, number: u32) {
        self.view.memory_recording().store(number, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(miri)))] // Miri has no memfd
mod tests {
    use super::*;
    use crate::worker_end::WorkerChannel;
    use std::time::Duration;

    #[test]
    fn an_order_to_stop_wakes_only_living_workers() {
        let mut control = ControlEnd::create(Geometry { slots: 64, threads: 1, claims: 1 }).unwrap();
        control.stop_all([3, 700].map(|index| WorkerId { index, incarnation: 1 }));
        let rung = |index: &u16| control.view.doorbell(*index).load(Ordering::SeqCst) != 0;
        assert_eq!((0..MAX_WORKERS).filter(rung).collect::<Vec<_>>(), [3, 700]);
    }

    #[test]
    fn a_sampler_receives_its_orders_and_none_of_an_earlier_workers() {
        let geometry = Geometry { slots: 64, threads: 1, claims: 1 };
        let control = ControlEnd::create(geometry).unwrap();
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let channel = WorkerChannel::attach(control.memfd(), geometry, vec![bell]).unwrap();
        let me = WorkerId { index: 5, incarnation: 2 };
        let current = Current { slot: 0, sequence: 1, began: Duration::from_nanos(77) };
        control.end_request(me, current);
        let worker = channel.worker(me);
        let words = worker.sampler_words();
        assert_eq!(words.end.load(Ordering::SeqCst), 0, "that was an order to an earlier worker");

        let rung = words.bell.load(Ordering::SeqCst);
        control.end_request(me, current);
        assert_eq!(words.end.load(Ordering::SeqCst), 77);
        control.sample(u32::MAX, [me].into_iter());
        assert_eq!(words.rate.load(Ordering::SeqCst), MAX_RATE);
        assert_eq!(words.bell.load(Ordering::SeqCst), rung.wrapping_add(2));

        assert_eq!(worker.memory_recording(), 0);
        control.record_memory(7);
        assert_eq!((worker.memory_recording(), words.rate.load(Ordering::SeqCst)), (7, MAX_RATE));
    }
}
