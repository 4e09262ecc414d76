//! The goridge protocol, as howdah speaks it to the PHP workers of RoadRunner applications.
//!
//! A worker gets one request at a time as a frame on its standard input, and writes its response as frames to its
//! standard output. A frame has a header of 12 bytes with a checksum, options (32-bit words), and a payload. Data frames
//! have one option: the length of the context, which is the beginning of the payload. The rest is the body.
//!
//! - [`frame`]: the header of a frame, and the frames that howdah sends
//! - [`handshake`]: the first frames: whether a worker has booted
//! - [`request`]: the context of a request
//! - [`tree`]: forms and uploads with names as in PHP: `a[b][]`
//! - [`answer`]: a worker's frames become a response
//! - [`response`]: the context of a response
//! - `proto`: the encoding of protobuf, in which both contexts may be
//!
//! Nothing here reads or writes a descriptor. A worker is not trusted: each length is checked before memory is taken for
//! it, and bytes that are not a valid frame are a [`Violation`](frame::Violation).

#![forbid(unsafe_code)]

pub mod answer;
pub mod frame;
pub mod handshake;
mod proto;
pub mod request;
pub mod response;
pub mod tree;
