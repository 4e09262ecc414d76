//! The requests of all clients, and what a client does next.

use super::agenda::RequestId;
use crate::processors::Time;
use crate::random::Random;
use crate::scenario::{Arrivals, Clients, Page, Retry};
use std::time::Duration;

/// All requests, by index. A client in a closed loop has one index for all its requests.
#[derive(Debug)]
pub struct Requests {
    groups: Vec<Clients>,
    requests: Vec<Request>,
    /// The indices that are free.
    free: Vec<RequestId>,
    /// How many pages the clients of each group have chosen.
    chosen: Vec<u64>,
    random: Random,
}

/// The fractional part of the golden ratio: its multiples are evenly distributed.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The clients that it belongs to.
    pub group: usize,
    /// Its page; its times are those of this request.
    pub page: Page,
    /// When the client sent it.
    pub sent: Time,
    /// When the router first decided about it.
    pub arrived: Option<Time>,
    /// When it was queued, and for how long it may wait.
    pub queued: Time,
    /// The longest wait.
    pub limit: Duration,
    /// How often it has failed.
    pub errors: u32,
}

// === impl Requests ===

impl Requests {
    /// No request has come yet.
    pub fn new(groups: Vec<Clients>, random: Random) -> Requests {
        let chosen = vec![0; groups.len()];
        Requests { groups, requests: Vec::new(), free: Vec::new(), chosen, random }
    }

    /// A request.
    pub fn get(&mut self, id: RequestId) -> &mut Request {
        &mut self.requests[id]
    }

    /// How long its client waits in the queue.
    pub fn patience(&self, id: RequestId) -> Option<Duration> {
        self.groups[self.requests[id].group].patience
    }

    /// Another request of these clients.
    pub fn add(&mut self, group: usize) -> RequestId {
        let page = self.choose_page(group);
        let request = Request { group, page, sent: 0, arrived: None, queued: 0, limit: Duration::ZERO, errors: 0 };
        match self.free.pop() {
            Some(id) => {
                self.requests[id] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        }
    }

    /// The time between two requests of clients that do not wait for answers.
    pub fn pause_between(&mut self, group: usize) -> Option<Duration> {
        let Arrivals::Open { per_second, is_random } = self.groups[group].arrivals else { return None };
        let mean = Duration::from_secs_f64(1.0 / per_second);
        Some(if is_random { self.random.exponential(mean) } else { mean })
    }

    /// Its client has the good answer. Returns when it sends the next request, if it does.
    pub fn on_answered(&mut self, id: RequestId, now: Time) -> Option<Time> {
        let group = self.requests[id].group;
        let Clients { arrivals, until, .. } = self.groups[group];
        let Arrivals::Closed { think, .. } = arrivals else {
            self.free.push(id);
            return None;
        };
        let pause = if think > Duration::ZERO { self.random.exponential(think) } else { think };
        let at = now + nanoseconds(pause);
        if at >= nanoseconds(until) {
            self.free.push(id);
            return None;
        }
        let page = self.choose_page(group);
        self.requests[id] = Request { page, arrived: None, errors: 0, ..self.requests[id] };
        Some(at)
    }

    /// Its client has an error. Returns when it sends a request again, if it does.
    pub fn on_failed(&mut self, id: RequestId, now: Time) -> Option<Time> {
        let request = &mut self.requests[id];
        request.errors += 1;
        request.arrived = None;
        let errors = request.errors;
        let pause = match self.groups[request.group].retry {
            Retry::GiveUp => return self.on_answered(id, now),
            Retry::After(pause) => pause,
            Retry::BackOff { first, longest } => (first * 2_u32.pow((errors - 1).min(20))).min(longest),
        };
        // Clients that all failed at the same time do not all return at the same time.
        let at = now + nanoseconds(pause.mul_f64(0.75 + 0.5 * self.random.unit()));
        if at >= nanoseconds(self.groups[request.group].until) {
            self.free.push(id);
            return None;
        }
        Some(at)
    }

    /// Each page has its share of any few requests, not only on average.
    fn choose_page(&mut self, group: usize) -> Page {
        self.chosen[group] += 1;
        let share = (self.chosen[group] as f64 * GOLDEN).fract();
        let pages = &self.groups[group].pages;
        let total: u32 = pages.iter().map(|(weight, _)| weight).sum();
        let mut position = (share * f64::from(total)) as u32;
        let chosen = pages.iter().find(|(weight, _)| {
            let is_chosen = position < *weight;
            position = position.saturating_sub(*weight);
            is_chosen
        });
        let (_, page) = *chosen.unwrap_or(&pages[0]);
        if !page.is_random {
            return page;
        }
        Page { cpu: self.random.exponential(page.cpu), wait: self.random.exponential(page.wait), ..page }
    }
}

/// The largest result is about five centuries.
pub fn nanoseconds(duration: Duration) -> Time {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
