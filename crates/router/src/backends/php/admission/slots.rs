//! The slots of a generation, given out in the order of asking.
//!
//! A [`SlotPermit`] is the right to submit one request. There are never more permits than free slots, so that the holder
//! of a permit finds a slot. A slot is not free as soon as its request has ended: the hint of a cancelled request stays in
//! the queue until a worker has passed it, and a worker may go on with the request of a client that left. The channel
//! knows which slots are free ([`RouterEnd::free_slots`]); permits are made for them when no permits are left.

use howdah_channel::{Geometry, RouterEnd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The slots of a generation. Shared by the router's threads.
#[derive(Debug)]
pub struct Slots {
    channel: RouterEnd,
    semaphore: Semaphore,
    /// How many requests wait for a permit.
    waiting: AtomicU64,
    /// How many requests may be in the channel: each takes memory, also while it waits there.
    most: AtomicUsize,
    /// How many slots there are, and how many of them for each worker.
    count: usize,
    for_each_worker: usize,
    /// Permits that exist, free or held. Never more than there are free slots.
    permits: Mutex<usize>,
}

/// The right to submit one request. Dropped without [`SlotPermit::used`], it is free again.
pub struct SlotPermit<'s> {
    slots: &'s Slots,
    permit: SemaphorePermit<'s>,
}

/// Counts a request among the waiting ones, until it is dropped.
struct Waits<'s>(&'s AtomicU64);

/// Requests that may always be in the channel.
const LEAST: usize = 64;

// === impl Slots ===

impl Slots {
    /// The slots of this channel.
    pub fn new(channel: RouterEnd) -> Slots {
        let count = channel.slots();
        let most = AtomicUsize::new(LEAST.min(count));
        let for_each_worker = Geometry::slots_of_worker(channel.claims() as u16) as usize;
        let semaphore = Semaphore::new(0);
        Slots { channel, semaphore, waiting: AtomicU64::new(0), most, count, for_each_worker, permits: Mutex::new(0) }
    }

    /// A permit, if one is free.
    pub fn try_acquire(&self) -> Option<SlotPermit<'_>> {
        self.recover();
        self.semaphore.try_acquire().ok().map(|permit| SlotPermit { slots: self, permit })
    }

    /// Adapts the limit to the number of live workers: none should idle while the router is busy.
    pub fn set_workers(&self, workers: usize) {
        self.most.store((workers * self.for_each_worker).clamp(LEAST, self.count.max(LEAST)), Ordering::Relaxed);
        self.recover();
    }

    /// How many requests wait for a permit.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a permit.
    pub async fn acquire(&self) -> SlotPermit<'_> {
        let _waits = Waits::new(&self.waiting);
        let permit = self.semaphore.acquire().await.expect("the semaphore is never closed");
        SlotPermit { slots: self, permit }
    }

    /// Makes permits for slots that have become free, if requests may be waiting. Cheap: call it whenever a slot may have
    /// become free.
    pub fn recover(&self) {
        if self.semaphore.available_permits() > 0 {
            return;
        }
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.channel.free_slots();
        let free = free.min(self.most.load(Ordering::Relaxed).saturating_sub(self.count - free.min(self.count)));
        if free > *permits {
            self.semaphore.add_permits(free - *permits);
            *permits = free;
        }
    }
}

// === impl SlotPermit ===

impl SlotPermit<'_> {
    /// Uses the permit up. Call it only after the request was submitted: if the permit went before the slot is taken, there
    /// would be one permit too many.
    pub fn used(self) {
        self.permit.forget();
        *self.slots.permits.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        // A thread that counted free slots in between has counted this permit, too, and made one too few.
        self.slots.recover();
    }
}

// === impl Waits ===

impl Waits<'_> {
    fn new(count: &AtomicU64) -> Waits<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Waits(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_channel::{ControlEnd, Exchange};

    const GEOMETRY: Geometry = Geometry { slots: 64, threads: 1, claims: 1 };

    fn submit(slots: &Slots) -> Option<Exchange> {
        let permit = slots.try_acquire()?;
        let exchange = slots.channel.submit(0, b"", b"", true).expect("a permit stands for a free slot");
        permit.used();
        Some(exchange)
    }

    #[test]
    fn there_are_as_many_permits_as_free_slots() {
        let control = ControlEnd::create(GEOMETRY).unwrap();
        let slots = Slots::new(RouterEnd::attach(control.memfd(), GEOMETRY).unwrap());
        drop(slots.try_acquire());
        let exchanges: Vec<_> = std::iter::from_fn(|| submit(&slots)).collect();
        assert_eq!(exchanges.len(), 64);
        // No worker takes the hints: a slot is not free because its client has left.
        drop(exchanges);
        assert!(slots.try_acquire().is_none());
        assert_eq!(*slots.permits.lock().unwrap(), 0);
    }
}
