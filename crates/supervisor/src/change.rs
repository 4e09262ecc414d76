//! From one configuration to the next: a transaction.
//!
//! What is new is started and proven beside what runs; then the router switches; then what is old ends. An application
//! whose options did not change keeps its processes, a listener its socket. Whatever fails on the way ends the change,
//! and nothing has happened. The first configuration of a supervisor is a change like any other.

use crate::banner;
use crate::generation::Generation;
use crate::listen::ChosenBy;
use crate::plan::plan;
use crate::shutdown::Stage;
use crate::start::memory_file;
use crate::supervise::Supervisor;
use crate::{logs, not_yet, supervise};
use howdah_channel::lifecycle::{RouterConfiguration, ToRouter};
use howdah_config::Configuration;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The configuration in force.
#[derive(Debug, Default)]
pub struct Current {
    /// Its number: a change has a larger one.
    pub version: u64,
    /// Its text.
    pub text: String,
    /// The configuration.
    pub configuration: Configuration,
    /// The generation of each application.
    pub generations: BTreeMap<String, u64>,
    /// The listening sockets, in the order of the configuration.
    pub listeners: Vec<u64>,
}

/// A change under way.
#[derive(Debug)]
pub struct Change {
    next: Current,
    origin: Origin,
    /// The generations that it starts.
    started: Vec<u64>,
    progress: Progress,
    /// Who waits for it.
    reply: Option<oneshot::Sender<Result<(), String>>>,
}

/// Where a change comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is the first one: if it fails, so does the start.
    Start,
    /// The control API.
    Api,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// New generations start, until then at most.
    Booting(Instant),
    /// The router switches. There is no way back.
    Switching,
}

/// How long an application may take to start.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);

// === impl Change ===

