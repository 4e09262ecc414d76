//! The numbers of an application's processes, for `GET /metrics`. The numbers of generations that are gone are kept.

use howdah_channel::account::Account;
use howdah_protocol::messages::process_end::ProcessEnd;
use std::time::Duration;

/// The numbers of a generation, or of all generations of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTally {
    /// How many processes were started.
    pub starts: u64,
    /// How many have ended, by [`Death`].
    pub deaths: [u64; DEATHS.len()],
    /// How often the number of workers was changed, by [`SizingStep`].
    pub steps: [u64; SIZING_STEPS.len()],
    /// The requests that workers have finished.
    pub requests: u64,
    /// The time in which workers ran requests.
    pub busy: Duration,
    /// The processor time that workers used for requests.
    pub cpu: Duration,
    /// How opcache did.
    pub opcache: OpcacheTally,
}

/// The counters of opcache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpcacheTally {
    /// How often a script was in its memory.
    pub hits: u64,
    /// How often a script had to be compiled.
    pub misses: u64,
    /// How often it has restarted.
    pub restarts: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It was asked to, or had reached a limit of the configuration.
    InOrder,
    /// A signal killed it.
    Signal,
    /// It exited by itself.
    ExitCode,
    /// It was ended with a request that took too long.
    Timeout,
    /// It was killed because a worker of its application broke the channel's rules.
    Replaced,
    /// Its end is known, and not its cause: its prototype had died.
    Lost,
}

/// A change of the number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizingStep {
    /// More workers.
    Grown,
    /// Fewer workers.
    Shrunk,
    /// More were wanted than the memory has room for.
    LimitedByMemory,
}

/// The names of the deaths, in their order.
pub const DEATHS: [&str; 6] = ["in_order", "signal", "exit_code", "timeout", "replaced", "lost"];
/// The names of the steps, in their order.
pub const SIZING_STEPS: [&str; 3] = ["grown", "shrunk", "limited_by_memory"];

// === impl ProcessTally ===

impl ProcessTally {
    /// A process has ended.
    pub fn died(&mut self, death: Death) {
        self.deaths[death as usize] += 1;
    }

    /// The number of workers was changed.
    pub fn resized(&mut self, step: SizingStep) {
        self.steps[step as usize] += 1;
    }

    /// Adds the account of a worker. It may have written any number there.
    pub fn add_account(&mut self, account: Account) {
        self.requests = self.requests.wrapping_add(account.requests);
        self.busy = self.busy.saturating_add(account.wall);
        self.cpu = self.cpu.saturating_add(account.cpu);
    }

    /// Adds the numbers of another generation.
    pub fn add(&mut self, other: ProcessTally) {
        let add = |sums: &mut [u64], others: &[u64]| sums.iter_mut().zip(others).for_each(|(sum, more)| *sum += more);
        add(&mut self.deaths, &other.deaths);
        add(&mut self.steps, &other.steps);
        self.starts += other.starts;
        self.requests = self.requests.wrapping_add(other.requests);
        self.busy = self.busy.saturating_add(other.busy);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.opcache.hits = self.opcache.hits.saturating_add(other.opcache.hits);
        self.opcache.misses = self.opcache.misses.saturating_add(other.opcache.misses);
        self.opcache.restarts = self.opcache.restarts.saturating_add(other.opcache.restarts);
    }
}

// === impl Death ===

impl Death {
    /// By an end that was not in order.
    pub fn by(end: ProcessEnd) -> Death {
        match end {
            ProcessEnd::Code(_) => Death::ExitCode,
            ProcessEnd::Signal(_) => Death::Signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_generations_are_added() {
        let mut first = ProcessTally { starts: 2, ..ProcessTally::default() };
        first.died(Death::Lost);
        first.resized(SizingStep::LimitedByMemory);
        let account =
            Account { requests: 7, wall: Duration::from_secs(2), cpu: Duration::from_secs(1), ..Account::default() };
        first.add_account(account);
        let mut all = first;
        all.add(first);
        assert_eq!((all.starts, all.requests, all.busy, all.cpu.as_secs()), (4, 14, Duration::from_secs(4), 2));
        assert_eq!((all.deaths, all.steps), ([0, 0, 0, 0, 0, 2], [0, 0, 2]));
        assert_eq!((DEATHS[Death::Lost as usize], SIZING_STEPS[SizingStep::Shrunk as usize]), ("lost", "shrunk"));
        let hostile = Account { requests: u64::MAX, wall: Duration::MAX, cpu: Duration::MAX, ..Account::default() };
        all.add_account(hostile);
        all.add_account(hostile);
    }
}
