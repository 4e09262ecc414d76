//! Connections to other servers.
//!
//! - `pool`: idle ones, and which servers are down
//! - `connect`: new ones; `socket`: their bytes, with the time of the last progress

pub mod connect;
pub mod pool;
pub mod socket;
