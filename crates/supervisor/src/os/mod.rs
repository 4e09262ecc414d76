//! The kernel's services: processes, files, sockets, accounts, control groups. No decisions.

pub mod cgroup;
pub mod files;
pub mod hanging_threads;
pub mod identity;
pub mod listen;
pub mod machine;
pub mod processes;
pub mod resources;
pub mod system_error;
pub mod tcp_peers;
