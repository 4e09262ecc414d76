//! Resources of which clients could take all: the threads count them together.
//!
//! - `counted_memory`: the memory of responses and forms; `slow_work`: the processors for long work

pub mod counted_memory;
pub mod slow_work;
