//! HTTP/2: h2 on a client's connection, whose streams are requests like those of HTTP/1.
//!
//! - `connection`: serves a connection to its end; `clock`: its time-outs; `watched`: the socket that notifies it
//! - `frames`: the frames that a client may send without a use, and for how long a head may be incomplete; `sent_frames`:
//!   the frames that howdah writes
//! - `stream`: one request, from its head to the end of its response; `stream_clock`: the request's view of it
//! - `send_room`: how much memory the responses of a client take, and which one goes first
//! - `request_body`: a body under flow control; `tunnel`: a WebSocket in a stream

pub mod clock;
pub mod connection;
mod frames;
pub mod request_body;
mod send_room;
mod sent_frames;
mod stream;
pub mod stream_clock;
mod tunnel;
mod watched;
