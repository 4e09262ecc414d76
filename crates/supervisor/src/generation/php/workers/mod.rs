//! The workers of a pool.
//!
//! - [`worker_set`]: their table, and the channel that they share with the router
//! - [`worker_exit`]: how one of them ended, and what follows from that
//! - [`boots`]: in worker mode, from the fork of a worker until it is ready
//! - [`worker_report`]: what each of them does, for the status

pub mod boots;
pub mod worker_exit;
pub mod worker_report;
pub mod worker_set;
