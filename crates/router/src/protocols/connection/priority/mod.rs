//! The priority of a response (RFC 9218).
//!
//! - `field`: the field `Priority`, and the priority that it stands for
//! - `updates`: what clients change with PRIORITY_UPDATE

mod field;
mod updates;

pub use field::{Priority, PriorityField};
pub use updates::{PriorityUpdate, PriorityUpdates};
