//! The sockets between the processes, and what every Unix socket refuses.
//!
//! - [`control_socket`]: one end of a control socket: JSON messages with descriptors
//! - [`refused_descriptors`]: sockets whose peers cannot attach descriptors

pub mod control_socket;
pub mod refused_descriptors;
