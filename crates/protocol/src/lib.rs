//! The messages between the supervisor, the router and the prototypes, and the sockets that carry them.
//!
//! - [`control`]: a control socket: JSON messages with descriptors
//! - [`inherited`]: the descriptors that a child finds at its start
//! - [`lifecycle`]: the messages
//! - [`confinement`]: which parts of the machine an application sees
//! - [`places`], [`warm_up`]: where a generation finds its scripts, and the requests that warm it
//! - [`BUILD_ID`]: whether two executables are of one build

#![deny(unsafe_code)]

mod build_id;
pub mod confinement;
pub mod control;
pub mod inherited;
pub mod lifecycle;
pub mod places;
pub mod warm_up;

pub use build_id::BUILD_ID;
