//! An application's port: how a request reaches PHP over the channel, and how the response comes back.

pub mod cgi;
pub mod generation;
pub mod killers;
pub mod port;
mod queue;
pub mod request_body;
pub mod rerun;
pub mod running;
pub mod script;
pub mod slots;
pub mod spool;
pub mod warm_up;
