//! The requests that the script of async mode holds.
//!
//! The script takes requests with [`HeldRequests::accept`] while it has a free place. A request gives its place back when it
//! is answered, when PHP frees its object, and when it has taken longer than `limits/timeout`: the router has answered it
//! then. A request whose client has left keeps its place while the script works on it.
//!
//! A handler that hangs keeps its memory after the timeout. A worker with many of them is replaced.

use super::held::Held;
use super::loop_watch::LoopWatch;
use super::slow_requests::log_if_slow;
use crate::sapi;
use crate::worker::callbacks;
use crate::worker::requests::WARM_UP_PAUSE;
use crate::worker::service::Service;
use howdah_channel::Claim;
use howdah_channel::account::{Current, monotonic};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The requests of this worker.
pub struct HeldRequests {
    service: Service,
    watch: LoopWatch,
    /// The most requests at a time.
    most: usize,
    /// By their numbers; a number is free again when PHP has freed its object.
    table: Vec<Option<Box<Held>>>,
    free: Vec<u32>,
    /// The requests that take a place: when they began, and their numbers.
    places: BTreeSet<(Duration, u32)>,
    /// How many requests the script keeps that have taken longer than `limits/timeout`.
    overdue: usize,
    /// When the last request ended.
    last_end: Duration,
}

/// A script may keep this number of overdue requests, or as many as it has places if those are more.
const LEAST_OVERDUE: usize = 16;
/// The exit code of a worker without the means to run: EX_OSERR of sysexits.h.
const EXIT_OS_ERROR: c_int = 71;

// === impl HeldRequests ===

impl HeldRequests {
    /// The worker is ready for its first requests.
    pub fn begin(service: Service, most: u16) -> HeldRequests {
        let watch = LoopWatch::begin(service.end, service.limits.clone()).unwrap_or_else(|error| {
            service.limits.warn(&format!("exits: it cannot watch its event loop: {error}"));
            callbacks::exit(EXIT_OS_ERROR)
        });
        // The loop calls `accept` first: that announces the places.
        watch.signal();
        HeldRequests {
            service,
            watch,
            most: most.into(),
            table: Vec::new(),
            free: Vec::new(),
            places: BTreeSet::new(),
            overdue: 0,
            last_end: Duration::ZERO,
        }
    }

