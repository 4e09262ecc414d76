//! Sends requests to one server and measures its responses.
//!
//! An **open loop** sends at the times of a schedule, whatever the server does, and measures from the intended send time. A
//! client that waits for a response before its next request slows down with the server and hides the server's worst
//! moments ("coordinated omission": Gil Tene, "How NOT to Measure Latency"; wrk2). A **closed loop** is a number of clients
//! that do wait, as those of ab, wrk and webbench.
//!
//! - [`schedule`]: the notation of open loops; [`duration`]: the notation of times
//! - [`target`]: the requests and the checks of their responses; [`recorded`]: requests from an access log or a HAR
//! - [`response`]: a parser of HTTP/1.1 responses; [`connection`]: one connection
//! - [`worker`]: a thread with an event loop; [`thread_load`]: what it sends
//! - [`single`]: one request, for checks
//! - [`tally`]: counts outcomes and times; [`autostop`]: conditions that end a load before its time
//! - [`generator`]: runs the threads of a load

pub mod autostop;
pub mod connection;
pub mod duration;
pub mod generator;
pub mod recorded;
pub mod response;
pub mod schedule;
pub mod single;
pub mod tally;
pub mod target;
pub mod thread_load;
pub mod worker;

pub use generator::{Load, Outcome, Pace, Progress, Stop, run};
