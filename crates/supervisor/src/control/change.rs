//! From one configuration to the next: a transaction.
//!
//! What is new is planned, started, proven and warmed beside what runs; then the router switches; then what is old ends. An
//! application whose options did not change keeps its processes, a listener its socket. Whatever fails on the way ends the
//! change, and nothing has happened. The first configuration of a supervisor is a change like any other.

use crate::api::{Asked, Reply};
use crate::control::reload::Reloading;
use crate::control::stage::Stage;
use crate::control::warming::Warming;
use crate::event_loop::Supervisor;
use crate::generation::Generation;
use crate::os::listen::ChosenBy;
use crate::os::logs::AccessLog;
use crate::plan::application::Plan;
use crate::plan::application::{Strictness, check_settings};
use crate::plan::planning::Planning;
use crate::store::state_directory::StateDirectory;
use howdah_config::{Application, Configuration, Document};
use howdah_protocol::router_messages::ToRouter;
use std::collections::BTreeMap;
use std::task::{Context, Poll};
use std::time::Instant;

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
    /// The access log, as long as it is configured: a router that is started again writes to the same.
    pub access_log: Option<AccessLog>,
}

/// A change under way.
#[derive(Debug)]
pub struct Change {
    /// What shall be in force; while the router switches, what was before.
    pub(crate) next: Current,
    pub(crate) origin: Origin,
    /// The generations that it starts.
    pub(crate) started: Vec<u64>,
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
    /// The router switches, since then. Only if it cannot there is a way back; so many have died over it.
    Switching { since: Instant, routers_lost: u32 },
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

// === impl Origin ===

impl Origin {
    /// Whether the configuration is one that is stored already. A reload and a restart change nothing of it, and a full disk
    /// is no reason against one.
    pub(crate) fn is_stored(&self) -> bool {
        match self {
            Origin::Stored | Origin::Nothing | Origin::Reload(_) => true,
            Origin::Api(Reply { asked: Asked::Restart(_), .. }) => true,
            Origin::Api(Reply { asked: Asked::Configuration(_), .. }) | Origin::Start => false,
        }
    }
}

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

    /// The access log may have been opened again in the other one meanwhile: if it is the same, it is kept.
    pub(crate) fn keep_log_of(&mut self, other: &Current) {
        if let (Some(log), Some(known)) = (&mut self.access_log, &other.access_log)
            && log.is_same_as(known)
        {
            log.clone_from(known);
        }
    }
}

// === impl Change ===

impl Change {
    /// Those that it starts, and those of the configuration that is not in force: the next one, or the one before.
    pub(crate) fn generations(&self) -> impl Iterator<Item = u64> {
        self.started.iter().chain(self.next.generations.values()).copied()
    }

    pub(crate) fn is_switching(&self) -> bool {
        matches!(self.progress, Progress::Switching { .. })
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
        let strictness = if origin.is_stored() { Strictness::AsStored } else { Strictness::AsAsked };
        let planning = match has_new {
            true => Progress::Planning(Planning::begin(new, &self.defaults, strictness, now)),
            false => Progress::Booting,
        };
        let version = current.version + 1;
        self.change = Some(Change {
            next: Current { version, document, configuration, ..Current::nothing() },
            origin,
            started: Vec::new(),
            progress: planning,
        });
        if !has_new {
            self.planned(Ok(Vec::new()), now);
        }
    }

