//! How long the router and the prototypes may leave a question without an answer.

use std::time::Duration;

/// How long a router may take to serve by a configuration.
pub const ROUTER_PATIENCE: Duration = Duration::from_secs(10);
/// How long routers may take, one after the other, to serve by a new one.
pub const SWITCH_PATIENCE: Duration = Duration::from_secs(25);
/// How long a router may take to say how it is.
pub const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// How often it is asked, whoever wants to know.
pub const ASK_PAUSE: Duration = Duration::from_secs(10);
/// So many questions it may leave without an answer: a machine that swaps is slow. They are counted, not timed, as the
/// supervisor itself may have been stopped meanwhile.
pub const UNANSWERED_AT_MOST: u32 = 6;
