//! Which requests of an application may wait for a worker, how long, and which are rejected.
//!
//! - `gate`: a request passes it before it waits, or is rejected
//! - `queue`: how long requests wait, and which are rejected; `shared_queue`: the same for all threads
//! - `line`: the requests that wait in the line of a generation, and those that had their turn
//! - `refusals`: when they are rejected; `shared_refusals`: the same for all threads

#[cfg(test)]
mod disturbance_tests;
mod gate;
mod line;
mod queue;
mod refusals;
mod shared_queue;
mod shared_refusals;

pub use gate::{Gate, REJECTION_PAUSE};
pub use line::{Admission, Admitted, Line, RunningRequest, Ticket, Waiting, WaitingRequest};
pub use queue::Arrival;
