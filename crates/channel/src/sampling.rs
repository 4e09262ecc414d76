//! What the supervisor asks of the samplers: the thread beside PHP in each worker, which looks at PHP's stack.
//!
//! A sampler sleeps on its bell. Its worker may overwrite all of these words, and so do others of the generation: that
//! spoils their own profile, and ends requests of their own application.

use crate::account::{Current, nanoseconds};
use crate::control_end::ControlEnd;
use crate::idle;
use crate::state::WorkerId;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::worker_end::WorkerEnd;

/// The words by which a sampler is told what to do.
#[derive(Clone, Copy, Debug)]
pub struct SamplerWords<'w> {
    /// Rung when another word has changed.
    pub bell: &'w AtomicU32,
    /// How often a second the stack is sampled for a profile; 0 is not at all.
    pub rate: &'w AtomicU32,
    /// When the request began that shall end, in nanoseconds.
    pub end: &'w AtomicU64,
}

/// The most samples a second.
pub const MAX_RATE: u32 = 1000;

impl ControlEnd {
    /// Asks a worker to end the request that began then, with PHP's shutdown functions, but soon.
    pub fn end_request(&self, worker: WorkerId, current: Current) {
        self.view.end_word(worker.index).store(nanoseconds(current.began), Ordering::SeqCst);
        idle::ring(self.view.sampler_bell(worker.index));
    }

    /// Has the stacks of all workers sampled so often a second, those to come too; 0 ends it. These live.
    pub fn sample(&self, rate: u32, living: impl Iterator<Item = WorkerId>) {
        self.view.profile_rate().store(rate.min(MAX_RATE), Ordering::SeqCst);
        living.for_each(|worker| idle::ring(self.view.sampler_bell(worker.index)));
    }
}

impl WorkerEnd {
    /// What tells this worker's sampler what to do. Orders to an earlier worker in this place are dropped: once, before
    /// the first request.
    pub fn sampler_words(&self) -> SamplerWords<'_> {
        let view = self.view();
        let index = self.name().index;
        view.end_word(index).store(0, Ordering::SeqCst);
        SamplerWords { bell: view.sampler_bell(index), rate: view.profile_rate(), end: view.end_word(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Geometry;
    use crate::worker_end::WorkerChannel;
    use std::time::Duration;

    #[test]
    fn a_sampler_hears_what_is_asked_of_it() {
        let geometry = Geometry { slots: 64, threads: 1 };
        let control = ControlEnd::create(geometry).unwrap();
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let channel = WorkerChannel::attach(control.memfd(), geometry, vec![bell]).unwrap();
        let me = WorkerId { index: 5, incarnation: 2 };
        let current = Current { slot: 0, sequence: 1, began: Duration::from_nanos(77) };
        control.end_request(me, current);
        let worker = channel.worker(me);
        let words = worker.sampler_words();
        assert_eq!(words.end.load(Ordering::SeqCst), 0, "that was another worker's order");

        let rung = words.bell.load(Ordering::SeqCst);
        control.end_request(me, current);
        assert_eq!(words.end.load(Ordering::SeqCst), 77);
        control.sample(u32::MAX, [me].into_iter());
        assert_eq!(words.rate.load(Ordering::SeqCst), MAX_RATE);
        assert_eq!(words.bell.load(Ordering::SeqCst), rung.wrapping_add(2));
    }
}