    /// Goes on with a change: takes its addresses, starts its new generations.
    pub(crate) fn planned(&mut self, plans: Result<Vec<Plan>, String>, now: Instant) {
        if !matches!(self.stage, Stage::Booting | Stage::Serving) {
            return;
        }
        let Some(mut change) = self.change.take() else { return };
        let prepared = plans.and_then(|plans| self.prepare(&change.next.configuration, plans, now));
        change.progress = Progress::Booting;
        let failure = match prepared {
            Ok(Prepared { generations, started, listeners, access_log }) => {
                change.next = Current { generations, listeners, access_log, ..change.next };
                change.started = started;
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

    fn prepare(&mut self, configuration: &Configuration, plans: Vec<Plan>, now: Instant) -> Result<Prepared, String> {
        let is_new = |name: &str| plans.iter().any(|plan| plan.name == name);
        let kept = configuration.applications.keys().filter(|name| !is_new(name));
        let kept = kept.filter_map(|name| Some((name.clone(), *self.current.generations.get(name)?)));
        let mut generations: BTreeMap<String, u64> = kept.collect();
        check_settings(&configuration.settings)?;
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

    /// Takes the next steps of a change, as far as it is time for them.
    ///
    /// # Errors
    /// Why the supervisor cannot start.
    pub(crate) fn go_on_changing(&mut self, now: Instant) -> Result<(), String> {
        loop {
            match self.next_step(now) {
                Step::Wait => break,
                Step::Warm => self.warm(now),
                Step::GiveWarmUpUp(reason) => self.give_warm_up_up(None, &reason, now),
                Step::Switch => self.switch(now),
                Step::Fail(reason) => self.fail_change(&reason, now),
            }
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
            // At the end nobody waits for plans any more.
            Some(Progress::Planning(planning)) if matches!(self.stage, Stage::Booting | Stage::Serving) => {
                planning.poll(cx)
            }
            _ => Poll::Pending,
        }
    }

    /// Nobody waits for a change that boots any more, as all ends.
    pub(crate) fn fail_booting(&mut self, reason: &str, now: Instant) {
        if self.change.as_ref().is_some_and(|change| !change.is_switching()) {
            self.fail_change(reason, now);
        }
    }

    /// What is served: until the router has switched, the configuration before. While howdah starts there is none; then it
    /// is what shall be served.
    pub(crate) fn in_force(&self) -> &Current {
        match &self.change {
            Some(change) if change.is_switching() != matches!(self.stage, Stage::Booting) => &change.next,
            _ => &self.current,
        }
    }

    /// Whether this generation is none of those in force, being started, or in force again if the router cannot switch: it
    /// ends.
    pub(crate) fn is_former(&self, id: u64) -> bool {
        let is_of_change = self.change.as_ref().is_some_and(|change| change.generations().any(|known| known == id));
        !is_of_change && !self.current.generations.values().any(|current| *current == id)
    }

    /// Forgets generations of which nothing is left.
    pub(crate) fn forget_ended(&mut self) {
        self.generations.retain(|generation| !generation.is_over());
    }

    /// Ends a change that cannot be finished. What was before it is in force, and stored.
    pub(crate) fn fail_change(&mut self, reason: &str, now: Instant) {
        let Some(mut change) = self.change.take() else { return };
        if change.is_switching() {
            self.swap_back(&mut change);
        }
        self.give_up(&change.started);
        match change.origin {
            Origin::Api(reply) => reply.send(Err(reason)),
            Origin::Reload(reloading) => self.reload_failed(&reloading, &change.started, first_line(reason)),
            Origin::Start | Origin::Nothing => self.start_failure = Some(first_line(reason).to_owned()),
            Origin::Stored => {
                let kept = self.state.as_ref().map(StateDirectory::keep_failed).unwrap_or_default();
                tracing::error!(
                    "the stored configuration does not run; howdah starts with an empty one, and {kept}: {}",
                    first_line(reason)
                );
                self.begin_change(Document::initial(), Configuration::default(), Origin::Nothing, &[], now);
            }
        }
    }

    pub(crate) fn chosen_by(&self) -> ChosenBy {
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

    /// Ends what a change had started.
    fn give_up(&mut self, started: &[u64]) {
        for generation in self.generations.iter_mut().filter(|generation| started.contains(&generation.id())) {
            generation.kill();
            if let Some(router) = &mut self.router {
                router.link.send(ToRouter::DropGeneration { generation: generation.id() }, Vec::new());
            }
        }
        self.listeners.keep(&self.current.listeners);
    }
}

/// Without what an application said: it said so on standard error, too.
pub(crate) fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default().trim_end_matches(':')
}
