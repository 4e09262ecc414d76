//! The slots of a generation, given out in the order of asking.
//!
//! A [`Place`] is the right to submit one request, and there are never more of them than free slots: who holds one finds
//! a slot. A slot is not free as soon as its request has ended: the hint of a cancelled one waits in the queue until a
//! worker has passed it, and a worker may go on with the request of a client that left. The channel knows which slots
//! are free ([`RouterEnd::free_slots`]); they are turned into places when places have run out.

use howdah_channel::RouterEnd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The places of a generation. Shared by the router's threads.
#[derive(Debug)]
pub struct Slots {
    channel: RouterEnd,
    semaphore: Semaphore,
    /// How many wait for a place.
    waiting: AtomicU64,
    /// How many requests may be in the channel: who waits there takes memory for it.
    most: AtomicUsize,
    /// How many slots there are.
    count: usize,
    /// Places that were made and not used up, whoever has them now. Never more than there are free slots.
    places: Mutex<usize>,
}

/// The right to submit one request; without [`Place::used`] it goes back.
pub struct Place<'s> {
    slots: &'s Slots,
    permit: SemaphorePermit<'s>,
}

/// Counts who waits, for as long as it does.
struct Waits<'s>(&'s AtomicU64);

/// So many requests may always be in the channel.
const LEAST: usize = 64;
/// And so many for each worker.
const FOR_EACH_WORKER: usize = 4;

// === impl Slots ===

impl Slots {
    /// The slots of this channel.
    pub fn new(channel: RouterEnd) -> Slots {
        let count = channel.slots();
        let most = AtomicUsize::new(LEAST.min(count));
        Slots { channel, semaphore: Semaphore::new(0), waiting: AtomicU64::new(0), most, count, places: Mutex::new(0) }
    }

    /// A place, if nobody has to wait for one.
    pub fn try_acquire(&self) -> Option<Place<'_>> {
        self.recover();
        self.semaphore.try_acquire().ok().map(|permit| Place { slots: self, permit })
    }

    /// So many workers live: they shall not wait while the router is busy.
    pub fn set_workers(&self, workers: usize) {
        self.most.store((workers * FOR_EACH_WORKER).clamp(LEAST, self.count.max(LEAST)), Ordering::Relaxed);
        self.recover();
    }

    /// How many wait for a place.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a place.
    pub async fn acquire(&self) -> Place<'_> {
        let _waits = Waits::new(&self.waiting);
        let permit = self.semaphore.acquire().await.expect("the semaphore is never closed");
        Place { slots: self, permit }
    }

    /// Makes places of slots that have become free, if somebody may wait for one. Cheap; call it whenever one may have.
    pub fn recover(&self) {
        if self.semaphore.available_permits() > 0 {
            return;
        }
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.channel.free_slots();
        let free = free.min(self.most.load(Ordering::Relaxed).saturating_sub(self.count - free.min(self.count)));
        if free > *places {
            self.semaphore.add_permits(free - *places);
            *places = free;
        }
    }
}

// === impl Place ===

impl Place<'_> {
    /// A request was submitted. Only then: the slot must be taken before the place is gone, lest there be one too many.
    pub fn used(self) {
        self.permit.forget();
        *self.slots.places.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        // Who looked for free slots in between has counted this place, and made one too few.
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
    use howdah_channel::{ControlEnd, Exchange, Geometry};

    const GEOMETRY: Geometry = Geometry { slots: 64, threads: 1 };

    fn submit(slots: &Slots) -> Option<Exchange> {
        let place = slots.try_acquire()?;
        let exchange = slots.channel.submit(0, b"", b"", true).expect("a place is a free slot");
        place.used();
        Some(exchange)
    }

    #[test]
    fn there_are_as_many_places_as_free_slots() {
        let control = ControlEnd::create(GEOMETRY).unwrap();
        let slots = Slots::new(RouterEnd::attach(control.memfd(), GEOMETRY).unwrap());
        drop(slots.try_acquire());
        let exchanges: Vec<_> = std::iter::from_fn(|| submit(&slots)).collect();
        assert_eq!(exchanges.len(), 64);
        // Nobody takes the hints: a slot is not free because its client has left.
        drop(exchanges);
        assert!(slots.try_acquire().is_none());
        assert_eq!(*slots.places.lock().unwrap(), 0);
    }
}
