//! A request as routes, logs and applications see it.

pub mod authority;
pub mod forwarded;
pub mod incoming;
pub mod local_time;
pub mod path;
pub mod subject;
pub mod unsafe_fields;
