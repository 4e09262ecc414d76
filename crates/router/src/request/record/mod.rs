//! The record of a request: its ids, what is counted and measured of it, and what its log lines have in common.
//!
//! - [`log_context`]: the request of a log line; [`application_log`]: the file of the lines that an application causes
//! - [`ids`]: its id, and that of its trace; [`trace`]: its spans
//! - [`numbers`]: what is counted of it

pub mod application_log;
pub mod ids;
pub mod log_context;
pub mod numbers;
pub mod trace;
