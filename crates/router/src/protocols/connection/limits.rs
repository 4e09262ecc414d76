//! The limits of a connection that are not configured, in all versions of HTTP.

use std::time::Duration;

/// hyper's buffer: the most bytes of a request's head, and of what is read ahead.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// A longer head is refused. hyper's buffer takes one more byte, so that hyper itself never refuses a shorter one.
pub const MAX_HEAD_BYTES: usize = BUFFER_BYTES - 1;
/// The most headers of a request.
pub const MAX_HEADERS: usize = 256;
/// How long neither side of a tunnel may send anything.
pub const TUNNEL_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// How long a tunnel may go on when its listener was removed, or the router drains; how long neither side may send anything
/// when one of them has ended.
pub const TUNNEL_GRACE: Duration = Duration::from_secs(10);
