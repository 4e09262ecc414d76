//! How long the router may take to answer one request of the supervisor.
//!
//! End-to-end tests shorten the timeouts only down to what a router needs on a machine that is busy with other tests.

use howdah_protocol::test_time::divided;
use std::time::Duration;

/// A router must apply a new configuration within this time, or it is killed and another one is started.
pub fn configure() -> Duration {
    divided(Duration::from_secs(10)).max(Duration::from_secs(4))
}

/// A change fails if no router, one after the other, applies its configuration within this time.
pub fn switch() -> Duration {
    divided(Duration::from_secs(25)).max(Duration::from_secs(10))
}

/// A request for the status fails if the router does not report its load within this time.
pub const STATUS: Duration = Duration::from_secs(2);
