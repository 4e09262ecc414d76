//! The clock of this machine: it may jump, and it may be wrong. Both are logged.

use crate::policy::renewal::{self, Validity};
use std::time::{Instant, SystemTime};

/// The clock of this machine, as it was looked at.
#[derive(Debug)]
pub struct MachineClock {
    /// The clocks at the last look: the monotonic one, and that of the wall.
    last_look: (Instant, i64),
    /// Whether the log has that the clock is wrong.
    has_warned: bool,
}

// === impl MachineClock ===

impl MachineClock {
    /// As it is now.
    pub fn new() -> MachineClock {
        MachineClock { last_look: (Instant::now(), seconds_since_1970()), has_warned: false }
    }

    /// Looks whether it has jumped since the last look. A jump is logged if there are certificates that depend on it.
    pub fn look(&mut self, has_domains: bool, now: Instant) {
        let wall = seconds_since_1970();
        let (at, before) = std::mem::replace(&mut self.last_look, (now, wall));
        if let Some(jump) = renewal::jump(before, wall, now.saturating_duration_since(at))
            && has_domains
        {
            let (distance, direction) = (time_span(jump), if jump > 0 { "ahead" } else { "back" });
            tracing::info!("the clock of this machine has jumped {direction} by {distance}");
            self.has_warned = false;
        }
    }

    /// Compares it with that of the authority which has issued a certificate now.
    pub fn compare(&mut self, directory: &str, validity: Validity) {
        let difference = renewal::clock_difference(validity, seconds_since_1970());
        if let Some(ahead) = difference
            && !std::mem::replace(&mut self.has_warned, true)
        {
            tracing::error!(
                "the clock of this machine is {} {} that of {directory}; set it, because one of them is wrong",
                time_span(ahead),
                if ahead > 0 { "ahead of" } else { "behind" }
            );
        }
    }
}

/// Seconds since 1970, of the clock of the wall.
pub fn seconds_since_1970() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
}

/// A number of seconds, without its sign, in a unit that fits.
fn time_span(seconds: i64) -> String {
    const HOUR: u64 = 60 * 60;
    match seconds.unsigned_abs().saturating_add(HOUR / 2) / HOUR {
        hours @ 0..48 => format!("{hours} hours"),
        hours => format!("{} days", (hours + 12) / 24),
    }
}
