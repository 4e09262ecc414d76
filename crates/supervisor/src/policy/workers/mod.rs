//! The table of an application's workers: which indices of the channel are taken, by which worker, and what is due.
//! Pure.
//!
//! An index is reused only when its worker is known to be dead. The incarnation distinguishes two workers that had the
//! same index one after the other.
//!
//! When a worker starts again depends on its death. After a worker that exited in good order, the next one starts at
//! once. Workers that died in a request are replaced at a limited rate. A worker that died before it served anything
//! starts again with a growing delay. While the machine has no memory or no process for one more worker, one fork at a
//! time is tried, also with a growing delay: an application with hundreds of workers must not fork in a loop then.

use crate::os::processes::process::Process;
use crate::policy::pace::backoff::Delays;
use crate::policy::pace::{Backoff, RateLimit};
use howdah_channel::{MAX_WORKERS, WorkerId};
use rustix::process::Pid;
use std::time::{Duration, Instant};

/// How long a worker may finish its request after its prototype has died.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);

/// The delays between forks that fail.
const FORK_RETRY: Delays = Delays { free: 0, first: Duration::from_millis(100), longest: Duration::from_secs(1) };

/// Workers that died in a request are replaced at this interval, once the burst is spent.
const REPLACEMENT_INTERVAL: Duration = Duration::from_millis(20);
/// The least burst. It is larger for an application with more workers, so that all of them may die together once.
const REPLACEMENT_BURST: u32 = 10;
/// The same for workers that exit in good order. No prototype forks as many, but one may report them.
const ORDERLY_INTERVAL: Duration = Duration::from_millis(1);
const ORDERLY_BURST: u32 = 100;

/// The workers of one application.
#[derive(Debug)]
pub struct Workers {
    /// How many should run.
    target: usize,
    /// How many may live at once, retired ones included.
    max: usize,
    entries: Vec<Entry>,
    /// Limits how fast workers that died in a request are replaced.
    replacement: RateLimit,
    /// When workers that exited in good order are replaced.
    orderly_exits: RateLimit,
    /// Set while forks fail.
    scarcity: Option<Scarcity>,
}

/// The machine has no process, or no memory, for one more worker. One fork at a time is tried.
#[derive(Debug, Default)]
struct Scarcity {
    backoff: Backoff,
    /// When to try the next fork; `None` while one is being tried.
    retry_at: Option<Instant>,
}

/// One index.
#[derive(Debug, Default)]
struct Entry {
    /// The incarnation of the next worker with this index.
    incarnation: u16,
    backoff: Backoff,
    state: EntryState,
}

#[derive(Clone, Copy, Debug, Default)]
enum EntryState {
    #[default]
    Vacant,
    /// A worker is to be started at this time.
    Due(Instant),
    /// The prototype was ordered to fork it. Its process is known once the prototype has answered.
    Running { worker: WorkerId, process: Option<Process>, is_forked: bool, since: Instant },
    /// It finishes its request, then exits. If its prototype is dead, it is killed after `until`.
    Leaving { worker: WorkerId, process: Option<Process>, until: Option<Instant> },
}

// === impl Workers ===

impl Workers {
    /// A table without workers, of which `target` should run.
    pub fn new(target: u32) -> Workers {
        let max = usize::from(MAX_WORKERS);
        let target = max.min(target as usize);
        Workers {
            target,
            max,
            entries: Vec::new(),
            replacement: RateLimit::new(REPLACEMENT_INTERVAL),
            orderly_exits: RateLimit::new(ORDERLY_INTERVAL),
            scarcity: None,
        }
    }

    /// The same table, of which at most `max` workers live at once.
    pub fn at_most(self, max: usize) -> Workers {
        Workers { max, ..self }
    }

    /// How many should run.
    pub fn target(&self) -> usize {
        self.target
    }

    /// Changes how many should run. Running workers beyond the target are not stopped: see [`Self::retire`].
    pub fn set_target(&mut self, target: usize) {
        self.target = target.min(usize::from(MAX_WORKERS));
        let surplus = self.ordered().saturating_sub(self.target);
        let due = self.entries.iter_mut().rev().filter(|entry| matches!(entry.state, EntryState::Due(_)));
        due.take(surplus).for_each(|entry| entry.state = EntryState::Vacant);
    }

