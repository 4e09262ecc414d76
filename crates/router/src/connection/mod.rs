//! The parts that connections of all versions of HTTP have in common.
//!
//! - `clock`: a connection as its thread sees it: its time is checked, and it can be drained
//! - `limits`: limits that are not configured; `refusal`: why a request is refused before it is routed
//! - `framing`: the end of a response, in protocols that are not HTTP/1
//! - `interim_limit`: how much may precede a response; `rejection`: log lines about bytes that are not a request

pub mod clock;
pub mod framing;
pub mod interim_limit;
pub mod limits;
pub mod refusal;
pub mod rejection;
