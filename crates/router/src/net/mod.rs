//! Listening sockets, TLS, and the bytes of a connection.

pub mod accept;
pub mod linger;
pub mod load;
pub mod room;
pub mod socket;
pub mod tls;
