//! Decisions over numbers and times. Pure, and tested with tables.

pub mod backoff;
pub mod demand;
pub mod heartbeat;
pub mod patience;
pub mod pool;
pub mod respawn;
pub mod sizing;
pub mod workers;