impl Change {
    /// When it has taken too long.
    pub fn deadline(&self) -> Option<Instant> {
        match self.progress {
            Progress::Booting(until) => Some(until),
            Progress::Switching => None,
        }
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Begins a change: checks it against the machine, opens its sockets, starts its new generations.
    ///
    /// # Errors
    /// What is in the way, with its place in the configuration. Nothing has changed then.
    pub(crate) fn begin_change(
        &mut self,
        text: String,
        configuration: Configuration,
        origin: Origin,
        reply: Option<oneshot::Sender<Result<(), String>>>,
        now: Instant,
    ) -> Result<(), String> {
        not_yet::refuse(&configuration)?;
        let mut plans = Vec::new();
        let mut generations = BTreeMap::new();
        for (name, application) in &configuration.applications {
            let unchanged = self.current.configuration.applications.get(name) == Some(application);
            match self.current.generations.get(name).filter(|_| unchanged) {
                Some(id) => drop(generations.insert(name.clone(), *id)),
                None => plans.push(plan(name, application, &self.start, self.cores)?),
            }
        }
        if let Some(log) = &configuration.access_log {
            logs::open(&log.destination)?;
        }
        let listeners = self.open_listeners(&configuration)?;
        let mut started = Vec::new();
        for plan in plans {
            let (id, name) = (self.next_generation, plan.name.clone());
            let generation = Generation::new(id, plan, self.threads, now);
            let generation = generation.map_err(|error| {
                self.give_up(&started);
                format!("applications/{name}: its channel cannot be made: {error}")
            })?;
            self.next_generation += 1;
            self.generations.push(generation);
            generations.insert(name, id);
            started.push(id);
        }
        self.change = Some(Change {
            next: Current { version: self.current.version + 1, text, configuration, generations, listeners },
            origin,
            started,
            progress: Progress::Booting(now + BOOT_TIMEOUT),
            reply,
        });
        for generation in &mut self.generations {
            generation.on_time(now);
        }
        Ok(())
    }

    /// Takes the next step of a change, if it is time for it.
    ///
    /// # Errors
    /// Why the supervisor cannot start.
    pub(crate) fn go_on_changing(&mut self, now: Instant) -> Result<(), String> {
        if let Some(reason) = self.start_failure.take() {
            return Err(reason);
        }
        let Some(change) = &self.change else { return Ok(()) };
        let Progress::Booting(until) = change.progress else { return Ok(()) };
        let new = || self.generations.iter().filter(|generation| change.started.contains(&generation.id()));
        if let Some((name, reason)) = new().find_map(|new| Some((new.name(), new.failure()?))) {
            let reason = format!("the application {name:?} does not start: {reason}");
            return self.refuse_change(&reason);
        }
        if new().all(Generation::is_proven) {
            return self.switch(now);
        }
        if until <= now {
            let name = new().find(|new| !new.is_proven()).map(Generation::name).unwrap_or_default();
            let reason = format!(
                "the application {name:?} did not start in {} s; does its opcache.preload hang?",
                BOOT_TIMEOUT.as_secs()
            );
            return self.refuse_change(&reason);
        }
        Ok(())
    }

    /// The router serves by the configuration with this number.
    pub(crate) fn configured(&mut self, version: u64, now: Instant) {
        if version != self.current.version {
            return;
        }
        self.listeners.keep(&self.current.listeners);
        if matches!(self.stage, Stage::Booting) {
            self.stage = Stage::Serving;
            banner::print(&self.start, &self.listeners, &self.generations);
        }
        if let Some(Change { reply: Some(reply), .. }) = self.change.take() {
            let _ = reply.send(Ok(()));
        }
        self.forget_ended(now);
    }

    /// The router cannot serve by the configuration: a bug, as it was checked before.
    pub(crate) fn router_refused(&mut self, version: u64, reason: &str) {
        if version == self.current.version {
            self.fail_change(&format!("the router refused the configuration: {reason}"));
        }
    }

    /// The router uses this generation no more.
    pub(crate) fn released(&mut self, id: u64) {
        if !self.current.generations.values().any(|current| *current == id)
            && let Some(generation) = self.generation_mut(id)
        {
            generation.stop();
        }
    }

    /// The router is dead, and with it all requests: nobody uses old generations any more.
    pub(crate) fn router_lost(&mut self, now: Instant) {
        let change = self.change.as_ref().map(|change| change.started.clone()).unwrap_or_default();
        let current = &self.current.generations;
        for generation in &mut self.generations {
            if !current.values().any(|id| *id == generation.id()) && !change.contains(&generation.id()) {
                generation.stop();
            }
        }
        self.forget_ended(now);
    }

    /// Forgets generations of which nothing is left.
    pub(crate) fn forget_ended(&mut self, _now: Instant) {
        self.generations.retain(|generation| !generation.is_over());
    }

    /// Ends a change that cannot be finished.
    pub(crate) fn fail_change(&mut self, reason: &str) {
        let Some(change) = self.change.take() else { return };
        self.give_up(&change.started);
        match change.reply {
            Some(reply) => drop(reply.send(Err(reason.to_owned()))),
            None if change.origin == Origin::Start => self.start_failure = Some(reason.to_owned()),
            None => {}
        }
    }

    /// Sends the router the configuration in force, with these generations and sockets, which it does not know yet.
    pub(crate) fn configure_router(&mut self, generations: &[u64], listeners: &[u64]) -> io::Result<()> {
        let current = &self.current;
        let mut descriptors = vec![memory_file(current.text.as_bytes())?, memory_file(b"{}")?];
        if let Some(log) = &current.configuration.access_log {
            descriptors.push(logs::open(&log.destination).map_err(io::Error::other)?);
        }
        let configuration = RouterConfiguration {
            version: current.version,
            listeners: current.listeners.clone(),
            generations: current.generations.clone(),
            access_log: current.configuration.access_log.is_some(),
        };
        let Some(supervise::Router { link, .. }) = &mut self.router else { return Ok(()) };
        for generation in self.generations.iter().filter(|generation| generations.contains(&generation.id())) {
            let (boot, descriptors) = generation.for_router()?;
            link.send(ToRouter::Generation(boot), descriptors);
        }
        for id in listeners {
            link.send(ToRouter::Listener { id: *id }, vec![self.listeners.descriptor(*id)?]);
        }
        link.send(ToRouter::Configure(configuration), descriptors);
        Ok(())
    }

    fn open_listeners(&mut self, configuration: &Configuration) -> Result<Vec<u64>, String> {
        let chosen_by = if self.start.recognised.is_some() { ChosenBy::Option } else { ChosenBy::Configuration };
        let mut ids = Vec::new();
        for listener in &configuration.listeners {
            let id = match self.listeners.find(&listener.address) {
                Some(id) => Ok(id),
                None => self.listeners.open(&listener.address, chosen_by),
            };
            match id {
                Ok(id) => ids.push(id),
                Err(problem) => {
                    self.listeners.keep(&self.current.listeners);
                    return Err(problem);
                }
            }
        }
        Ok(ids)
    }

    /// All that is new works: from now on it is in force.
    fn switch(&mut self, now: Instant) -> Result<(), String> {
        let Some(change) = &mut self.change else { return Ok(()) };
        change.progress = Progress::Switching;
        let new_listeners: Vec<_> =
            change.next.listeners.iter().filter(|id| !self.current.listeners.contains(id)).copied().collect();
        let started = change.started.clone();
        self.current = std::mem::take(&mut change.next);
        if self.router.is_none() {
            // If it was due to be started again, it starts with the new configuration now.
            self.router_due = None;
            return self.start_router(now).map_err(|error| format!("the router cannot be started: {error}"));
        }
        self.configure_router(&started, &new_listeners)
            .map_err(|error| format!("the router cannot be configured: {error}"))
    }

    fn refuse_change(&mut self, reason: &str) -> Result<(), String> {
        self.fail_change(reason);
        self.start_failure.take().map_or(Ok(()), Err)
    }

    /// Ends what a change had started.
    fn give_up(&mut self, started: &[u64]) {
        for generation in self.generations.iter_mut().filter(|generation| started.contains(&generation.id())) {
            generation.kill();
        }
        self.listeners.keep(&self.current.listeners);
    }
}
