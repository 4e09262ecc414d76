//! The table of an application's workers: which places of the channel are taken, by whom, and who is due. Pure.
//!
//! A place is given again only when its worker is known to be dead: the router tells two lives of one place apart by
//! their incarnation.

use crate::os::process::Process;
use crate::policy::backoff::Backoff;
use crate::policy::respawn::Budget;
use howdah_channel::{MAX_WORKERS, WorkerId};
use rustix::process::Pid;
use std::time::{Duration, Instant};

/// How long a worker whose prototype died may go on with its request.
const LEAVING_GRACE: Duration = Duration::from_secs(60);

/// After a fork that failed the next one is tried after so long, then after twice as long, up to the last.
const FIRST_TRIAL: Duration = Duration::from_millis(100);
const LAST_TRIAL: Duration = Duration::from_secs(1);

/// The workers of one application.
#[derive(Debug)]
pub struct Workers {
    /// How many shall run.
    wanted: usize,
    /// More than this never live at once, those that leave included.
    most: usize,
    places: Vec<Place>,
    /// For the replacement of those that die at work.
    budget: Budget,
    /// While none can be forked.
    scarcity: Option<Scarcity>,
}

/// The machine has no process, or no memory, for one more worker: one is tried at a time.
#[derive(Debug, Default)]
struct Scarcity {
    /// How long it was waited for the last time.
    waited: Duration,
    /// When to try again; `None` while that is being done.
    again: Option<Instant>,
}

#[derive(Debug, Default)]
struct Place {
    /// The incarnation of the next worker here.
    incarnation: u16,
    backoff: Backoff,
    life: Life,
}

#[derive(Clone, Copy, Debug, Default)]
enum Life {
    #[default]
    Empty,
    /// To be started then.
    Waiting(Instant),
    /// The prototype was told to fork it; its process is known once it has answered.
    Running { worker: WorkerId, process: Option<Process>, is_forked: bool, since: Instant },
    /// It finishes what it does and goes; if its prototype is dead, until then at most.
    Leaving { worker: WorkerId, process: Option<Process>, until: Option<Instant> },
}

// === impl Workers ===

impl Workers {
    /// A table without workers, of which so many shall run.
    pub fn new(wanted: u32) -> Workers {
        let most = usize::from(MAX_WORKERS);
        let wanted = most.min(wanted as usize);
        Workers { wanted, most, places: Vec::new(), budget: Budget::default(), scarcity: None }
    }

    /// The same, of which never more than so many live at once.
    pub fn at_most(self, most: usize) -> Workers {
        Workers { most, ..self }
    }

    /// How many shall run.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// So many shall run from now on. Those beyond it are not sent away: see [`Self::retire`].
    pub fn want(&mut self, wanted: usize) {
        self.wanted = wanted.min(usize::from(MAX_WORKERS));
        let surplus = self.ordered().saturating_sub(self.wanted);
        let waiting = self.places.iter_mut().rev().filter(|place| matches!(place.life, Life::Waiting(_)));
        waiting.take(surplus).for_each(|place| place.life = Life::Empty);
    }

    /// Those that run, with their processes known.
    pub fn running(&self) -> impl Iterator<Item = WorkerId> {
        self.places.iter().filter_map(|place| match place.life {
            Life::Running { worker, process: Some(_), .. } => Some(worker),
            _ => None,
        })
    }

    /// Those that wait for their birth, or were ordered after this moment.
    pub fn started_since(&self, moment: Instant) -> impl Iterator<Item = WorkerId> {
        (0..MAX_WORKERS).zip(&self.places).filter_map(move |(index, place)| match place.life {
            Life::Waiting(_) if self.scarcity.is_none() => Some(WorkerId { index, incarnation: place.incarnation }),
            Life::Running { worker, is_forked, since, .. } if !is_forked || since > moment => Some(worker),
            _ => None,
        })
    }

    /// How many run or are being started, without those that leave. Those that cannot be forked are none.
    pub fn staying(&self) -> usize {
        match self.scarcity {
            Some(_) => self.places.iter().filter(|place| matches!(place.life, Life::Running { .. })).count(),
            None => self.ordered(),
        }
    }

