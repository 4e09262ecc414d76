//! A worker's end of a channel: claims requests, reads their bodies, writes their responses.
//!
//! - `end`: claims requests, one at a time, and sleeps between them
//! - `places`: the same for a worker that runs several requests at a time
//! - `claim`: a request that this worker runs
//! - `own`: the channel, and this worker's name in it
//!
//! It sleeps on its own doorbell while there is nothing to do, and on the slot's doorbell while the ring is full (or a body
//! has not arrived). It validates what it reads, because another worker may have written it: after a
//! [`Violation`](crate::Violation) this process should exit.

mod claim;
mod end;
mod own;
mod places;

pub use claim::{BodyError, Claim, ClientGone};
pub use end::{Next, WorkerEnd};
pub use own::WorkerChannel;

use std::time::Duration;

/// The longest sleep of a worker before it checks again.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
