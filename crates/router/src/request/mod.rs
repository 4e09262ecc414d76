//! A request as routes, logs and applications see it.
//!
//! - `subject`: the request on its way through the router
//! - `authority`, `path`: its host and its path, validated; `target`: a rewritten path, encoded again
//! - `unsafe_fields`: headers that are dropped
//! - `log_context`: the request of a log line; `application_log`: the file of the lines that an application causes
//! - `ids`: its id, and that of its trace; `trace`: its spans
//! - `numbers`: what is counted of it; `clock`: its times, and its connection, in all versions of HTTP
//! - `forwarded`: the client behind a trusted proxy; `incoming`: its body; `local_time`: `$time_local`; `protocol`: its version

pub mod application_log;
pub mod authority;
pub mod clock;
pub mod forwarded;
pub mod ids;
pub mod incoming;
pub mod local_time;
pub mod log_context;
pub mod numbers;
pub mod path;
pub mod protocol;
pub mod subject;
pub mod target;
pub mod trace;
pub mod unsafe_fields;
