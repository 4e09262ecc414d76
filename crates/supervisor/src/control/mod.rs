//! One change at a time: plan, boot, warm up, switch; deploys, the hand-over to the router, the shutdown.

pub mod change;
pub mod reload;
pub mod router;
pub mod shutdown;
pub mod silence;
pub mod stage;
pub mod switch;
pub mod warming;
pub mod watch;
