//! A request as routes, logs and applications see it.
//!
//! - `subject`: the request on its way through the router
//! - `authority`, `path`: its host and its path, validated; `rewrite`: another path; `target`: that path, encoded again
//! - `unsafe_fields`: headers that are dropped
//! - `record`: its ids, its spans, its numbers, its log lines
//! - `clock`: its times, and its connection, in all versions of HTTP
//! - `forwarded`: the client behind a trusted proxy; `incoming`: its body; `local_time`: `$time_local`; `protocol`: its version

pub mod authority;
pub mod clock;
pub mod forwarded;
pub mod incoming;
pub mod local_time;
pub mod path;
pub mod protocol;
pub mod record;
pub mod rewrite;
pub mod subject;
pub mod target;
pub mod unsafe_fields;
