//! Bytes that are held so that slow clients do not hold workers.
//!
//! - `request_body`: a request's body, read whole before a worker is taken; `body_disk`: the disk of all that are not
//!   complete
//! - `spool`: a response, taken as fast as the worker writes it; `answer`: its way from the task that reads it to the
//!   client; `start`: until it has begun; `spooled_body`: the same as the body of an HTTP response

pub mod answer;
pub mod body_disk;
pub mod request_body;
pub mod spool;
pub mod spooled_body;
pub mod start;