    fn ordered(&self) -> usize {
        self.places.iter().filter(|place| matches!(place.life, Life::Waiting(_) | Life::Running { .. })).count()
    }

    /// When the first of those was ordered that the prototype has not answered yet.
    pub fn first_order(&self) -> Option<Instant> {
        let unanswered = |place: &Place| match place.life {
            Life::Running { is_forked: false, since, .. } => Some(since),
            _ => None,
        };
        self.places.iter().filter_map(unanswered).min()
    }

    /// How many have been told to go, and live still.
    pub fn leaving(&self) -> usize {
        self.places.iter().filter(|place| matches!(place.life, Life::Leaving { .. })).count()
    }

    /// It is asked to go when it has nothing to do, and one less shall run.
    pub fn retire(&mut self, retired: WorkerId) {
        for place in &mut self.places {
            if let Life::Running { worker, process, .. } = place.life
                && worker == retired
            {
                place.life = Life::Leaving { worker, process, until: None };
                self.wanted = self.wanted.saturating_sub(1);
            }
        }
    }

    /// How many run, and how many are being started.
    pub fn counts(&self) -> (usize, usize) {
        let running = |place: &&Place| {
            matches!(place.life, Life::Running { process: Some(_), .. } | Life::Leaving { process: Some(_), .. })
        };
        let starting = |place: &&Place| matches!(place.life, Life::Running { process: None, .. } | Life::Waiting(_));
        (self.places.iter().filter(running).count(), self.places.iter().filter(starting).count())
    }

    /// The workers to start now; from now on they count as running.
    pub fn start_due(&mut self, now: Instant) -> Vec<WorkerId> {
        // Those whose prototype died only finish: without others beside them, nobody would be answered until then.
        let counts = |place: &&Place| !place.is_empty() && !matches!(place.life, Life::Leaving { until: Some(_), .. });
        let room = self.most.saturating_sub(self.places.iter().filter(counts).count());
        let mut missing = self.wanted.saturating_sub(self.ordered()).min(room);
        for index in 0..usize::from(MAX_WORKERS) {
            if missing == 0 {
                break;
            }
            if index == self.places.len() {
                self.places.push(Place::default());
            }
            if matches!(self.places[index].life, Life::Empty) {
                self.places[index].life = Life::Waiting(now);
                missing -= 1;
            }
        }
        // Nobody will answer a trial whose prototype has died.
        let is_lost = |scarcity: &mut Scarcity| scarcity.again.is_none();
        if self.first_order().is_none() {
            self.scarcity.take_if(is_lost);
        }
        let at_once = match &self.scarcity {
            None => usize::MAX,
            Some(scarcity) => usize::from(scarcity.again.is_some_and(|again| again <= now)),
        };
        let mut due = Vec::new();
        for (index, place) in (0..MAX_WORKERS).zip(&mut self.places) {
            if due.len() < at_once && matches!(place.life, Life::Waiting(at) if at <= now) {
                let worker = WorkerId { index, incarnation: place.incarnation };
                place.incarnation = place.incarnation.wrapping_add(1);
                place.life = Life::Running { worker, process: None, is_forked: false, since: now };
                due.push(worker);
            }
        }
        if let Some(scarcity) = self.scarcity.as_mut().filter(|_| !due.is_empty()) {
            scarcity.again = None;
        }
        due
    }

    /// The prototype has forked it, as this process, if that still lives. `false` if nobody waits for that.
    pub fn started(&mut self, started: WorkerId, forked: Option<Process>) -> bool {
        self.places.iter_mut().any(|place| match &mut place.life {
            Life::Running { worker, process: process @ None, is_forked, .. } if *worker == started => {
                *process = forked;
                *is_forked = true;
                self.scarcity = None;
                true
            }
            _ => false,
        })
    }

