//! Async mode: the script runs an event loop, and holds several requests at a time.
//!
//! - [`held_requests`]: the requests that the script holds; takes others, and decides whether more may follow
//! - `held`: one of them
//! - `loop_watch`: a thread beside the loop: makes the loop's descriptor readable, and reports a loop that is blocked
//! - `slow_requests`: the slow log

mod held;
pub mod held_requests;
mod loop_watch;
mod slow_requests;
