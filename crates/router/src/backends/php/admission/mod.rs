//! The slots of a generation, and the requests that kill its workers.
//!
//! - `slots`: a request waits for a free slot, in order
//! - `killers`: the requests that kill workers; `shared_killers`: the same for all threads

mod killers;
mod shared_killers;
mod slots;

pub use killers::{RequestKind, SUSPECTS_PER_SECOND};
pub use shared_killers::SharedKillers;
pub use slots::Slots;
