//! Files: logs, the pid file, and files in memory.

pub mod logs;
pub mod memory_file;
pub mod pid_file;
pub mod runtime_folder;
pub mod slow_log;
