//! Files: logs, the pid file, and files in memory; paths at which other users may have a link, and file systems that hang.

pub mod hanging;
pub mod locked_folder;
pub mod logs;
pub mod memory_file;
pub mod output_writer;
pub mod pid_file;
pub mod runtime_folder;
pub mod slow_log;
pub mod socket_folder;
pub mod upload_folder;
