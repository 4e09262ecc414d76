//! Measures the processes of a stack while it is under load.
//!
//! - [`process_tree`]: the processes and what the kernel counts for them
//! - [`sampler`]: reads them every second

pub mod process_tree;
pub mod sampler;

pub use sampler::{Sample, Sampler};
