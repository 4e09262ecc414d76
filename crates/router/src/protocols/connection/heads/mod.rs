//! The heads of requests and responses, in all versions of HTTP.
//!
//! - `request_head`: strictness for heads in frames, and the form that all versions share; `response_head`: without the
//!   headers of HTTP/1's connections
//! - `head_memory`: how much memory the requests of a client take; `large_head`: and large heads of responses in HTTP/1
//! - `refusal`: why a request is refused before it is routed; `interim_limit`: how much may precede a response

pub mod head_memory;
pub mod interim_limit;
pub mod large_head;
pub mod refusal;
pub mod request_head;
pub mod response_head;
