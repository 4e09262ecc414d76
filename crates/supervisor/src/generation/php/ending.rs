//! The end of a generation: its processes are asked to exit, and killed if they take too long. One that waits for a file system may
//! still be there after that.

use std::time::{Duration, Instant};

/// How far the end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// It has not begun.
    #[default]
    None,
    /// The processes were asked to exit, and are killed then.
    Asked(Instant),
    /// They were killed.
    Killed,
}

/// How long scripts may go on after the router has released their generation: no client waits for them then.
pub const SCRIPT_GRACE: Duration = Duration::from_secs(60);

// === impl Ending ===

impl Ending {
    /// The processes are asked to exit, possibly once more.
    pub fn on_asked(&mut self, now: Instant) {
        if *self == Ending::None {
            *self = Ending::Asked(now + SCRIPT_GRACE);
        }
    }

    /// When they are killed.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Ending::Asked(at) => Some(*at),
            Ending::None | Ending::Killed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_killed_once() {
        let now = Instant::now();
        let mut ending = Ending::default();
        assert_eq!(ending.deadline(), None);
        ending.on_asked(now);
        ending.on_asked(now + SCRIPT_GRACE / 2);
        assert_eq!(ending.deadline(), Some(now + SCRIPT_GRACE), "since the first time");
        ending = Ending::Killed;
        ending.on_asked(now + SCRIPT_GRACE);
        assert_eq!(ending.deadline(), None);
    }
}
