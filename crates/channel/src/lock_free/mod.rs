//! The three lock-free structures, each explored by loom. They work on slices of atomics and know nothing of the mapping.
//!
//! - [`submission`]: the queue of requests that wait for a worker
//! - [`idle`]: the set of workers that sleep
//! - [`mailbox`]: the slots that want a router thread's attention

pub(crate) mod idle;
pub(crate) mod mailbox;
pub(crate) mod submission;
