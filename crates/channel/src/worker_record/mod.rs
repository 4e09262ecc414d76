//! The words of a worker that are not about one request: its account, its sampler's orders, and the turn to exit.
//!
//! - [`account`]: what the worker reports of its requests
//! - [`sampling`]: what the supervisor orders from the worker's sampler
//! - [`opcache`]: the numbers of opcache, which one of the workers enters
//! - [`recycle`]: the turn to exit for a replacement, which one worker has at a time

pub mod account;
pub mod opcache;
pub(crate) mod recycle;
pub mod sampling;
