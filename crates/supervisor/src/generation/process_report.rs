//! A report of what each process of a generation does, for the status.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A process at this moment: a worker of PHP, or an HTTP server.
#[derive(Clone, Debug)]
pub struct ProcessReport {
    /// Its process id, once that is known.
    pub pid: Option<i32>,
    /// Its state.
    pub state: ReportedState,
    /// How many requests it runs.
    pub running: Option<u64>,
    /// The method of its request; of the oldest, if it runs several.
    pub method: Option<String>,
    /// The URL of its request.
    pub url: Option<String>,
    /// The script that runs.
    pub script: Option<String>,
    /// The worker script of its pool, below the root, if its application has several.
    pub worker_script: Option<String>,
    /// How long its request has run.
    pub running_for: Option<Duration>,
    /// Which share of one processor it used since the last report.
    pub cpu_share: Option<f64>,
    /// How much processor time it has used in its life.
    pub cpu_time: Option<Duration>,
    /// How much memory it has for itself, in bytes.
    pub private_bytes: Option<u64>,
    /// How many requests it has answered.
    pub requests: Option<u64>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedState {
    /// It has not reported yet.
    Starting,
    /// It exits when it has nothing more to do.
    Leaving,
    /// It runs a request.
    Busy,
    /// It has answered its request, whose script goes on.
    Finishing,
    /// It waits for a request.
    Idle,
    /// It is an HTTP server, and gets requests.
    Ready,
}

/// How much of a processor each process used when it was last reported.
#[derive(Debug, Default)]
pub struct CpuShares {
    last: BTreeMap<i32, LastShare>,
}

#[derive(Clone, Copy, Debug)]
struct LastShare {
    at: Instant,
    cpu: Duration,
    share: f64,
}

/// A share is not computed again before this time.
const SHORTEST: Duration = Duration::from_millis(200);
// === impl ReportedState ===

impl ReportedState {
    /// Its name in the status.
    pub fn name(self) -> &'static str {
        match self {
            ReportedState::Starting => "starting",
            ReportedState::Leaving => "leaving",
            ReportedState::Busy => "busy",
            ReportedState::Finishing => "finishing",
            ReportedState::Idle => "idle",
            ReportedState::Ready => "ready",
        }
    }
}

// === impl CpuShares ===

impl CpuShares {
    /// The share of one processor since the last report; 0 for a process in its first report.
    pub fn share(&mut self, pid: i32, cpu: Duration, now: Instant) -> f64 {
        let share = match self.last.get(&pid) {
            Some(last) if now - last.at < SHORTEST => return last.share,
            Some(last) => cpu.saturating_sub(last.cpu).as_secs_f64() / (now - last.at).as_secs_f64(),
            None => 0.0,
        };
        let share = (share * 1000.0).round() / 1000.0;
        self.last.insert(pid, LastShare { at: now, cpu, share });
        share
    }

    /// Forgets all processes but these.
    pub fn retain(&mut self, lives: impl Fn(i32) -> bool) {
        self.last.retain(|pid, _| lives(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_since_the_last_report() {
        let (mut shares, start) = (CpuShares::default(), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let cpu = Duration::from_secs_f64;
        assert_eq!(shares.share(1, cpu(5.0), at(0.0)), 0.0);
        assert_eq!(shares.share(1, cpu(5.5), at(1.0)), 0.5);
        assert_eq!(shares.share(1, cpu(9.0), at(1.1)), 0.5, "too soon");
        assert_eq!(shares.share(1, cpu(6.0), at(3.0)), 0.25);
        shares.retain(|_| false);
        assert_eq!(shares.share(1, cpu(6.0), at(4.0)), 0.0);
    }
}
