//! The shared-memory channel between howdah's router and the PHP workers of one application generation, both ends.
//!
//! A channel is one sealed memfd. Requests travel in *slots*: the router writes one, pushes a hint on the submission
//! queue, and a worker claims it, runs it and streams the response through the slot's ring.
//!
//! - [`state`]: the slot's word, and the table of who may make which transition
//! - `submission`, `idle`, `mailbox`: the three lock-free structures, each explored by loom
//! - [`RouterEnd`], [`WorkerChannel`], [`ControlEnd`]: the ends of the router, the workers and the supervisor
//! - [`Exchange`]: one request, as the router sees it
//! - [`account`]: what each worker says of what it does
//! - `recycle`: whose turn it is to end for a new worker
//! - [`sampling`]: what the supervisor asks of the thread that looks at a worker's stack
//! - `rounds`, `roster`: by what the router tells a broken rule from news that are late
//! - [`request`], [`response`]: what a slot carries, in bytes
//!
//! The router trusts nothing that a worker can write; a worker may be killed at any instruction. Neither may cost
//! another request its answer.

#[cfg(not(loom))]
pub mod account;
#[cfg(not(loom))]
mod control_end;
#[cfg(not(loom))]
mod exchange;
#[cfg(not(loom))]
mod futex;
mod idle;
#[cfg(not(loom))]
mod layout;
mod mailbox;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod offsets;
#[cfg(not(loom))]
mod recycle;
#[cfg(not(loom))]
pub mod request;
#[cfg(not(loom))]
pub mod response;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod roster;
#[cfg(not(loom))]
mod rounds;
#[cfg(not(loom))]
mod router_end;
#[cfg(not(loom))]
pub mod sampling;
pub mod state;
mod submission;
mod sync;
#[cfg(not(loom))]
mod view;
#[cfg(not(loom))]
mod worker_end;

#[cfg(not(loom))]
pub use account::{Account, Ledger};
#[cfg(not(loom))]
pub use control_end::ControlEnd;
#[cfg(not(loom))]
pub use exchange::{Exchange, Progress};
#[cfg(not(loom))]
pub use layout::{
    BODY_RING_BYTES, Geometry, MAX_SLOTS, MAX_THREADS, MAX_WORKERS, REQUEST_HEAD_BYTES, RESPONSE_RING_BYTES,
};
#[cfg(not(loom))]
pub use router_end::{Refused, RouterEnd};
pub use state::{SlotState, Violation, WorkerId};
#[cfg(not(loom))]
pub use worker_end::{BodyError, Claim, ClientGone, Next, WorkerChannel, WorkerEnd};

#[cfg(all(test, loom))]
mod loom_tests;
