//! The lab: load and measurements for howdah and other servers. It knows no howdah, only HTTP.
//!
//! - [`schedule`]: the time and the page of each request
//! - [`load`]: sends the requests at their times, whatever the server does
//! - [`tally`]: counts the outcomes and their times
//! - [`results`]: what a lab measured, as results.json holds it

#![forbid(unsafe_code)]

pub mod load;
pub mod results;
pub mod schedule;
pub mod tally;
