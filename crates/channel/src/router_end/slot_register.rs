//! The register of the slots that no exchange owns, and of what the router's threads know of the workers.
//!
//! Checks that would cost something on each request are done here, some times per second.

use super::roster::Roster;
use super::rounds::{Rounds, Suspicion};
use crate::memory::doorbell;
use crate::memory::layout::{MAX_WORKERS, flags};
use crate::slot_state::{SlotState, WorkerId, pack, unpack};
use crate::sync::{AtomicU64, Ordering};
use crate::view::View;
use crate::violation::Violation;
use std::collections::HashMap;

/// The register. The router's threads share it under a lock.
#[derive(Debug)]
pub(super) struct SlotRegister {
    /// Free slots, the last used on top, with the sequence number of their last request.
    free: Vec<(u16, u32)>,
    /// Free, but the hint of their cancelled request is still in the queue: slot, sequence number, ticket.
    hinted: Vec<(u16, u32, u64)>,
    /// A worker still runs the request of a client that is gone (or of a former router).
    orphans: Vec<Orphan>,
    /// A worker broke the rules with them, or they were orphans at a moment when one did.
    quarantined: Vec<(u16, u32)>,
    /// The rule that was broken with a quarantined slot or with the queue, until the workers have been replaced.
    broken: Option<Violation>,
    pub living: Roster,
    pub rounds: Rounds,
    /// The ticket that no worker gets past.
    stuck: Suspicion<u64>,
    /// The queue's head at the end of the last round.
    last_head: u64,
}

/// The slot of a request whose client is gone.
#[derive(Debug)]
struct Orphan {
    slot: u16,
    sequence: u32,
    /// A former router submitted it: the report of its worker's death may have been sent to that router.
    inherited: bool,
    /// It was claimed in this name, and no worker of this name lives.
    stranger: Suspicion<WorkerId>,
}

/// The rule that is broken when no worker of a claim's name lives.
pub(super) const NO_SUCH_WORKER: &str = "a request was claimed in the name of a worker that does not live";

// === impl SlotRegister ===

