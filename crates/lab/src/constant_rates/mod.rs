//! The engine of `howdah-load`: requests at constant rates, for bench/ and for the end-to-end tests.
//!
//! - [`schedule`]: the time and the page of each request
//! - [`load`]: sends the requests at their times, whatever the server does
//! - [`tally`]: counts the outcomes and their times

pub mod load;
pub mod schedule;
pub mod tally;