    /// It could not be forked: until one can be, one is tried at a time. `false` if nobody waits for that.
    pub fn not_forked(&mut self, failed: WorkerId, now: Instant) -> bool {
        let waits = |place: &&mut Place| matches!(place.life, Life::Running { worker, is_forked: false, .. } if worker == failed);
        let Some(place) = self.places.iter_mut().find(waits) else { return false };
        place.life = Life::Waiting(now);
        let scarcity = self.scarcity.get_or_insert_default();
        // Of those that were ordered together, the first one says it.
        if scarcity.again.is_none() {
            scarcity.waited = (2 * scarcity.waited).clamp(FIRST_TRIAL, LAST_TRIAL);
            scarcity.again = Some(now + scarcity.waited);
        }
        true
    }

    /// It is dead, and has never served. `false` if nobody knew that it lived.
    pub fn died(&mut self, dead: WorkerId, now: Instant) -> bool {
        let Some(place) = self.places.get_mut(usize::from(dead.index)) else {
            return false;
        };
        match place.life {
            Life::Running { worker, since, .. } if worker == dead => {
                place.life = Life::Waiting(now + place.backoff.after_death(now - since, false));
                true
            }
            Life::Leaving { worker, .. } if worker == dead => {
                place.life = Life::Empty;
                true
            }
            _ => false,
        }
    }

    /// It died at work. `false` if nobody knew that it lived.
    pub fn fell(&mut self, fallen: WorkerId, now: Instant) -> bool {
        let is_known = self.ended(fallen, now);
        let workers = self.wanted;
        if let Some(Place { life: Life::Waiting(at), .. }) = self.places.get_mut(usize::from(fallen.index))
            && is_known
        {
            *at = self.budget.spend(workers, now);
        }
        is_known
    }

    /// It ended in good order, after the number of requests that it was given. `false` if nobody knew that it lived.
    pub fn ended(&mut self, ended: WorkerId, now: Instant) -> bool {
        let is_known = self.died(ended, now);
        if let Some(place) = self.places.get_mut(usize::from(ended.index))
            && is_known
            && matches!(place.life, Life::Waiting(_))
        {
            // Not its fault: the next one need not wait.
            place.life = Life::Waiting(now);
            place.backoff = Backoff::default();
        }
        is_known
    }

    /// Their prototype is dead: all of them are to go. Their names, and processes where known.
    pub fn leave(&mut self, now: Instant) -> Vec<(WorkerId, Option<Process>)> {
        let mut leaving = Vec::new();
        self.scarcity = None;
        for place in &mut self.places {
            match place.life {
                Life::Waiting(_) => place.life = Life::Empty,
                Life::Running { worker, process, .. } => {
                    place.life = Life::Leaving { worker, process, until: Some(now + LEAVING_GRACE) };
                    leaving.push((worker, process));
                }
                Life::Empty | Life::Leaving { .. } => {}
            }
        }
        leaving
    }

    /// Those that should have left by now. Each is named once in [`LEAVING_GRACE`].
    pub fn overdue(&mut self, now: Instant) -> Vec<(WorkerId, Option<Process>)> {
        let mut overdue = Vec::new();
        for place in &mut self.places {
            if let Life::Leaving { worker, process, until } = &mut place.life
                && until.is_some_and(|until| until <= now)
            {
                *until = Some(now + LEAVING_GRACE);
                overdue.push((*worker, *process));
            }
        }
        overdue
    }

    /// Those that are to go, and whose process is not known: their prototype died before it could say.
    pub fn nameless_leaving(&self) -> Vec<WorkerId> {
        let nameless = |place: &Place| match place.life {
            Life::Leaving { worker, process: None, .. } => Some(worker),
            _ => None,
        };
        self.places.iter().filter_map(nameless).collect()
    }

    /// Whether it was asked to go.
    pub fn is_leaving(&self, wanted: WorkerId) -> bool {
        let place = self.places.get(usize::from(wanted.index));
        place.is_some_and(|place| matches!(place.life, Life::Leaving { worker, .. } if worker == wanted))
    }

    /// The worker with this process id.
    pub fn with_pid(&self, wanted: Pid) -> Option<WorkerId> {
        self.alive().find(|(_, process)| process.is_some_and(|it| it.pid == wanted)).map(|(worker, _)| worker)
    }

