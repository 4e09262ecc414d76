//! Which requests of a generation may run, and when.
//!
//! - `slots`: a request waits for a free slot, in order
//! - `queue`: how long requests wait, and which are rejected; `shared_queue`: the same for all threads
//! - `killers`: the requests that kill workers; `shared_killers`: the same for all threads

mod killers;
mod queue;
mod shared_killers;
mod shared_queue;
mod slots;

pub use killers::{RequestKind, SUSPECTS_PER_SECOND};
pub use queue::{Arrival, OverloadEvent, TooBusy};
pub use shared_killers::SharedKillers;
pub use shared_queue::SharedQueue;
pub use slots::Slots;
