//! The kernel's services: processes, files, sockets, accounts, control groups. No decisions.

pub mod cgroup;
mod files;
pub mod identity;
pub mod listen;
pub mod machine;
mod processes;
pub mod resources;
pub mod system_error;

pub use files::{logs, memory_file, pid_file, slow_log};
pub use processes::{link, process, reap, signals, spawn, sweep};
