//! The kernel's services: processes, sockets, files, accounts, control groups. No decisions.

pub mod cgroup;
pub mod identity;
pub mod link;
pub mod listen;
pub mod logs;
pub mod machine;
pub mod memory_file;
pub mod pid_file;
pub mod process;
pub mod reap;
pub mod resources;
pub mod signals;
pub mod slow_log;
pub mod spawn;
pub mod sweep;
pub mod system_error;
