//! The data that survives a restart: the configuration and the certificates, on disk.

pub mod certificates;
pub mod state_directory;
