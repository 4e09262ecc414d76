//! Requests that HTTP servers answer: the action `proxy`, and `upstreams`.
//!
//! - `settings`: how requests are forwarded; `tls`: over TLS
//! - `upstream`: groups of servers; `failures`: when a server of a group counts as down; `health_check`: requests that
//!   check the servers of a group

pub(crate) mod failures;
pub(crate) mod health_check;
pub(crate) mod settings;
pub(crate) mod tls;
pub(crate) mod upstream;
