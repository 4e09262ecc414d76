//! From one configuration to the next: a transaction.
//!
//! What is new is started and proven beside what runs; then the router switches; then what is old ends. An application
//! whose options did not change keeps its processes, a listener its socket. Whatever fails on the way ends the change,
//! and nothing has happened. The first configuration of a supervisor is a change like any other.

use crate::api::Reply;
use crate::banner;
use crate::generation::Generation;
use crate::listen::ChosenBy;
use crate::logs::AccessLog;
use crate::plan::plan;
use crate::reap;
use crate::shutdown::Stage;
use crate::supervise::Supervisor;
use howdah_config::{Configuration, Document};
use std::collections::BTreeMap;
use std::time::Instant;

/// The configuration in force.
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
    /// The access log, as long as it is configured: a router that is started again writes to the same.
    pub access_log: Option<AccessLog>,
}

/// A change under way.
#[derive(Debug)]
pub struct Change {
    next: Current,
    origin: Origin,
    /// The generations that it starts.
    started: Vec<u64>,
    progress: Progress,
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
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// New generations start. A generation that does not fails by itself after a while.
    Booting,
    /// The router switches. Only if it cannot there is a way back; so many have died over it.
    Switching { routers_lost: u32 },
}

/// What a change does next.
enum Step {
    Wait,
    Switch,
    Fail(String),
}

/// What a change needs before it starts anything.
#[derive(Default)]
struct Prepared {
    /// The generation of each application.
    generations: BTreeMap<String, u64>,
    /// Those of them that are new.
    started: Vec<u64>,
    listeners: Vec<u64>,
    access_log: Option<AccessLog>,
}

/// A configuration over which so many routers die is given up.
const ROUTERS_LOST_AT_MOST: u32 = 3;

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
            access_log: None,
        }
    }
}

// === impl Change ===

impl Change {
    /// Those that it starts, and those of the configuration that is not in force: the next one, or the one before.
    pub(crate) fn generations(&self) -> impl Iterator<Item = u64> {
        self.started.iter().chain(self.next.generations.values()).copied()
    }

