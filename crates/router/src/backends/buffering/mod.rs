//! Bytes that are held so that slow clients do not hold workers.
//!
//! - `request_body`: a request's body, read whole before a worker is taken
//! - `spool`: a response, taken as fast as the worker writes it

pub mod request_body;
pub mod spool;
