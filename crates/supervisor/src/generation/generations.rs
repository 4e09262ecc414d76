//! All generations that run: those of the active configuration, those that a change starts, and those that drain.

use super::php::PhpGeneration;
use super::tally::ProcessTally;
use super::{Generation, GenerationEvent};
use crate::plan::application::Plan;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::router::ToRouter;
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Instant;

/// The generations.
#[derive(Debug)]
pub struct Generations {
    all: Vec<Generation>,
    next_id: u64,
    /// How many threads a router has. Each of them has an eventfd in every generation's channel.
    router_threads: u16,
    /// The index of the generation whose messages are read first.
    first_read: usize,
    /// The numbers of the processes of generations that are gone, by application.
    gone: BTreeMap<String, ProcessTally>,
}

// === impl Generations ===

impl Generations {
    /// Without generations, for routers with this number of threads.
    pub fn new(router_threads: u16) -> Generations {
        Generations { all: Vec::new(), next_id: 1, router_threads, first_read: 0, gone: BTreeMap::new() }
    }

    /// Adds a generation, which starts its processes when its time is looked at. Returns its id.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn add(&mut self, plan: Plan, now: Instant) -> io::Result<u64> {
        let id = self.next_id;
        let generation = Generation::new(id, plan, self.router_threads, now)?;
        self.next_id += generation.as_php().map_or(1, |php| php.pools().count() as u64);
        self.all.push(generation);
        Ok(id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Generation> {
        self.all.iter()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Generation> {
        self.all.iter_mut()
    }

    /// The generation with this id.
    pub fn get(&self, id: u64) -> Option<&Generation> {
        self.all.iter().find(|generation| generation.id() == id)
    }

    /// The generation with this id.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Generation> {
        self.all.iter_mut().find(|generation| generation.id() == id)
    }

    /// The numbers of all processes so far, by application.
    pub fn tallies(&self) -> BTreeMap<String, ProcessTally> {
        let mut tallies = self.gone.clone();
        for generation in &self.all {
            tallies.entry(generation.name().to_owned()).or_default().add(generation.tally());
        }
        tallies
    }

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.all.iter().filter_map(Generation::next_deadline).min()
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: Instant) {
        self.all.iter_mut().for_each(|generation| generation.on_time(now));
    }

    /// The generation of a PHP application that has a pool with this id. The first pool has the id of its generation.
    pub fn php_mut(&mut self, id: u64) -> Option<&mut PhpGeneration> {
        self.all.iter_mut().filter_map(Generation::as_php_mut).find(|generation| generation.has_pool(id))
    }

    /// The next event of a generation, with its id. The generations take turns, so that a process that floods the
    /// supervisor delays no other one.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<(u64, GenerationEvent)> {
        let count = self.all.len();
        for turn in 0..count {
            let index = (self.first_read + turn) % count;
            let generation = &mut self.all[index];
            if let Poll::Ready(event) = generation.poll_event(cx) {
                self.first_read = index + 1;
                return Poll::Ready((generation.id(), event));
            }
        }
        Poll::Pending
    }

    /// An event of a generation.
    pub fn on_event(&mut self, id: u64, event: GenerationEvent, now: Instant) {
        if let Some(generation) = self.get_mut(id) {
            generation.on_event(event, now);
        }
    }

    /// The router found too few idle workers in a pool for the requests that wait.
    pub fn on_workers_wanted(&mut self, id: u64, waiting: u64, now: Instant) {
        let all = self.all.iter().filter_map(Generation::as_php);
        let promised = all.map(|generation| generation.promised_without(id, now)).sum();
        if let Some(generation) = self.php_mut(id) {
            generation.on_workers_wanted(id, waiting, promised, now);
        }
    }

    /// Reads what the prototypes among these dead processes sent before they died: it may explain other deaths.
    pub fn receive_pending(&mut self, dead: &[(Pid, ProcessEnd)], now: Instant) {
        for generation in self.all.iter_mut().filter_map(Generation::as_php_mut) {
            if dead.iter().any(|(pid, _)| generation.is_prototype(*pid)) {
                generation.receive_pending(now);
            }
        }
    }

    /// Children of the supervisor are dead. A process that no generation knows is an orphan of a PHP script.
    pub fn on_deaths(&mut self, mut dead: Vec<(Pid, ProcessEnd)>, now: Instant) {
        // Workers first: after their prototype's death, their processes would be unknown.
        let prototypes = || self.all.iter().filter_map(Generation::as_php);
        dead.sort_by_key(|(pid, _)| prototypes().any(|generation| generation.is_prototype(*pid)));
        for (pid, end) in dead {
            let _ = self.all.iter_mut().any(|generation| generation.on_death(pid, end, now));
        }
        self.all.iter_mut().filter_map(Generation::as_php_mut).for_each(|generation| generation.settle_orphans(now));
    }

    /// The router is dead, and another one will be started.
    pub fn on_router_death(&mut self, now: Instant) {
        self.all.iter_mut().for_each(|generation| generation.on_router_death(now));
    }

    /// The notices for the router about workers, once, with their descriptors.
    pub fn take_notices(&mut self) -> Vec<(ToRouter, Vec<OwnedFd>)> {
        self.all.iter_mut().flat_map(|generation| generation.take_notices()).collect()
    }

    /// Kills the prototypes to which a message failed. Others start.
    pub fn kill_prototypes_if_send_failed(&mut self) {
        self.all.iter_mut().filter_map(Generation::as_php_mut).for_each(PhpGeneration::kill_prototype_if_send_failed);
    }

    /// Asks all generations but these to finish what they do and exit.
    pub fn stop_all_but(&mut self, used: &BTreeSet<u64>, now: Instant) {
        for generation in self.all.iter_mut().filter(|generation| !used.contains(&generation.id())) {
            generation.stop(now);
        }
    }

    /// Kills all processes.
    pub fn kill_all(&mut self) {
        self.all.iter_mut().for_each(Generation::kill);
    }

    /// Removes generations that have no process left.
    pub fn remove_ended(&mut self) {
        let gone = &mut self.gone;
        self.all.retain(|generation| {
            let is_over = generation.is_over();
            if is_over {
                gone.entry(generation.name().to_owned()).or_default().add(generation.tally());
            }
            !is_over
        });
    }

    /// Whether no process is left.
    pub fn are_over(&self) -> bool {
        self.all.iter().all(Generation::is_over)
    }
}
