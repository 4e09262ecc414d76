//! The sockets between the processes, what every Unix socket refuses, and which user is at the other end of a TCP connection.
//!
//! - [`application_socket`]: the file of a socket in a folder of another user
//! - [`backlog`]: how many connections may wait for a listening socket
//! - [`control_socket`]: one end of a control socket: JSON messages with descriptors
//! - [`descriptor_reserve`]: descriptors for the messages of a control socket while clients hold all others
//! - [`refused_descriptors`]: sockets whose peers cannot attach descriptors
//! - [`tcp_peer`]: the user at the other end of a connection over the loopback interface

pub mod application_socket;
pub mod backlog;
pub mod control_socket;
pub mod descriptor_reserve;
pub mod refused_descriptors;
pub mod tcp_peer;