    fn is_switching(&self) -> bool {
        matches!(self.progress, Progress::Switching { .. })
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Begins a change: checks it against the machine, opens its sockets, starts its new generations. The application
    /// `restart` gets a new generation, too. How it ends is told to its origin.
    pub(crate) fn begin_change(
        &mut self,
        document: Document,
        configuration: Configuration,
        origin: Origin,
        restart: Option<&str>,
        now: Instant,
    ) {
        let prepared = self.prepare(&configuration, restart, now);
        let (prepared, failure) = match prepared {
            Ok(prepared) => (prepared, None),
            Err(failure) => (Prepared::default(), Some(failure)),
        };
        let Prepared { generations, started, listeners, access_log } = prepared;
        let version = self.current.version + 1;
        self.change = Some(Change {
            next: Current { version, document, configuration, generations, listeners, access_log },
            origin,
            started,
            progress: Progress::Booting,
        });
        match failure {
            Some(reason) => self.fail_change(&reason, now),
            None => self.generations.iter_mut().for_each(|generation| generation.on_time(now)),
        }
    }

    fn prepare(
        &mut self,
        configuration: &Configuration,
        restart: Option<&str>,
        now: Instant,
    ) -> Result<Prepared, String> {
        let mut plans = Vec::new();
        let mut generations = BTreeMap::new();
        for (name, application) in &configuration.applications {
            let kept = self.current.configuration.applications.get(name) == Some(application)
                && restart != Some(name.as_str());
            match self.current.generations.get(name).filter(|_| kept) {
                Some(id) => drop(generations.insert(name.clone(), *id)),
                None => plans.push(plan(name, application, &self.start, self.cores)?),
            }
        }
        let destination = configuration.access_log.as_ref().map(|log| &log.destination);
        let open = self.current.access_log.as_ref();
        let access_log = destination.map(|destination| match open.filter(|log| log.writes_to(destination)) {
            Some(log) => Ok(log.clone()),
            None => AccessLog::open(destination),
        });
        let access_log = access_log.transpose()?;
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
        Ok(Prepared { generations, started, listeners, access_log })
    }

    /// Takes the next step of a change, if it is time for it.
    ///
    /// # Errors
    /// Why the supervisor cannot start.
    pub(crate) fn go_on_changing(&mut self, now: Instant) -> Result<(), String> {
        match self.next_step() {
            Step::Wait => {}
            Step::Switch => self.switch(now),
            Step::Fail(reason) => self.fail_change(&reason, now),
        }
        self.start_failure.take().map_or(Ok(()), Err)
    }

    fn next_step(&self) -> Step {
        let Some(Change { started, progress: Progress::Booting, .. }) = &self.change else { return Step::Wait };
        if !matches!(self.stage, Stage::Booting | Stage::Serving) {
            // What it had started ends, like all else.
            return Step::Wait;
        }
        let new = || self.generations.iter().filter(|generation| started.contains(&generation.id()));
        if let Some((name, reason)) = new().find_map(|new| Some((new.name(), new.failure()?))) {
            return Step::Fail(format!("the application {name:?} does not start: {reason}"));
        }
        if new().all(Generation::is_proven) { Step::Switch } else { Step::Wait }
    }

    /// The router serves by the configuration with this number.
    pub(crate) fn configured(&mut self, version: u64, now: Instant) {
        if version != self.current.version {
            return;
        }
        self.listeners.keep(&self.current.listeners);
        if let Some(router) = &mut self.router {
            router.known.listeners = self.current.listeners.iter().copied().collect();
        }
        if matches!(&self.change, Some(change) if change.is_switching()) {
            self.warn();
        }
        for (id, listener) in self.current.listeners.iter().zip(&self.current.configuration.listeners) {
            if let Err(problem) = self.listeners.listen(*id, listener.backlog, self.chosen_by()) {
                tracing::warn!("the backlog of a listener stays as it is: {problem}");
            }
        }
        if matches!(self.stage, Stage::Booting) {
            self.stage = Stage::Serving;
            banner::print(&self.start, &self.listeners, &self.current, &self.generations);
        }
        // A router that was started again says so, too, while the next change still boots.
        if let Some(change) = self.change.take_if(|change| change.is_switching())
            && let Origin::Api(reply) = change.origin
        {
            reply.send(Ok(&self.current.document));
        }
        self.stop_unused(now);
    }

    /// The router cannot serve by the configuration: a bug, as it was checked before.
    pub(crate) fn router_refused(&mut self, version: u64, reason: &str, now: Instant) {
        if version == self.current.version {
            tracing::error!("the router refused the configuration: {reason}");
            self.switch_back(&format!("the router refused the configuration: {reason}"), now);
        }
    }

    /// A router died, or could not be started. Perhaps it is the configuration that it dies of.
    pub(crate) fn switch_lost_a_router(&mut self, now: Instant) {
        let Some(Change { progress: Progress::Switching { routers_lost }, .. }) = &mut self.change else { return };
        *routers_lost += 1;
        if *routers_lost >= ROUTERS_LOST_AT_MOST {
            let reason = format!("the router ended {ROUTERS_LOST_AT_MOST} times before it served by it");
            self.switch_back(&reason, now);
        }
    }

    /// There will be no router to finish the change, as all ends. What is stored is in force from the next start.
    pub(crate) fn end_switching(&mut self) {
        if let Some(change) = self.change.take_if(|change| change.is_switching())
            && let Origin::Api(reply) = change.origin
        {
            reply.send(Ok(&self.current.document));
        }
    }

    /// Nobody waits for a change that boots any more, as all ends.
    pub(crate) fn fail_booting(&mut self, reason: &str, now: Instant) {
        if self.change.as_ref().is_some_and(|change| !change.is_switching()) {
            self.fail_change(reason, now);
        }
    }

    /// What is in force, or while howdah starts what shall be.
    pub(crate) fn shown(&self) -> &Current {
        match (&self.change, self.stage) {
            (Some(change), Stage::Booting) if !change.is_switching() => &change.next,
            _ => &self.current,
        }
    }

    /// The router uses this generation no more.
    pub(crate) fn released(&mut self, id: u64, now: Instant) {
        if let Some(router) = &mut self.router {
            router.known.generations.remove(&id);
        }
        self.stop_unused(now);
    }

    /// Whether this generation is none of those in force or being started: it ends.
    pub(crate) fn is_former(&self, id: u64) -> bool {
        let started = self.change.as_ref().is_some_and(|change| change.started.contains(&id));
        !started && !self.current.generations.values().any(|current| *current == id)
    }

    /// Forgets generations of which nothing is left.
    pub(crate) fn forget_ended(&mut self) {
        self.generations.retain(|generation| !generation.is_over());
    }

    /// Ends a change that cannot be finished. What was before it is in force, and stored.
    pub(crate) fn fail_change(&mut self, reason: &str, now: Instant) {
        let Some(mut change) = self.change.take() else { return };
        if change.is_switching() {
            std::mem::swap(&mut self.current, &mut change.next);
            let was_there_one = self.current.version > 0;
            // What comes now is newer than what failed.
            self.current.version = change.next.version + 1;
            if let Some(state) = self.state.as_ref().filter(|_| was_there_one)
                && let Err(problem) = state.store_configuration(&self.current.document.compact())
            {
                tracing::error!("the configuration that was not put in force stays stored: {problem}");
            }
        }
        self.give_up(&change.started);
        match change.origin {
            Origin::Api(reply) => {
                tracing::error!("a new configuration was not put in force: {}", first_line(reason));
                reply.send(Err(reason));
            }
            Origin::Start | Origin::Nothing => self.start_failure = Some(first_line(reason).to_owned()),
            Origin::Stored => {
                tracing::error!(
                    "the stored configuration does not run; howdah starts with an empty one: {}",
                    first_line(reason)
                );
                self.begin_change(Document::initial(), Configuration::default(), Origin::Nothing, None, now);
            }
        }
    }

    fn chosen_by(&self) -> ChosenBy {
        if self.start.recognised.is_some() { ChosenBy::Option } else { ChosenBy::Configuration }
    }

    fn open_listeners(&mut self, configuration: &Configuration) -> Result<Vec<u64>, String> {
        let chosen_by = self.chosen_by();
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
    fn switch(&mut self, now: Instant) {
        if let Err(problem) = self.listen_to_new() {
            return self.fail_change(&problem, now);
        }
        let Some(change) = &mut self.change else { return };
        let is_stored = matches!(change.origin, Origin::Stored | Origin::Nothing);
        if let Some(state) = self.state.as_ref().filter(|_| !is_stored)
            && let Err(reason) = state.store_configuration(&change.next.document.compact())
        {
            return self.fail_change(&reason, now);
        }
        change.progress = Progress::Switching { routers_lost: 0 };
        if let (Some(current), Some(next)) = (&self.current.access_log, &mut change.next.access_log)
            && current.is_same_as(next)
        {
            // It may have been opened again meanwhile.
            next.clone_from(current);
        }
        std::mem::swap(&mut self.current, &mut change.next);
        if self.router.is_none() {
            return self.start_router_or_wait(now);
        }
        if let Err(error) = self.configure_router() {
            self.switch_back(&format!("the router cannot be configured: {error}"), now);
        }
    }

    /// Clients may come: new sockets were only bound until now, so that nobody waited for what boots.
    fn listen_to_new(&self) -> Result<(), String> {
        let Some(Change { next, .. }) = &self.change else { return Ok(()) };
        let listeners = next.listeners.iter().zip(&next.configuration.listeners);
        let mut new = listeners.filter(|(id, _)| !self.current.listeners.contains(id));
        new.try_for_each(|(id, listener)| self.listeners.listen(*id, listener.backlog, self.chosen_by()))
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
    fn switch_back(&mut self, reason: &str, now: Instant) {
        if !self.change.as_ref().is_some_and(Change::is_switching) {
            return;
        }
        self.fail_change(reason, now);
        // It may be another one than the one that served by it before.
        if matches!(self.stage, Stage::Serving)
            && let Err(error) = self.configure_router()
            && let Some(router) = &self.router
        {
            tracing::error!("the router cannot be told of the configuration before; it is replaced: {error}");
            reap::kill(router.pid);
        }
    }

    /// Ends what a change had started.
    fn give_up(&mut self, started: &[u64]) {
        for generation in self.generations.iter_mut().filter(|generation| started.contains(&generation.id())) {
            generation.kill();
        }
        self.listeners.keep(&self.current.listeners);
    }
}

/// Without what an application said: it said so on standard error, too.
fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default().trim_end_matches(':')
}
