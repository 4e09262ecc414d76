//! The numbers of a worker: those that it reports in its account, and those that decide when it exits for a replacement.
//!
//! - [`allowance`], [`growth`]: `limits/requests` and `limits/memory`
//! - [`cpu_meter`]: the processor time; [`opcache`]: the numbers of opcache

pub mod allowance;
pub mod cpu_meter;
pub mod growth;
pub mod opcache;