    /// The running workers whose processes are known.
    pub fn running(&self) -> impl Iterator<Item = WorkerId> {
        self.entries.iter().filter_map(|entry| match entry.state {
            EntryState::Running { worker, process: Some(_), .. } => Some(worker),
            _ => None,
        })
    }

    /// The workers that are not started yet, or were ordered after this moment.
    pub fn started_since(&self, moment: Instant) -> impl Iterator<Item = WorkerId> {
        (0..MAX_WORKERS).zip(&self.entries).filter_map(move |(index, entry)| match entry.state {
            EntryState::Due(_) if self.scarcity.is_none() => Some(WorkerId { index, incarnation: entry.incarnation }),
            EntryState::Running { worker, is_forked, since, .. } if !is_forked || since > moment => Some(worker),
            _ => None,
        })
    }

    /// How many workers run or are being started, without those that leave. Workers that cannot be forked do not count.
    pub fn staying(&self) -> usize {
        match self.scarcity {
            Some(_) => self.entries.iter().filter(|entry| matches!(entry.state, EntryState::Running { .. })).count(),
            None => self.ordered(),
        }
    }

    fn ordered(&self) -> usize {
        let is_ordered = |entry: &&Entry| matches!(entry.state, EntryState::Due(_) | EntryState::Running { .. });
        self.entries.iter().filter(is_ordered).count()
    }

    /// When the oldest fork order was sent that the prototype has not answered yet.
    pub fn oldest_fork_order(&self) -> Option<Instant> {
        let unanswered = |entry: &Entry| match entry.state {
            EntryState::Running { is_forked: false, since, .. } => Some(since),
            _ => None,
        };
        self.entries.iter().filter_map(unanswered).min()
    }

