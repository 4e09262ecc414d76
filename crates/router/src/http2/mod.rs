//! HTTP/2: h2 on a client's connection, whose streams are requests like those of HTTP/1.
//!
//! - `connection`: serves a connection to its end; `clock`: its time-outs; `watched`: the socket that notifies it
//! - `frames`: the frames that a client may send without a use, and for how long a head may be incomplete
//! - `stream`: one request, from its head to the end of its response; `stream_clock`: the request's view of it
//! - `head_memory`, `send_room`: how much memory the requests and the responses of a client take
//! - `request_head`: strictness, and the form that all versions share; `request_body`: a body under flow control
//! - `response_head`: without the headers of HTTP/1's connections; `tunnel`: a WebSocket in a stream

pub mod clock;
pub mod connection;
mod frames;
mod head_memory;
pub mod request_body;
mod request_head;
mod response_head;
mod send_room;
mod stream;
pub mod stream_clock;
mod tunnel;
mod watched;
