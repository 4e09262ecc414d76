//! Which requests of a generation may run, and when.
//!
//! - `slots`: a request waits for a free slot, in order
//! - `queue`: how long requests wait, and which are rejected; `shared_queue`: the same for all threads
//! - `refusals`: when they are rejected; `shared_refusals`: the same for all threads
//! - `killers`: the requests that kill workers; `shared_killers`: the same for all threads

#[cfg(test)]
mod disturbance_tests;
mod killers;
mod queue;
mod refusals;
mod shared_killers;
mod shared_queue;
mod shared_refusals;
mod slots;

pub use killers::{RequestKind, SUSPECTS_PER_SECOND};
pub use queue::{Arrival, TooBusy, Verdict};
pub use shared_killers::SharedKillers;
pub use shared_queue::SharedQueue;
pub use shared_refusals::SharedRefusals;
pub use slots::Slots;
