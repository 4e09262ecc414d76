//! From one configuration to the next: a transaction.
//!
//! What is new is planned, started, proven and warmed beside what runs; then the router switches; then what is old ends. An
//! application whose options did not change keeps its processes, a listener its socket. Whatever fails on the way ends the
//! change, and nothing has happened. The first configuration of a supervisor is a change like any other.

use crate::api::Reply;
use crate::banner;
use crate::certificates;
use crate::generation::Generation;
use crate::generation::Plan;
use crate::listen::ChosenBy;
use crate::plan::check_settings;
use crate::planning::Planning;
use crate::reload::Reloading;
use crate::shutdown::Stage;
use crate::silence::ROUTER_PATIENCE;
use crate::start::memory_file;
use crate::state::State;
use crate::supervise::Supervisor;
use crate::warming::Warming;
use crate::{logs, supervise};
use howdah_channel::lifecycle::{RouterConfiguration, ToRouter};
use howdah_config::{Application, Configuration, Document};
use std::collections::BTreeMap;
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A configuration, and what serves by it.
#[derive(Debug)]
pub struct Current {
    /// Its number: a change has a larger one.
    pub version: u64,
    /// As it was written.
    pub document: Document,
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
    /// What shall be in force; while the router switches, what was before.
    next: Current,
    pub(crate) origin: Origin,
    /// The generations that it starts.
    started: Vec<u64>,
    pub(crate) progress: Progress,
}

/// Where a change comes from.
#[derive(Debug)]
pub enum Origin {
    /// The command line: if it fails, so does the start.
    Start,
    /// The state directory: if it fails, howdah starts with an empty configuration.
    Stored,
    /// In the place of a stored one that does not run, which stays stored: it may be right again at the next start.
    Nothing,
    /// The control API.
    Api(Reply),
    /// A deploy: these applications start anew.
    Reload(Reloading),
}

/// How far a change is.
#[derive(Debug)]
pub enum Progress {
    /// What is new is compared with the machine.
    Planning(Planning),
    /// New generations start. A generation that does not fails by itself after a while.
    Booting,
    /// New generations answer their first requests.
    Warming(Warming),
    /// The router switches, since then. Only if it cannot there is a way back.
    Switching { since: Instant },
}

/// What a change does next.
pub enum Step {
    /// Nothing, before something is heard.
    Wait,
    /// It lets the new generations answer their first requests.
    Warm,
    /// It goes on without a warm-up, or fails, for this reason.
    GiveWarmUpUp(String),
    /// It lets the router switch.
    Switch,
    /// It fails for this reason.
    Fail(String),
}

/// The generation of each application, the new ones, and the listening sockets.
type Prepared = (BTreeMap<String, u64>, Vec<u64>, Vec<u64>);

// === impl Current ===

