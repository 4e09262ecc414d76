//! Measures the processes of a stack while it is under load.
//!
//! - [`process_tree`]: the processes and what the kernel counts for them
//! - [`role`]: which process of a stack has which job
//! - [`sampler`]: reads them every second
//! - [`kernel_events`]: system calls and instructions, which perf counts

pub mod kernel_events;
pub mod process_tree;
pub mod role;
pub mod sampler;

pub use role::Role;
pub use sampler::{RoleSample, Sample, Sampler};
