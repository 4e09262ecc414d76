//! Which requests of a generation may run, and when: free slots, the queue, and the requests that kill workers.

mod killers;
mod queue;
mod slots;

pub use killers::{Killers, RequestKind, SUSPECTS_PER_SECOND};
pub use queue::{Arrival, News, Queue, TooBusy};
pub use slots::Slots;