impl SlotRegister {
    pub fn new(threads: u16) -> SlotRegister {
        SlotRegister {
            free: Vec::new(),
            hinted: Vec::new(),
            orphans: Vec::new(),
            quarantined: Vec::new(),
            broken: None,
            living: Roster::default(),
            rounds: Rounds::new(threads),
            stuck: Suspicion::none(),
            last_head: 0,
        }
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn hinted(&self) -> usize {
        self.hinted.len()
    }

    pub fn broken(&self) -> Option<Violation> {
        self.broken
    }

    pub fn take_free(&mut self) -> Option<(u16, u32)> {
        self.free.pop()
    }

    pub fn add_free(&mut self, slot: u16, sequence: u32) {
        self.free.push((slot, sequence));
    }

    pub fn add_hinted(&mut self, slot: u16, sequence: u32, ticket: u64) {
        self.hinted.push((slot, sequence, ticket));
    }

    pub fn add_orphan(&mut self, slot: u16, sequence: u32, inherited: bool) {
        self.orphans.push(Orphan { slot, sequence, inherited, stranger: Suspicion::none() });
    }

    /// Sets a slot aside until the workers have been replaced, and the orphans' slots with it: the worker that owns them
    /// can't be trusted either.
    pub fn quarantine(&mut self, view: &View, slot: u16, sequence: u32) {
        self.quarantined.extend(self.orphans.drain(..).map(|orphan| (orphan.slot, orphan.sequence)));
        self.quarantined.push((slot, sequence));
        self.broken.get_or_insert(Violation("a slot waits for the workers to be replaced"));
        // An honest worker that runs it must not wait for room in the ring.
        view.notify_client_gone(slot);
    }

    /// All workers that ran when the rules were broken are dead: frees the slots in quarantine.
    pub fn release_quarantined(&mut self, view: &View) {
        self.broken = None;
        for (slot, sequence) in self.quarantined.drain(..) {
            view.slot(slot).state().store(pack(sequence, SlotState::Free), Ordering::Release);
            self.free.push((slot, sequence));
        }
    }

    /// Repeats the notification to the workers of the slots in quarantine: a hostile worker may have cleared it.
    pub fn notify_quarantined(&self, view: &View) {
        self.quarantined.iter().for_each(|(slot, _)| view.notify_client_gone(*slot));
    }

    /// Frees the slots of cancelled requests whose tickets have been taken.
    pub fn collect_hinted(&mut self, is_taken: impl Fn(u64) -> bool) {
        let SlotRegister { free, hinted, .. } = self;
        hinted.retain(|(slot, sequence, ticket)| {
            let taken = is_taken(*ticket);
            if taken {
                free.push((*slot, *sequence));
            }
            !taken
        });
    }

    /// Frees the slots of orphans whose workers have finished or are dead; returns their number.
    pub fn collect_orphans(&mut self, view: &View, is_dead: impl Fn(WorkerId) -> bool) -> usize {
        let SlotRegister { free, orphans, quarantined, broken, living, rounds, .. } = self;
        let mut finished = 0;
        orphans.retain_mut(|orphan| {
            let (slot, sequence) = (orphan.slot, orphan.sequence);
            match orphan.has_ended(view, living, rounds.number(), &is_dead) {
                Ok(false) => return true,
                Ok(true) => {
                    view.slot(slot).state().store(pack(sequence, SlotState::Free), Ordering::Release);
                    free.push((slot, sequence));
                    finished += 1;
                }
                Err(violation) => {
                    view.notify_client_gone(slot);
                    quarantined.push((slot, sequence));
                    *broken = Some(violation);
                }
            }
            false
        });
        finished
    }

    /// Finds a cell that stops the queue. [`SubmissionQueue::repair`] can't run at the same time: it needs the register.
    ///
    /// [`SubmissionQueue::repair`]: crate::lock_free::submission::SubmissionQueue::repair
    pub fn check_queue(&mut self, view: &View, tail: &AtomicU64) {
        let stuck = view.queue().stuck_at(tail);
        if self.stuck.is_proven(stuck, self.rounds.number()) {
            self.broken = Some(Violation("no worker gets past a cell of the submission queue"));
        }
    }

    /// Finds free slots that a worker marked as submitted: a worker that ran such a request would wait without end.
    pub fn check_free(&mut self, view: &View) {
        let SlotRegister { free, hinted, quarantined, broken, .. } = self;
        let mut is_free = |slot: u16, sequence: u32| {
            let is_free = view.slot(slot).state().load(Ordering::Relaxed) == pack(sequence, SlotState::Free);
            if !is_free {
                view.notify_client_gone(slot);
                quarantined.push((slot, sequence));
                *broken = Some(Violation("a free slot was overwritten"));
            }
            is_free
        };
        free.retain(|(slot, sequence)| is_free(*slot, *sequence));
        hinted.retain(|(slot, sequence, _)| is_free(*slot, *sequence));
    }

    /// Finds a worker that has claimed more requests than one runs at a time: the others would wait for it, each in a slot.
    pub fn check_claims(&mut self, view: &View) {
        let claim_of = |slot| {
            let word = view.slot(slot).state().load(Ordering::Acquire);
            match unpack(word).1 {
                Some(SlotState::Claimed(worker)) if worker.index < MAX_WORKERS => Some((worker, word)),
                _ => None,
            }
        };
        // By the worker's life: a former one may have left its claims by its death.
        let mut claims: HashMap<WorkerId, Vec<(u16, u64)>> = HashMap::new();
        for slot in 0..view.layout.geometry.slots {
            if let Some((worker, word)) = claim_of(slot) {
                claims.entry(worker).or_default().push((slot, word));
            }
        }
        // The worker may have finished some of the requests before it claimed others: those that are claimed even now
        // were so at the same time.
        let most = usize::from(view.layout.geometry.claims);
        let has_too_many = |(worker, claims): (&WorkerId, &Vec<(u16, u64)>)| {
            let is_claimed = |(slot, word): &&(u16, u64)| claim_of(*slot) == Some((*worker, *word));
            claims.len() > most && claims.iter().filter(is_claimed).count() > most
        };
        if claims.iter().any(has_too_many) {
            self.broken = Some(Violation("a worker claimed more requests than it may run at a time"));
        }
    }

    /// Rings for all workers when requests wait and none was taken for a whole round. Usually all workers are busy then,
    /// and the wake-ups are for nothing; but workers that a hostile one removed from the idle set would sleep without end.
    pub fn wake_all_if_none_is_taken(&mut self, view: &View) {
        let queue = view.queue();
        let head = queue.head.load(Ordering::Acquire);
        if head == self.last_head && queue.has_hint() {
            self.living.indexes().for_each(|index| doorbell::ring(view.doorbell(index)));
        }
        self.last_head = head;
    }
}

// === impl Orphan ===

impl Orphan {
    fn has_ended(
        &mut self,
        view: &View,
        living: &Roster,
        round: u32,
        is_dead: impl Fn(WorkerId) -> bool,
    ) -> Result<bool, Violation> {
        let words = view.slot(self.slot);
        match unpack(words.state().load(Ordering::Acquire)) {
            (sequence, Some(SlotState::Done(_))) if sequence == self.sequence => Ok(true),
            (sequence, Some(SlotState::Claimed(worker))) if sequence == self.sequence => {
                let stranger = (!living.lives(worker)).then_some(worker);
                if is_dead(worker) {
                    Ok(true)
                } else if self.stranger.is_proven(stranger, round) {
                    if self.inherited { Ok(true) } else { Err(Violation(NO_SUCH_WORKER)) }
                } else if words.flags().load(Ordering::Relaxed) & flags::CLIENT_GONE == 0 {
                    Err(Violation("the flag of a client that is gone was cleared"))
                } else {
                    Ok(false)
                }
            }
            _ => Err(Violation("the slot of a request whose client is gone was overwritten")),
        }
    }
}
