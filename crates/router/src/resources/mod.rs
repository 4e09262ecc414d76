//! Resources of which clients could take all: the threads count them together.
//!
//! - `counted_memory`: the memory of responses and forms; `disk_space`: the disk of files for slow clients; `slow_work`: the
//!   processors for long work; `processors`: their number

pub mod counted_memory;
pub mod disk_space;
pub mod processors;
pub mod slow_work;
