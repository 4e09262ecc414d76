//! The processes of a RoadRunner application are workers that get requests over pipes, or over a connection that they make.
//! The supervisor makes the pipes or accepts the connection, and hands them to the router when the worker has booted.
//!
//! - [`relay`]: either of them
//! - `pipes`: the pipes of a worker
//! - `socket`: the socket of a worker; `connecting`: which process may connect to it
//! - [`handshake`]: whether a worker has booted

mod connecting;
pub mod handshake;
mod pipes;
pub mod relay;
mod socket;