impl Current {
    /// Before the first configuration.
    pub fn nothing() -> Current {
        Current {
            version: 0,
            document: Document::initial(),
            configuration: Configuration::default(),
            generations: BTreeMap::new(),
            listeners: Vec::new(),
        }
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Begins a change: new generations are planned. The applications `restart` get new generations, too. How it ends is
    /// told to its origin.
    pub(crate) fn begin_change(
        &mut self,
        document: Document,
        configuration: Configuration,
        origin: Origin,
        restart: &[&str],
        now: Instant,
    ) {
        let current = &self.current;
        let is_kept = |name: &str, application: &Application| {
            current.configuration.applications.get(name) == Some(application)
                && current.generations.contains_key(name)
                && !restart.contains(&name)
        };
        let new = configuration.applications.iter().filter(|(name, application)| !is_kept(name, application));
        let new: Vec<_> = new.map(|(name, application)| (name.clone(), application.clone())).collect();
        let has_new = !new.is_empty();
        let planning =
            if has_new { Progress::Planning(Planning::begin(new, &self.start, now)) } else { Progress::Booting };
        self.change = Some(Change {
            next: Current {
                version: current.version + 1,
                document,
                configuration,
                generations: BTreeMap::new(),
                listeners: Vec::new(),
            },
            origin,
            started: Vec::new(),
            progress: planning,
        });
        if !has_new {
            self.planned(Ok(Vec::new()), now);
        }
    }

    /// Goes on with a change: opens its sockets, starts its new generations.
    pub(crate) fn planned(&mut self, plans: Result<Vec<Plan>, String>, now: Instant) {
        if !matches!(self.stage, Stage::Booting | Stage::Serving) {
            return;
        }
        let Some(mut change) = self.change.take() else { return };
        let prepared = plans.and_then(|plans| self.prepare(&change.next.configuration, plans, now));
        change.progress = Progress::Booting;
        let failure = match prepared {
            Ok((generations, started, listeners)) => {
                (change.next.generations, change.started, change.next.listeners) = (generations, started, listeners);
                None
            }
            Err(failure) => Some(failure),
        };
        self.change = Some(change);
        match failure {
            Some(reason) => self.fail_change(&reason, now),
            None => self.generations.iter_mut().for_each(|generation| generation.on_time(now)),
        }
    }

    /// The generation of each application, those that are new, and the listening sockets.
    fn prepare(&mut self, configuration: &Configuration, plans: Vec<Plan>, now: Instant) -> Result<Prepared, String> {
        let is_new = |name: &str| plans.iter().any(|plan| plan.name == name);
        let kept = configuration.applications.keys().filter(|name| !is_new(name));
        let kept = kept.filter_map(|name| Some((name.clone(), *self.current.generations.get(name)?)));
        let mut generations: BTreeMap<String, u64> = kept.collect();
        check_settings(&configuration.settings)?;
        if let Some(log) = &configuration.access_log {
            logs::open(&log.destination)?;
        }
        let listeners = self.open_listeners(configuration)?;
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
        Ok((generations, started, listeners))
    }

    /// Takes the next step of a change, if it is time for it.
    ///
    /// # Errors
    /// Why the supervisor cannot start.
    pub(crate) fn go_on_changing(&mut self, now: Instant) -> Result<(), String> {
        match self.next_step(now) {
            Step::Wait => {}
            Step::Warm => self.warm(now),
            Step::GiveWarmUpUp(reason) => self.give_warm_up_up(None, &reason, now),
            Step::Switch => self.switch(now),
            Step::Fail(reason) => self.fail_change(&reason, now),
        }
        self.start_failure.take().map_or(Ok(()), Err)
    }

    fn next_step(&mut self, now: Instant) -> Step {
        let Some(Change { started, progress, .. }) = &self.change else { return Step::Wait };
        if !matches!(self.stage, Stage::Booting | Stage::Serving) {
            // What it had started ends, like all else.
            return Step::Wait;
        }
        match progress {
            Progress::Planning(planning) if planning.deadline() <= now => return Step::Fail(planning.overdue()),
            Progress::Planning(_) | Progress::Switching { .. } => return Step::Wait,
            Progress::Booting | Progress::Warming(_) => {}
        }
        let new = || self.generations.iter().filter(|generation| started.contains(&generation.id()));
        if let Some((name, reason)) = new().find_map(|new| Some((new.name(), new.failure()?))) {
            return Step::Fail(format!("the application {name:?} does not start: {reason}"));
        }
        let can_warm = self.can_warm();
        if let Progress::Warming(warming) = progress {
            return warming.next_step(now, can_warm);
        }
        if !new().all(Generation::is_proven) {
            return Step::Wait;
        }
        let warming = Warming::of(self.to_be_warmed(started), now);
        let step = warming.next_step(now, can_warm);
        if let Some(change) = &mut self.change {
            change.progress = Progress::Warming(warming);
        }
        step
    }

    /// Whether there is a router for a warm-up, or one can be started for it.
    fn can_warm(&self) -> bool {
        self.router.is_some() || matches!(self.stage, Stage::Booting)
    }

    /// When the change has taken too long.
    pub(crate) fn change_deadline(&self) -> Option<Instant> {
        match &self.change.as_ref()?.progress {
            Progress::Planning(planning) => Some(planning.deadline()),
            Progress::Warming(warming) => Some(warming.deadline()),
            Progress::Booting | Progress::Switching { .. } => None,
        }
    }

    /// The plans of a change, when they are there.
    pub(crate) fn poll_planned(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Plan>, String>> {
        match self.change.as_mut().map(|change| &mut change.progress) {
            Some(Progress::Planning(planning)) => planning.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// The router serves by the configuration with this number.
    pub(crate) fn configured(&mut self, version: u64, now: Instant) {
        if version != self.current.version {
            return;
        }
        if let Some(router) = &mut self.router {
            router.answer_by = None;
        }
        self.listeners.keep(&self.current.listeners);
        if self.switched_at().is_some() {
            self.warn();
        }
        for (id, listener) in self.current.listeners.iter().zip(&self.current.configuration.listeners) {
            self.listeners.set_backlog(*id, listener.backlog);
        }
        if matches!(self.stage, Stage::Booting) {
            self.stage = Stage::Serving;
            banner::print(&self.start, &self.listeners, &self.current, &self.generations);
        }
        // A router that was started again says so, too, while the next change still boots.
        let switched_at = self.switched_at();
        if let Some(change) = self.change.take_if(|_| switched_at.is_some()) {
            // A router that was started meanwhile has never heard of the generations that are not used any more.
            if self.router.as_ref().is_some_and(|router| Some(router.since) >= switched_at) {
                self.router_lost();
            }
            match change.origin {
                Origin::Api(reply) => reply.send(Ok(&self.current.document)),
                Origin::Reload(reloading) => reloading.tell_success(now),
                Origin::Start | Origin::Stored | Origin::Nothing => {}
            }
            self.watch_applications();
            self.next_ask(now);
        }
    }

    /// The router cannot serve by the configuration: a bug, as it was checked before.
    pub(crate) fn router_refused(&mut self, version: u64, reason: &str, now: Instant) {
        if version == self.current.version {
            if let Some(router) = &mut self.router {
                router.answer_by = None;
            }
            tracing::error!("the router refused the configuration: {reason}");
            self.switch_back(&format!("the router refused the configuration: {reason}"), now);
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
    pub(crate) fn router_lost(&mut self) {
        if let Some(Change { progress: Progress::Warming(warming), .. }) = &mut self.change {
            warming.router_lost();
        }
        let mut used: Vec<u64> = self.current.generations.values().copied().collect();
        if let Some(change) = &self.change {
            // While the router switches there is a way back: to what was in force before.
            used.extend(change.started.iter().chain(change.next.generations.values()));
        }
        for generation in &mut self.generations {
            if !used.contains(&generation.id()) {
                generation.stop();
            }
        }
    }

    /// Since when the router switches, if it does.
    pub(crate) fn switched_at(&self) -> Option<Instant> {
        match self.change.as_ref()?.progress {
            Progress::Switching { since } => Some(since),
            Progress::Planning(_) | Progress::Booting | Progress::Warming(_) => None,
        }
    }

    /// What is served: until the router has switched, that is the configuration before.
    pub(crate) fn in_force(&self) -> &Current {
        match &self.change {
            Some(change) if matches!(change.progress, Progress::Switching { .. }) => &change.next,
            _ => &self.current,
        }
    }

    /// Forgets generations of which nothing is left.
    pub(crate) fn forget_ended(&mut self) {
        self.generations.retain(|generation| !generation.is_over());
    }

    /// Ends a change that cannot be finished.
    pub(crate) fn fail_change(&mut self, reason: &str, now: Instant) {
        let Some(change) = self.change.take() else { return };
        self.give_up(&change.started);
        match change.origin {
            Origin::Api(reply) => {
                tracing::error!("a new configuration was not put in force: {}", first_line(reason));
                reply.send(Err(reason));
                self.next_ask(now);
            }
            Origin::Reload(reloading) => {
                reloading.tell_failure(first_line(reason));
                self.next_ask(now);
            }
            Origin::Start | Origin::Nothing => self.start_failure = Some(first_line(reason).to_owned()),
            Origin::Stored => {
                let kept = self.state.as_ref().map(State::keep_failed).unwrap_or_default();
                tracing::error!(
                    "the stored configuration does not run; howdah starts with an empty one, and {kept}: {}",
                    first_line(reason)
                );
                self.begin_change(Document::initial(), Configuration::default(), Origin::Nothing, &[], now);
            }
        }
    }

    /// Tells the router of these generations, with their workers.
    pub(crate) fn introduce(&mut self, generations: &[u64]) -> io::Result<()> {
        let Some(supervise::Router { link, .. }) = &mut self.router else { return Ok(()) };
        for generation in self.generations.iter().filter(|generation| generations.contains(&generation.id())) {
            let (boot, descriptors) = generation.for_router()?;
            link.send(ToRouter::Generation(boot), descriptors);
            for worker in generation.workers() {
                link.send(ToRouter::WorkerStarted { generation: generation.id(), worker }, Vec::new());
            }
        }
        Ok(())
    }

    /// Sends the router the configuration in force, with these generations and sockets, which it does not know yet.
    pub(crate) fn configure_router(&mut self, generations: &[u64], listeners: &[u64], now: Instant) -> io::Result<()> {
        let current = &self.current;
        let certificates = self.certificates.for_router(certificates::used(&current.configuration));
        let mut descriptors =
            vec![memory_file(current.document.compact().as_bytes())?, memory_file(certificates.as_bytes())?];
        if let Some(log) = &current.configuration.access_log {
            descriptors.push(logs::open(&log.destination).map_err(io::Error::other)?);
        }
        let configuration = RouterConfiguration {
            version: current.version,
            listeners: current.listeners.clone(),
            generations: current.generations.clone(),
            access_log: current.configuration.access_log.is_some(),
        };
        self.introduce(generations)?;
        let Some(supervise::Router { link, answer_by, .. }) = &mut self.router else { return Ok(()) };
        for id in listeners {
            link.send(ToRouter::Listener { id: *id }, vec![self.listeners.descriptor(*id)?]);
        }
        link.send(ToRouter::Configure(configuration), descriptors);
        *answer_by = Some(now + ROUTER_PATIENCE);
        Ok(())
    }

    fn open_listeners(&mut self, configuration: &Configuration) -> Result<Vec<u64>, String> {
        let chosen_by = if self.start.recognised.is_some() { ChosenBy::Option } else { ChosenBy::Configuration };
        let mut ids = Vec::new();
        for listener in &configuration.listeners {
            let id = match self.listeners.find(&listener.address) {
                Some(id) => Ok(id),
                None => self.listeners.open(&listener.address, listener.backlog, chosen_by),
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
    fn switch(&mut self, now: Instant) {
        let Some(change) = &mut self.change else { return };
        let is_stored = |state: &&State| match change.origin {
            // A reload changes nothing of it, and a full disk is no reason against one.
            Origin::Stored | Origin::Nothing | Origin::Reload(_) => true,
            // It was given at the start, and will be again.
            Origin::Start => state.is_read_only(),
            // A restart changes nothing that is stored.
            Origin::Api(_) => state.is_read_only() && change.next.document.compact() == self.current.document.compact(),
        };
        if let Some(state) = self.state.as_ref().filter(|state| !is_stored(state))
            && let Err(reason) = state.store_configuration(&change.next.document.compact())
        {
            return self.fail_change(&reason, now);
        }
        let progress = std::mem::replace(&mut change.progress, Progress::Switching { since: now });
        let new_listeners: Vec<_> =
            change.next.listeners.iter().filter(|id| !self.current.listeners.contains(id)).copied().collect();
        let is_known = |id: &u64| matches!(&progress, Progress::Warming(warming) if warming.introduced().contains(id));
        let started: Vec<_> = change.started.iter().filter(|id| !is_known(id)).copied().collect();
        std::mem::swap(&mut self.current, &mut change.next);
        if self.router.is_none() {
            return self.start_router_anew(now);
        }
        self.listeners.close_doors(&self.current.listeners);
        if let Err(error) = self.configure_router(&started, &new_listeners, now) {
            self.switch_back(&format!("the router cannot be configured: {error}"), now);
        }
    }

    /// Starts a router with the configuration in force, of which no other router knew the one before.
    fn start_router_anew(&mut self, now: Instant) {
        self.router_due = None;
        self.router_lost();
        if let Err(error) = self.start_router(now) {
            let reason = format!("the router cannot be started: {error}");
            if matches!(self.stage, Stage::Booting) {
                return self.fail_change(&reason, now);
            }
            // The change ends when there is a router at last.
            tracing::error!("{reason}");
            self.router_due = Some(now + self.router_backoff.after_death(Duration::ZERO));
        }
    }

    /// Says what of a new configuration is not as somebody may expect.
    fn warn(&self) {
        let configuration = &self.current.configuration;
        configuration.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        if configuration.settings.listen_threads.is_some_and(|threads| threads != u32::from(self.threads)) {
            tracing::warn!(
                "settings/listen_threads: {} threads run; another number holds when howdah is started again",
                self.threads
            );
        }
    }

    /// The router does not serve by the new configuration: the one before it is in force again.
    pub(crate) fn switch_back(&mut self, reason: &str, now: Instant) {
        let switched_at = self.switched_at();
        let Some(change) = self.change.as_mut().filter(|_| switched_at.is_some()) else { return };
        std::mem::swap(&mut self.current, &mut change.next);
        self.listeners.open_doors();
        let was_there_one = self.current.version > 0;
        if let Some(state) = self.state.as_ref().filter(|_| was_there_one)
            && let Err(problem) = state.store_configuration(&self.current.document.compact())
        {
            tracing::error!("the configuration that was not put in force stays stored: {problem}");
        }
        self.fail_change(reason, now);
    }

    /// Ends what a change had started.
    fn give_up(&mut self, started: &[u64]) {
        for generation in self.generations.iter_mut().filter(|generation| started.contains(&generation.id())) {
            generation.kill();
            if let Some(router) = &mut self.router {
                router.link.send(ToRouter::Forget { generation: generation.id() }, Vec::new());
            }
        }
        self.listeners.keep(&self.current.listeners);
    }
}

/// Without what an application said: it said so on standard error, too.
fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default().trim_end_matches(':')
}
