//! Connections to other servers.
//!
//! - `pool`: idle ones
//! - `connect`: new ones; `socket`: their bytes, with the time of the last progress; `line_ends`: the strictness of a
//!   response's head

pub mod connect;
mod line_ends;
pub mod pool;
pub mod socket;
