//! The orders of the supervisor to the samplers: the thread beside PHP in each worker that reads PHP's stack.
//!
//! A sampler sleeps on its doorbell. Its worker may overwrite all of these words, and so may other workers of the
//! generation: that spoils their own profile, and ends requests of their own application.

use crate::sync::{AtomicU32, AtomicU64};

/// The words that contain a sampler's orders.
#[derive(Clone, Copy, Debug)]
pub struct SamplerWords<'w> {
    /// Rung when another word has changed.
    pub bell: &'w AtomicU32,
    /// Samples of the stack per second, for a profile; 0 turns them off.
    pub rate: &'w AtomicU32,
    /// The start time of the request to end, in nanoseconds.
    pub end: &'w AtomicU64,
}

/// The most samples per second.
pub const MAX_RATE: u32 = 1000;
