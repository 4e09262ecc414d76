//! When to try again, how fast, and how long to wait: the five types that pace everything that may fail. Pure: a caller
//! passes the time in, and waits by itself.
//!
//! - [`Backoff`]: the delay before the next attempt after a failure. Prototypes, workers, the router, forks that
//!   failed for want of memory or processes, and all workers after one broke the channel's rules
//! - [`RateLimit`]: how many events a second are allowed after a burst. The replacement of workers that died in a
//!   request
//! - [`BootTimeout`]: one warning, then the end of a start that takes too long. Prototypes
//! - [`Heartbeat`]: probes at an interval, and how many of them may stay without an answer. The router and prototypes
//! - [`StoppedTime`]: how long signals have stopped a process lately. The router
//!
//! Nothing here fails.

pub mod backoff;
pub mod boot_timeout;
pub mod heartbeat;
pub mod rate_limit;
pub mod router_timeouts;
pub mod stopped_time;

pub use backoff::Backoff;
pub use boot_timeout::{BootStep, BootTimeout};
pub use heartbeat::{Beat, Heartbeat};
pub use rate_limit::RateLimit;
pub use stopped_time::StoppedTime;
