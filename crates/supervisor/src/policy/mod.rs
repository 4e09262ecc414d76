//! Decisions over numbers and times. Pure, and tested with tables.

pub mod demand;
pub mod order_places;
pub mod pace;
pub mod pool;
pub mod renewal;
pub mod sizing;
pub mod workers;
