//! Plans PHP applications.
//!
//! - [`application`]: checks the options against this machine, and finds folders, files and the user
//! - [`executables`]: the PHP executables, one for each version
//! - [`opcache`]: settings of opcache; [`slow_log`]: where the slow log is, and which requests it gets

pub mod application;
pub mod executables;
mod opcache;
mod slow_log;
