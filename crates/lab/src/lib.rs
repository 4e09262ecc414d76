//! The lab: what howdah and its peers are raced with.
//!
//! - [`schedule`]: when which request is due
//! - [`load`]: sends them at those moments, whatever the server does
//! - [`tally`]: what came of them

#![forbid(unsafe_code)]

pub mod load;
pub mod schedule;
pub mod tally;
