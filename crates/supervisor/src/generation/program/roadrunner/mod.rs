//! The processes of a RoadRunner application are workers that get requests over pipes. The supervisor makes the pipes,
//! and hands their ends to the router when the worker has booted.

pub mod handshake;
pub mod pipes;
