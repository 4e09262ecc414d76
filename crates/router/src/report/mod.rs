//! The reports of the router: to the log, and to the supervisor.
//!
//! - `counting`: the numbers of the thread, and lines for a collector
//! - `once_per_minute`: log lines that could come with each request
//! - `panics`: bugs of howdah are contained
//! - `short_reason`: a reason in a load report
//! - `supervisor_link`: messages to the supervisor
//! - `throttle`: one message in each pause

mod counting;
mod once_per_minute;
mod panics;
mod short_reason;
mod supervisor_link;
mod throttle;

pub use counting::{count, count_by, count_lost_lines, count_with, send_log_line, with_recorder};
pub use once_per_minute::OncePerMinute;
pub use panics::{AbortOnPanic, Panicked, contained, inject, spawn_essential, write_last_lines};
pub use short_reason::short_reason;
pub use supervisor_link::{ReportOnDrop, SupervisorLink};
pub use throttle::Throttle;
