//! The words of a worker that are not about one request: its account, its sampler's orders, and the turn to exit.
//!
//! - [`account`]: what the worker reports of its requests
//! - [`sampling`]: what the supervisor orders from the worker's sampler
//! - [`recycle`]: the turn to exit for a replacement, which one worker has at a time

pub mod account;
pub(crate) mod recycle;
pub mod sampling;
