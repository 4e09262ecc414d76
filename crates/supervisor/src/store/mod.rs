//! What outlives the process: the configuration and the certificates, on disk.

pub mod certificates;
pub mod state_directory;
