//! HTTP/3: h3 on quinn's connections, whose streams are requests like those of the other versions.
//!
//! - `listener`: the socket of a listener, and the connections on it; `settings`: of TLS and of QUIC;
//!   `tls_session`: the TLS of a connection
//! - `connection`: serves a connection to its end; `clock`: its time-outs and its account
//! - `transport`: quinn's streams, as h3 reads and writes them; `frames`: what h3 gets of the client's bytes, and
//!   `field_count`: how many headers a head has
//! - `stream`: one request, from its head to the end of its response; `stream_clock`: the request's view of it
//! - `send_order`: which response goes first; `send_grant`: how much of responses waits for the client
//! - `request_body`: a body under flow control

pub mod clock;
pub mod connection;
mod field_count;
mod frames;
pub mod listener;
pub mod request_body;
mod send_grant;
mod send_order;
mod settings;
mod stream;
pub mod stream_clock;
pub mod tls_session;
mod transport;