    /// How many workers were retired, and still live.
    pub fn leaving(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.state, EntryState::Leaving { .. })).count()
    }

    /// The worker was asked to exit when it is idle. It is not replaced.
    pub fn retire(&mut self, retired: WorkerId) {
        for entry in &mut self.entries {
            if let EntryState::Running { worker, process, .. } = entry.state
                && worker == retired
            {
                entry.state = EntryState::Leaving { worker, process, until: None };
                self.target = self.target.saturating_sub(1);
            }
        }
    }

    /// How many workers run, and how many are being started.
    pub fn counts(&self) -> (usize, usize) {
        let running = |entry: &&Entry| {
            matches!(
                entry.state,
                EntryState::Running { process: Some(_), .. } | EntryState::Leaving { process: Some(_), .. }
            )
        };
        let starting =
            |entry: &&Entry| matches!(entry.state, EntryState::Running { process: None, .. } | EntryState::Due(_));
        (self.entries.iter().filter(running).count(), self.entries.iter().filter(starting).count())
    }

    /// Whether all workers that should run have been ordered. Workers that cannot be forked do not count.
    pub fn is_complete(&self) -> bool {
        let is_due = |entry: &Entry| matches!(entry.state, EntryState::Due(_));
        self.scarcity.is_some() || (self.ordered() >= self.target && !self.entries.iter().any(is_due))
    }

    /// The workers to start now, at most this number. From now on they count as running.
    pub fn start_due(&mut self, most: usize, now: Instant) -> Vec<WorkerId> {
        self.fill_vacancies(now);
        // If the prototype died during a trial, no answer to that trial will come.
        let is_lost = |scarcity: &mut Scarcity| scarcity.retry_at.is_none();
        if self.oldest_fork_order().is_none() {
            self.scarcity.take_if(is_lost);
        }
        let at_once = match &self.scarcity {
            None => most,
            Some(scarcity) => most.min(usize::from(scarcity.retry_at.is_some_and(|retry_at| retry_at <= now))),
        };
        let mut started = Vec::new();
        for (index, entry) in (0..MAX_WORKERS).zip(&mut self.entries) {
            if started.len() < at_once && matches!(entry.state, EntryState::Due(at) if at <= now) {
                let worker = WorkerId { index, incarnation: entry.incarnation };
                entry.incarnation = entry.incarnation.wrapping_add(1);
                entry.state = EntryState::Running { worker, process: None, is_forked: false, since: now };
                started.push(worker);
            }
        }
        if let Some(scarcity) = self.scarcity.as_mut().filter(|_| !started.is_empty()) {
            scarcity.retry_at = None;
        }
        started
    }

    /// Makes as many workers due as are missing.
    fn fill_vacancies(&mut self, now: Instant) {
        // Orphans only finish their requests. If they counted, no request would be answered until they are gone.
        let counts =
            |entry: &&Entry| !entry.is_vacant() && !matches!(entry.state, EntryState::Leaving { until: Some(_), .. });
        let room = self.max.saturating_sub(self.entries.iter().filter(counts).count());
        let mut missing = self.target.saturating_sub(self.ordered()).min(room);
        for index in 0..usize::from(MAX_WORKERS) {
            if missing == 0 {
                break;
            }
            if index == self.entries.len() {
                self.entries.push(Entry::default());
            }
            if self.entries[index].is_vacant() {
                self.entries[index].state = EntryState::Due(now);
                missing -= 1;
            }
        }
    }

    /// The prototype has forked the worker, as this process, if that still lives. `false` if this fork was not ordered.
    pub fn started(&mut self, started: WorkerId, forked: Option<Process>) -> bool {
        self.entries.iter_mut().any(|entry| match &mut entry.state {
            EntryState::Running { worker, process: process @ None, is_forked, .. } if *worker == started => {
                *process = forked;
                *is_forked = true;
                self.scarcity = None;
                true
            }
            _ => false,
        })
    }

    /// The worker could not be forked. Until one can be, one is tried at a time. `false` if this fork was not ordered.
    pub fn not_forked(&mut self, failed: WorkerId, now: Instant) -> bool {
        let is_ordered = |entry: &&mut Entry| match entry.state {
            EntryState::Running { worker, is_forked, .. } => worker == failed && !is_forked,
            _ => false,
        };
        let Some(entry) = self.entries.iter_mut().find(is_ordered) else { return false };
        entry.state = EntryState::Due(now);
        let scarcity = self.scarcity.get_or_insert_default();
        // Of forks that were ordered together, only the first failure counts.
        if scarcity.retry_at.is_none() {
            scarcity.retry_at = Some(now + scarcity.backoff.after_failure(&FORK_RETRY));
        }
        true
    }

    /// The worker is dead, and has never served a request. `false` if it was not known to live.
    pub fn died(&mut self, dead: WorkerId, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(usize::from(dead.index)) else {
            return false;
        };
        match entry.state {
            EntryState::Running { worker, since, .. } if worker == dead => {
                entry.state = EntryState::Due(now + entry.backoff.after_death(now - since, false));
                true
            }
            EntryState::Leaving { worker, .. } if worker == dead => {
                entry.state = EntryState::Vacant;
                true
            }
            _ => false,
        }
    }

    /// The worker died in a request, or after it had served one. `false` if it was not known to live.
    pub fn died_in_request(&mut self, dead: WorkerId, now: Instant) -> bool {
        self.ended(dead, |workers| &mut workers.replacement, REPLACEMENT_BURST, now)
    }

    /// The worker exited in good order, for example after its last allowed request. `false` if it was not known to
    /// live.
    pub fn exited(&mut self, exited: WorkerId, now: Instant) -> bool {
        self.ended(exited, |workers| &mut workers.orderly_exits, ORDERLY_BURST, now)
    }

    /// The worker had worked: the next one starts without the delay of one that fails, but not faster than this limit allows.
    fn ended(
        &mut self,
        ended: WorkerId,
        limit: impl FnOnce(&mut Workers) -> &mut RateLimit,
        burst: u32,
        now: Instant,
    ) -> bool {
        let is_known = self.died(ended, now);
        let index = usize::from(ended.index);
        if is_known && matches!(self.entries[index].state, EntryState::Due(_)) {
            let burst = burst.max(u32::try_from(self.target).unwrap_or(u32::MAX));
            let at = limit(self).spend(burst, now);
            let entry = &mut self.entries[index];
            (entry.state, entry.backoff) = (EntryState::Due(at), Backoff::default());
        }
        is_known
    }

    /// The prototype of all running workers is dead: they finish their requests and exit. Returns them, with their
    /// processes where these are known.
    pub fn orphan_all(&mut self, now: Instant) -> Vec<(WorkerId, Option<Process>)> {
        let mut orphans = Vec::new();
        self.scarcity = None;
        for entry in &mut self.entries {
            match entry.state {
                EntryState::Due(_) => entry.state = EntryState::Vacant,
                EntryState::Running { worker, process, .. } => {
                    entry.state = EntryState::Leaving { worker, process, until: Some(now + ORPHAN_TIMEOUT) };
                    orphans.push((worker, process));
                }
                EntryState::Vacant | EntryState::Leaving { .. } => {}
            }
        }
        orphans
    }

    /// The orphans that should have exited by now. Each is returned once in [`ORPHAN_TIMEOUT`].
    pub fn expired_orphans(&mut self, now: Instant) -> Vec<(WorkerId, Option<Process>)> {
        let mut expired = Vec::new();
        for entry in &mut self.entries {
            if let EntryState::Leaving { worker, process, until } = &mut entry.state
                && until.is_some_and(|until| until <= now)
            {
                *until = Some(now + ORPHAN_TIMEOUT);
                expired.push((*worker, *process));
            }
        }
        expired
    }

    /// The orphans whose process is not known: their prototype died before it could report it.
    pub fn unidentified_orphans(&self) -> Vec<WorkerId> {
        let unidentified = |entry: &Entry| match entry.state {
            EntryState::Leaving { worker, process: None, .. } => Some(worker),
            _ => None,
        };
        self.entries.iter().filter_map(unidentified).collect()
    }

    /// Whether the worker was asked to exit.
    pub fn is_leaving(&self, wanted: WorkerId) -> bool {
        let entry = self.entries.get(usize::from(wanted.index));
        entry.is_some_and(|entry| matches!(entry.state, EntryState::Leaving { worker, .. } if worker == wanted))
    }

    /// The worker with this process id.
    pub fn with_pid(&self, wanted: Pid) -> Option<WorkerId> {
        self.alive().find(|(_, process)| process.is_some_and(|it| it.pid == wanted)).map(|(worker, _)| worker)
    }

    /// All workers that run or leave.
    pub fn alive(&self) -> impl Iterator<Item = (WorkerId, Option<Process>)> {
        self.entries.iter().filter_map(|entry| match entry.state {
            EntryState::Running { worker, process, .. } | EntryState::Leaving { worker, process, .. } => {
                Some((worker, process))
            }
            EntryState::Vacant | EntryState::Due(_) => None,
        })
    }

    /// When [`Self::start_due`] or [`Self::expired_orphans`] will return something.
    pub fn next_deadline(&self) -> Option<Instant> {
        // Not before this time: `None` while a trial is under way.
        let not_before = match &self.scarcity {
            None => Some(None),
            Some(scarcity) => scarcity.retry_at.map(Some),
        };
        let due = |entry: &Entry| match (entry.state, not_before) {
            (EntryState::Due(at), Some(not_before)) => Some(not_before.map_or(at, |retry_at| retry_at.max(at))),
            _ => None,
        };
        self.entries.iter().filter_map(due).chain(self.next_orphan_deadline()).min()
    }

    /// When [`Self::expired_orphans`] will return something.
    pub fn next_orphan_deadline(&self) -> Option<Instant> {
        let deadline = |entry: &Entry| match entry.state {
            EntryState::Leaving { until, .. } => until,
            _ => None,
        };
        self.entries.iter().filter_map(deadline).min()
    }
}

// === impl Entry ===

impl Entry {
    fn is_vacant(&self) -> bool {
        matches!(self.state, EntryState::Vacant)
    }
}

#[cfg(test)]
mod tests;