    /// All that run or leave.
    pub fn alive(&self) -> impl Iterator<Item = (WorkerId, Option<Process>)> {
        self.places.iter().filter_map(|place| match place.life {
            Life::Running { worker, process, .. } | Life::Leaving { worker, process, .. } => Some((worker, process)),
            Life::Empty | Life::Waiting(_) => None,
        })
    }

    /// When [`Self::start_due`] or [`Self::overdue`] will have something.
    pub fn next_deadline(&self) -> Option<Instant> {
        let again = match &self.scarcity {
            None => Some(None),
            Some(scarcity) => scarcity.again.map(Some),
        };
        let due = |place: &Place| match (place.life, again) {
            (Life::Waiting(at), Some(again)) => Some(again.map_or(at, |again| again.max(at))),
            _ => None,
        };
        self.places.iter().filter_map(due).chain(self.next_overdue()).min()
    }

    /// When [`Self::overdue`] will have something.
    pub fn next_overdue(&self) -> Option<Instant> {
        let overdue = |place: &Place| match place.life {
            Life::Leaving { until, .. } => until,
            _ => None,
        };
        self.places.iter().filter_map(overdue).min()
    }
}

// === impl Place ===

impl Place {
    fn is_empty(&self) -> bool {
        matches!(self.life, Life::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: i32) -> Process {
        Process { pid: Pid::from_raw(number).unwrap(), born: 1 }
    }

    fn id(index: u16, incarnation: u16) -> WorkerId {
        WorkerId { index, incarnation }
    }

    #[test]
    fn a_dead_workers_place_is_given_again_with_another_incarnation() {
        let now = Instant::now();
        let mut workers = Workers::new(2);
        assert_eq!(workers.start_due(now), [id(0, 0), id(1, 0)]);
        assert_eq!(workers.start_due(now), []);
        assert!(workers.started(id(1, 0), Some(process(11))));
        assert!(!workers.started(id(1, 0), Some(process(12))), "it is one process");
        assert_eq!(workers.with_pid(process(11).pid), Some(id(1, 0)));
        assert!(workers.died(id(1, 0), now));
        assert!(!workers.died(id(1, 0), now));
        assert_eq!(workers.start_due(now), [id(1, 1)]);
        assert!(!workers.started(id(1, 0), Some(process(12))));
    }

    #[test]
    fn when_none_can_be_forked_one_is_tried_at_a_time() {
        let now = Instant::now();
        let mut workers = Workers::new(3);
        let all = workers.start_due(now);
        assert!(workers.started(all[0], Some(process(10))));
        assert!(workers.not_forked(all[1], now) && workers.not_forked(all[2], now));
        assert!(!workers.not_forked(all[2], now) && !workers.not_forked(all[0], now));
        assert_eq!((workers.staying(), workers.started_since(now).count()), (1, 0));
        assert_eq!(workers.start_due(now), []);
        let again = workers.next_deadline().unwrap();
        assert!(again > now);
        let trial = workers.start_due(again);
        assert_eq!((trial.len(), workers.start_due(again).len(), workers.next_deadline()), (1, 0, None));
        assert!(workers.not_forked(trial[0], again));
        let later = workers.next_deadline().unwrap();
        assert!(later - again > again - now, "it waits longer each time");
        let trial = workers.start_due(later);
        assert!(workers.started(trial[0], Some(process(11))));
        assert_eq!((workers.start_due(later).len(), workers.staying()), (1, 3), "the others follow at once");
    }

    #[test]
    fn a_trial_whose_prototype_dies_is_no_reason_to_wait_for_ever() {
        let now = Instant::now();
        let mut workers = Workers::new(2);
        let all = workers.start_due(now);
        assert!(workers.not_forked(all[0], now) && workers.not_forked(all[1], now));
        let again = workers.next_deadline().unwrap();
        assert_eq!(workers.start_due(again).len(), 1);
        workers.leave(again);
        assert_eq!(workers.start_due(again).len(), 2);
    }

    #[test]
    fn those_that_wait_for_their_birth_are_the_first_that_are_not_wanted() {
        let now = Instant::now();
        let mut workers = Workers::new(4);
        let all = workers.start_due(now);
        for (worker, number) in all.iter().zip(10..) {
            workers.started(*worker, Some(process(number)));
        }
        assert!(workers.died(all[1], now) && workers.died(all[3], now));
        workers.want(3);
        assert_eq!((workers.staying(), workers.running().count()), (3, 2));
        workers.want(1);
        assert_eq!((workers.staying(), workers.running().count()), (2, 2), "nobody who runs is sent away");
    }

    #[test]
    fn the_place_of_a_leaving_worker_is_not_given_away() {
        let now = Instant::now();
        let mut workers = Workers::new(2);
        workers.start_due(now);
        workers.started(id(0, 0), Some(process(10)));
        assert_eq!(workers.leave(now), [(id(0, 0), Some(process(10))), (id(1, 0), None)]);
        assert_eq!(workers.start_due(now), [id(2, 0), id(3, 0)]);
        assert!(workers.died(id(0, 0), now));
        assert_eq!(workers.start_due(now), []);
        assert_eq!(workers.overdue(now), []);
        assert_eq!(workers.overdue(now + LEAVING_GRACE), [(id(1, 0), None)]);
        assert_eq!(workers.overdue(now + LEAVING_GRACE), []);
    }

    #[test]
    fn those_that_retire_count_as_long_as_they_live_but_not_those_whose_prototype_died() {
        let now = Instant::now();
        let mut workers = Workers::new(2).at_most(2);
        workers.start_due(now);
        workers.started(id(0, 0), Some(process(10)));
        workers.retire(id(0, 0));
        workers.want(2);
        assert_eq!(workers.start_due(now), []);
        workers.died(id(0, 0), now);
        assert_eq!(workers.start_due(now), [id(0, 1)]);
        workers.leave(now);
        assert_eq!(workers.start_due(now), [id(2, 0), id(3, 0)]);
    }

    #[test]
    fn a_worker_that_retires_is_not_replaced() {
        let now = Instant::now();
        let mut workers = Workers::new(2);
        workers.start_due(now);
        workers.retire(id(1, 0));
        assert_eq!((workers.wanted(), workers.staying()), (1, 1));
        assert!(workers.died(id(1, 0), now));
        assert_eq!(workers.start_due(now), []);
        workers.want(2);
        assert_eq!(workers.start_due(now), [id(1, 1)]);
    }

    #[test]
    fn after_its_last_request_a_worker_is_replaced_at_once() {
        let now = Instant::now();
        let mut workers = Workers::new(1);
        for incarnation in 0..10 {
            assert_eq!(workers.start_due(now), [id(0, incarnation)]);
            assert!(workers.ended(id(0, incarnation), now));
        }
    }

    #[test]
    fn workers_that_die_at_work_are_replaced_at_once_until_the_budget_is_spent() {
        let now = Instant::now();
        let mut workers = Workers::new(2);
        for incarnation in 0..5 {
            assert_eq!(workers.start_due(now), [id(0, incarnation), id(1, incarnation)]);
            assert!(workers.fell(id(0, incarnation), now) && workers.fell(id(1, incarnation), now));
        }
        workers.start_due(now);
        assert!(workers.fell(id(0, 5), now) && !workers.fell(id(0, 5), now) && !workers.fell(id(7, 0), now));
        assert_eq!(workers.start_due(now), []);
        assert_eq!(workers.start_due(workers.next_deadline().unwrap()), [id(0, 6)]);
        workers.retire(id(1, 5));
        assert!(workers.fell(id(1, 5), now), "nobody takes its place");
        assert_eq!(workers.next_deadline(), None);
    }

    #[test]
    fn a_worker_that_keeps_dying_young_waits() {
        let now = Instant::now();
        let mut workers = Workers::new(1);
        for _ in 0..4 {
            let worker = workers.start_due(now)[0];
            workers.died(worker, now);
        }
        assert_eq!(workers.start_due(now), []);
        let deadline = workers.next_deadline().unwrap();
        assert_eq!(workers.start_due(deadline), [id(0, 4)]);
    }
}
