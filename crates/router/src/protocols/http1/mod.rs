//! HTTP/1: hyper on a client's connection, guarded against ambiguous requests, and with a clock.
//!
//! - `connection`: serves a connection to its end
//! - `clock`: the time-outs of a connection, and its state between requests; `watched`: the socket that notifies it
//! - `strictness`: refuses requests that two programs could read differently; `guarded`: the socket that applies it
//! - `interim`: responses before the response, such as 103 (Early Hints)
//! - `compact`: a request's head in little memory
//! - `tunnel`: a connection after a 101

pub mod clock;
mod compact;
pub mod connection;
mod guarded;
mod interim;
pub mod strictness;
mod tunnel;
mod watched;
