//! HTTP/1: a connection, its clock, and the strict reading of its requests.

pub mod connection;
pub mod strictness;
pub mod tunnel;
