//! An account that bounds what a client may cause that is of no use to it, such as frames without content, or requests that it
//! cancels. Such things take points; requests, bytes of responses, and time add some. A client whose account is empty loses
//! its connection.

use std::time::Instant;

/// The account of a connection.
pub struct Account {
    points: i64,
    /// When time was last credited.
    since: Instant,
}

/// The most points of an account, and those of a new connection.
const MAX_POINTS: i64 = 8000;
const POINTS_PER_SECOND: i64 = 500;

// === impl Account ===

impl Account {
    /// The account of a new connection.
    pub fn new() -> Account {
        Account { points: MAX_POINTS, since: Instant::now() }
    }

    /// Adds points, or takes some.
    pub fn add(&mut self, points: i64) {
        self.points = self.points.saturating_add(points).min(MAX_POINTS);
    }

    /// Whether points are left. Adds those for the time that has passed, and looks at the time, only if there are none: most
    /// accounts are never empty.
    pub fn has_points(&mut self) -> bool {
        if self.points <= 0 {
            let now = Instant::now();
            let passed = now.duration_since(self.since).as_millis();
            self.since = now;
            self.add(i64::try_from(passed).unwrap_or(i64::MAX).saturating_mul(POINTS_PER_SECOND) / 1000);
        }
        self.points > 0
    }
}