    /// The descriptor that is readable when [`Self::accept`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.descriptor()
    }

    /// Whether the worker takes more requests. `false`: the script must end when it has answered those that it holds.
    pub fn takes_requests(&self) -> bool {
        !self.watch.is_over() && !self.service.end.must_stop()
    }

    /// The same, for the script. A script that ends may not watch the descriptor any more: places are given back here, too.
    pub fn is_running(&mut self) -> bool {
        self.release_overdue();
        self.takes_requests()
    }

    /// Whether the script holds no request that is to be answered.
    pub fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of the recording of memory that goes on; 0 without one.
    pub fn memory_recording(&self) -> u32 {
        self.service.end.memory_recording()
    }

    /// Takes a request, if one waits and a place is free. `None`: from now on the descriptor is readable when that changes.
    pub fn accept(&mut self) -> Option<u32> {
        self.watch.turn();
        self.service.ledger.enter_turn(monotonic());
        let end = self.service.end;
        let mut is_cleared = false;
        loop {
            self.release_overdue();
            let may_take = self.takes_requests() && self.places.len() < self.most;
            if may_take && let Some(claim) = end.try_next() {
                return Some(self.hold(claim));
            }
            // An event after the descriptor was cleared makes it readable again, or is seen here.
            if !is_cleared {
                self.watch.clear();
                is_cleared = true;
            } else if !may_take {
                end.withdraw();
                return None;
            } else if end.announce_place() {
                self.service.before_sleep();
                return None;
            }
        }
    }

    fn hold(&mut self, claim: Claim<'static>) -> u32 {
        let now = monotonic();
        let held = Held::new(claim, now).unwrap_or_else(|violation| callbacks::exit_after_violation(&violation));
        self.service.request_begins(held.buffers.is_warm_up());
        if self.places.is_empty() {
            let Current { slot, sequence, began } = held.current;
            self.service.ledger.begin(slot, sequence, began);
            sapi::sample_loop(true);
        }
        self.watch.uses(held.current);
        let number = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            self.table.len() as u32 - 1
        });
        self.table[number as usize] = Some(Box::new(held));
        self.places.insert((now, number));
        self.count_places();
        if self.places.len() == self.most {
            self.service.end.withdraw();
        }
        number
    }

    /// The request with this number.
    pub fn get(&mut self, number: u32) -> Option<&mut Held> {
        let held = self.table.get_mut(number as usize)?.as_deref_mut()?;
        self.watch.uses(held.current);
        Some(held)
    }

    /// The response is complete.
    pub fn finish(&mut self, number: u32) {
        self.settle(number, Claim::finish);
    }

    /// There will be no response, or no rest of it.
    pub fn abandon(&mut self, number: u32) {
        self.settle(number, Claim::abandon);
    }

    /// PHP has freed the object of this request. If it was not answered, that is logged.
    pub fn release(&mut self, number: u32) {
        let Some(held) = self.table.get(number as usize).and_then(Option::as_deref) else { return };
        if held.claim.is_some() {
            if held.is_open() {
                let outcome = if held.has_begun { "cut off" } else { "answered 500" };
                let name = self.watch.name_of(held.current);
                self.service
                    .limits
                    .warn(&format!("has freed the object of {name} before the response was complete: {outcome}"));
            }
            self.abandon(number);
        }
        if let Some(held) = self.table[number as usize].take() {
            self.overdue -= usize::from(held.is_overdue);
        }
        self.free.push(number);
    }

    /// The script has ended: no request is answered any more.
    pub fn close(&mut self) {
        let mut lost = Vec::new();
        for (_, number) in self.places.clone() {
            let Some(held) = self.table[number as usize].as_deref() else { continue };
            if held.is_open() {
                lost.push(self.watch.name_of(held.current));
            }
            self.abandon(number);
        }
        if let Some(first) = lost.first() {
            self.service.limits.warn(&format!(
                "has ended its script with {} unanswered requests, the first is {first}: answered 500, or cut off",
                lost.len()
            ));
        }
        self.service.end.withdraw();
    }

    fn count_places(&self) {
        self.service.ledger.enter_running(self.places.len());
        self.watch.holds(self.places.len(), self.oldest());
    }

    fn oldest(&self) -> Option<Current> {
        let (_, number) = self.places.first()?;
        Some(self.table[*number as usize].as_ref()?.current)
    }

    /// Gives the places of requests back that have taken too long: the router has answered them, or their clients have left.
    fn release_overdue(&mut self) {
        let Some(timeout) = self.service.limits.timeout else { return };
        let Some((first, _)) = self.places.first() else { return };
        let late = monotonic().saturating_sub(timeout);
        if *first > late {
            return;
        }
        let overdue: Vec<_> = self.places.range(..(late, u32::MAX)).map(|(_, number)| *number).collect();
        for number in overdue {
            // The router begins to count a little later: until it has answered, a client waits.
            if let Some(held) = self.table[number as usize].as_mut().filter(|held| !held.is_open()) {
                held.is_overdue = true;
                self.overdue += 1;
                self.finish(number);
            }
        }
        self.retire_if_it_hangs();
    }

    fn retire_if_it_hangs(&mut self) {
        if self.overdue < self.most.max(LEAST_OVERDUE) || self.watch.is_over() {
            return;
        }
        self.service.limits.warn(&format!(
            "keeps {} requests that have taken longer than limits/timeout, and their memory: replacing it; a handler must end, or \
             free its Request, when isOpen() is false",
            self.overdue
        ));
        self.retire();
    }

    /// Takes no more requests: the script must end when it has answered those that it holds.
    fn retire(&self) {
        self.service.end.withdraw();
        self.watch.ends();
    }

    fn settle(&mut self, number: u32, end_claim: impl FnOnce(Claim<'static>)) {
        let Some(held) = self.table.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
        let Some(mut claim) = held.claim.take() else { return };
        sapi::with_slow_stack(held.current.began, |stack, after| claim.set_stack(stack, after));
        end_claim(claim);
        log_if_slow(held, self.places.len());
        let (began, is_warm_up) = (held.current.began, held.buffers.is_warm_up());
        self.service.request_is_answered(is_warm_up);
        if is_warm_up {
            // Each worker must run it: the next one is for another worker.
            std::thread::sleep(WARM_UP_PAUSE);
        }
        let now = monotonic();
        let was_full = self.places.len() == self.most;
        let was_oldest = self.places.first() == Some(&(began, number));
        self.places.remove(&(began, number));
        match was_oldest {
            true => self.service.ledger.finish_oldest(self.oldest(), now),
            false => self.service.ledger.finish_younger(),
        }
        self.count_places();
        if self.places.is_empty() {
            sapi::sample_loop(false);
        }
        // The time of requests that were held together counts once.
        let busy = now.saturating_sub(began.max(self.last_end));
        self.last_end = now;
        if !self.service.may_go_on(busy, now) && !self.watch.is_over() {
            self.retire();
        } else if was_full && self.takes_requests() && !self.service.end.announce_place() {
            self.watch.signal();
        }
    }
}
