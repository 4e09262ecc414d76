//! lab.json: a text becomes a plan in which a wrong lab cannot be written down.
//!
//! - [`file`]: the fields of lab.json; [`k6`]: its loads for k6
//! - [`read`]: the whole plan; [`load`], [`application`], [`stack`], [`capacity`], [`bars`]: its parts
//!
//! Fails with the path of the wrong value in the file, and what to write instead.

pub mod application;
pub mod bars;
pub mod capacity;
pub mod file;
pub mod k6;
pub mod load;
pub mod read;
pub mod stack;

pub use application::Application;
pub use bars::BarPlan;
pub use capacity::Capacity;
pub use load::LoadPlan;
pub use read::{Plan, Service};
pub use stack::{Source, StackPlan};
