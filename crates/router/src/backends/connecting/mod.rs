//! Connections to servers that are not howdah's own processes.
//!
//! - `connect`: a socket to an endpoint; `known_addresses`: the addresses of its name

mod connect;
mod known_addresses;

pub use connect::{NotConnected, PathOwner, connect};
pub use known_addresses::KnownAddresses;
