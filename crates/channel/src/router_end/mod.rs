//! The router's end of a channel: submits requests, reads responses, and trusts nothing that a worker can write.
//!
//! - [`end`]: the end itself, shared by the router's threads
//! - [`exchange`]: one request, owned by the router thread that submitted it
//! - `shared`: what the end and its exchanges share: the mapping, and the router's side of the submission queue
//! - `slot_register`: the slots that no exchange owns
//! - `roster`, `rounds`: the workers that live, and what distinguishes a broken rule from late news
//!
//! The end checks what a worker can write against what the router keeps in its own memory: sequence numbers, positions,
//! former states, the workers that live. A broken rule is a [`Violation`](crate::Violation): the request fails, its slot
//! is quarantined until the workers of that moment are dead, and the caller has them killed. Nothing here waits, allocates
//! a size that a worker wrote, or panics on a worker's value.

pub mod end;
pub mod exchange;
mod roster;
mod rounds;
mod shared;
mod slot_register;
