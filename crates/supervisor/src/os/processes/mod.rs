//! Processes: starting, identifying, reaping and killing them; messages to children; signals to ourselves.

pub mod launch;
pub mod link;
pub mod process;
pub mod reap;
pub mod signals;
pub mod spawn;
pub mod sweep;
