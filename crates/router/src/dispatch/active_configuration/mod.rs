//! The active configuration, as requests see it.
//!
//! - [`snapshot`]: as all threads share it; [`view`]: as one thread, and each of its requests, has it
//! - [`pins`]: the releases that its shares belong to

pub mod pins;
pub mod snapshot;
pub mod view;
