//! The shared-memory channel between howdah's router and the PHP workers of one application generation, all ends.
//!
//! A channel is one sealed memfd. Requests travel in *slots*: the router writes a request into a slot and pushes a hint on
//! the submission queue. A worker claims the slot, runs the request and streams the response through the slot's ring.
//!
//! - [`RouterEnd`] and [`Exchange`] (`router_end/`), [`WorkerChannel`] (`worker_end/`), [`ControlEnd`] (`control_end`): the
//!   ends of the router, the workers and the supervisor
//! - [`SlotState`] (`slot_state`): the slot's word, and the table of its transitions
//! - [`Counters`] (`counters`): numbers that the router adds up, and the supervisor reads
//! - `content/`: the bytes that a slot carries: [`request`], [`response`]
//! - `worker_record/`: each worker's [`account`], its sampler's orders ([`sampling`]), and the turn to be replaced
//! - `lock_free/`: the submission queue, the idle set and the mailbox, each explored by loom
//! - `memory/`: the layout, the mapping, rings, copies and doorbells; `view` puts types on it
//!
//! The router trusts nothing that a worker can write, and a worker may be killed at any instruction. Neither costs another
//! request its answer.

#![deny(unsafe_code)]

// loom explores the lock-free structures alone: it has its own atomics, which can't be mapped.
#[cfg(not(loom))]
mod content;
#[cfg(not(loom))]
mod control_end;
#[cfg(not(loom))]
mod counters;
// Its users are not built under loom, and the explorations need only a part of it.
#[cfg_attr(loom, allow(dead_code))]
mod lock_free;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod router_end;
#[cfg(not(loom))]
mod slot_state;
mod sync;
#[cfg(not(loom))]
mod view;
#[cfg(not(loom))]
mod violation;
#[cfg(not(loom))]
mod worker_end;
#[cfg(not(loom))]
mod worker_record;

#[cfg(not(loom))]
mod interface {
    pub use crate::content::{request, response};
    pub use crate::control_end::ControlEnd;
    pub use crate::counters::Counters;
    pub use crate::lock_free::mailbox::Visits;
    pub use crate::memory::layout::{
        BODY_RING_BYTES, Geometry, MAX_CLAIMS, MAX_SLOTS, MAX_THREADS, MAX_WORKERS, REQUEST_HEAD_BYTES,
        RESPONSE_RING_BYTES, STACK_BYTES,
    };
    #[doc(hidden)]
    pub use crate::memory::offsets;
    pub use crate::router_end::end::{Refused, RouterEnd};
    pub use crate::router_end::exchange::{Exchange, Progress, WorkerTimes};
    pub use crate::slot_state::{SlotState, WorkerId};
    pub use crate::violation::Violation;
    pub use crate::worker_end::{BodyError, Claim, ClientGone, Next, WorkerChannel, WorkerEnd};
    pub use crate::worker_record::account::{Account, Ledger};
    pub use crate::worker_record::{account, opcache, sampling};
}
#[cfg(not(loom))]
pub use interface::*;

#[cfg(all(test, loom))]
mod loom_tests;
