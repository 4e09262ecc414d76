//! The network below HTTP: listening sockets, accepted connections, TLS, and the end of a connection.
//!
//! - `accept`: accepts from listening sockets; `accept_turn`: on which thread
//! - `connection_limit`: while there are descriptors for more; `shortage`: how long there have been none
//! - `transport`, `socket`: a connection's bytes, plain or in TLS; `collecting_socket`: sends many writes together
//! - `peer`: the names of both ends; `front`: their description by a web server in front
//! - `tls`: certificates, policies, handshakes
//! - `linger`: closes a connection whose client still sends
//! - `load`: how much each thread has to do; `watch`: descriptors in the event loop

pub mod accept;
pub mod accept_turn;
pub mod collecting_socket;
pub mod connection_limit;
pub mod either_stream;
pub mod front;
pub mod linger;
pub mod load;
pub mod peer;
pub mod shortage;
pub mod socket;
pub mod tls;
pub mod transport;
pub mod watch;
