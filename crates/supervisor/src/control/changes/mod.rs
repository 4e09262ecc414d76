//! From one configuration to the next: a transaction, one at a time.
//!
//! Until the router has switched, what ran before is kept ready. A change that fails, or a router that cannot switch,
//! leaves the configuration before active, as if nothing had been requested. A router that dies while it switches is
//! replaced by one with the new configuration, a few times: the configuration may be the cause. The first configuration
//! of a supervisor is a change like any other.

pub mod change;
pub mod change_request;
pub mod opened_parts;
pub mod retries;
pub mod switch;
pub mod warm_up;
pub mod warnings;

use crate::control::active::ActiveConfiguration;
use crate::control::changes::change::{Change, ChangeStep, Deploy, Origin, Progress};
use crate::control::changes::change_request::first_line;
use crate::control::changes::retries::Retries;
use crate::control::changes::warm_up::WarmUp;
use crate::control::changes::warnings::ConfigurationWarnings;
use crate::control::runtime::Runtime;
use crate::control::stage::Stage;
use crate::generation::Generation;
use crate::generation::php::PhpGeneration;
use crate::os::files::logs::AccessLogFile;
use crate::os::listen::ChosenBy;
use crate::plan::application::Plan;
use crate::plan::checked_paths;
use crate::plan::defaults::{Defaults, Strictness};
use crate::plan::planning::{Planned, PlannedParts, Planner};
use crate::store::state_directory::StateDirectory;
use howdah_config::{Application, Configuration, Document};
use howdah_protocol::messages::generation_paths::PinnedLink;
use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll};
use std::time::Instant;

/// The active configuration, and the change in progress.
#[derive(Debug)]
pub struct Changes {
    active: ActiveConfiguration,
    change: Option<Change>,
    /// Where the configuration is stored.
    state: Option<StateDirectory>,
    defaults: Defaults,
    planner: Planner,
    warnings: ConfigurationWarnings,
    /// Why the first configuration does not run.
    start_failure: Option<String>,
    /// Whether a check is complete, and found no failure.
    is_checked: bool,
    /// When the applications that do not start are tried again.
    retries: Retries,
    /// Reloads that have ended since [`Self::take_ended_deploys`].
    ended_deploys: Vec<EndedDeploy>,
}

/// A reload that has ended.
#[derive(Debug)]
pub struct EndedDeploy {
    /// The reload.
    pub deploy: Deploy,
    /// Why it failed; `None` if it did not.
    pub failure: Option<String>,
    /// Where the paths of each application led when its new generation was rejected.
    pub rejected: BTreeMap<String, Vec<PinnedLink>>,
}

// === impl Changes ===

impl Changes {
    /// Before the first configuration.
    pub fn new(state: Option<StateDirectory>, defaults: Defaults, warnings: ConfigurationWarnings) -> Changes {
        Changes {
            active: ActiveConfiguration::empty(),
            change: None,
            state,
            defaults,
            planner: Planner::new(),
            warnings,
            start_failure: None,
            is_checked: false,
            retries: Retries::default(),
            ended_deploys: Vec::new(),
        }
    }

    /// The configuration that a router gets. While one switches, the new one.
    pub fn active(&self) -> &ActiveConfiguration {
        &self.active
    }

    /// The access log of the active configuration.
    pub fn access_log_mut(&mut self) -> Option<&mut AccessLogFile> {
        self.active.access_log.as_mut()
    }

    /// The configuration that is served: until the router has switched, the one before. While howdah boots, nothing is
    /// served before; then it is the configuration that boots.
    pub fn served(&self, stage: Stage) -> &ActiveConfiguration {
        match &self.change {
            Some(change) if change.is_switching() != matches!(stage, Stage::Booting) => &change.next,
            _ => &self.active,
        }
    }

    /// Whether the router switches to another configuration.
    pub fn is_switching(&self) -> bool {
        self.change.as_ref().is_some_and(Change::is_switching)
    }

    /// Whether a change is in progress.
    pub fn is_busy(&self) -> bool {
        self.change.is_some()
    }

    /// Whether this generation drains: it is neither active, nor started by a change, nor active again if the router
    /// cannot switch.
    pub fn is_former(&self, id: u64) -> bool {
        let is_of_change = self.change.as_ref().is_some_and(|change| change.generations().any(|known| known == id));
        !is_of_change && !self.active.has_generation(id)
    }

    /// The origin of the listeners' addresses, for errors.
    fn chosen_by(&self) -> ChosenBy {
        if self.defaults.has_configuration { ChosenBy::Configuration } else { ChosenBy::Option }
    }

    // The steps of a change

    /// Begins a change to this configuration. The applications in `restart` get new generations even if their options
    /// are the same.
    pub fn begin(
        &mut self,
        document: Document,
        configuration: Configuration,
        origin: Origin,
        restart: &[&str],
        now: Instant,
    ) {
        let active = &self.active;
        let is_kept = |name: &str, application: &Application| {
            active.configuration.applications.get(name) == Some(application)
                && active.generations.contains_key(name)
                && !restart.contains(&name)
        };
        // A check looks whether it could get requests again.
        let is_drained = |name: &str| configuration.drained.contains(name) && !matches!(origin, Origin::Check);
        let new = configuration.applications.iter();
        let new = new.filter(|(name, application)| !is_drained(name) && !is_kept(name, application));
        let new: Vec<_> = new.map(|(name, application)| (name.clone(), application.clone())).collect();
        let strictness = if origin.is_stored() { Strictness::Lenient } else { Strictness::Strict };
        // An application that did not start before does not prevent changes of others.
        let is_tolerated = |name: &str, application: &Application| match origin {
            Origin::Start | Origin::Stored | Origin::Check => true,
            _ => {
                active.failures.contains_key(name)
                    && active.configuration.applications.get(name) == Some(application)
                    && !restart.contains(&name)
            }
        };
        let tolerated = configuration.applications.iter().filter(|(name, application)| is_tolerated(name, application));
        let tolerated: BTreeSet<_> = tolerated.map(|(name, _)| name.clone()).collect();
        // A request names the options of the configuration that it sends.
        let has_configuration = self.defaults.has_configuration || matches!(origin, Origin::Request(_));
        let defaults = Defaults { has_configuration, ..self.defaults.clone() };
        let listeners = configuration.listeners.iter();
        let listeners = listeners.map(|listener| (listener.clone(), active.access_of(listener))).collect();
        // The router reads what it can at the start.
        let paths = match origin {
            Origin::Stored => Vec::new(),
            _ if origin.has_active_configuration() => Vec::new(),
            _ => checked_paths::of_change(&configuration, &active.configuration),
        };
        let parts = PlannedParts { applications: new, listeners, paths };
        let planning = self.planner.begin(parts, &tolerated, &defaults, strictness, now);
        let version = active.version + 1;
        let next = ActiveConfiguration { version, document, configuration, ..ActiveConfiguration::empty() };
        let progress = Progress::Planning(planning);
        self.change = Some(Change { next, origin, started: Vec::new(), has_found_parts: false, tolerated, progress });
    }

    /// When [`Self::begin_retry`] has something to do.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retries.at()
    }

    /// Begins another attempt to start the applications that do not start, and to open the parts that are missing, if it is time. No
    /// change must be in progress.
    /// Returns `false` if no attempt is due.
    pub fn begin_retry(&mut self, now: Instant) -> bool {
        let is_due = self.retries.is_due(self.active.is_incomplete(), now);
        if is_due {
            let (document, configuration) = (self.active.document.clone(), self.active.configuration.clone());
            self.begin(document, configuration, Origin::Retry, &[], now);
        }
        is_due
    }

    /// The plans of a change, when they are complete.
    pub fn poll_planned(&mut self, stage: Stage, cx: &mut Context<'_>) -> Poll<Result<Planned, String>> {
        match self.change.as_mut().map(|change| &mut change.progress) {
            Some(Progress::Planning(planning)) if stage.has_changes() => planning.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// The plans of the change are complete, or there are none.
    pub fn on_planned(&mut self, planned: Result<Planned, String>, runtime: &mut Runtime, now: Instant) {
        let Some(change) = &mut self.change else { return };
        match planned {
            Ok(Planned { mut plans, mut failures, sockets }) => {
                change.next.socket_access = sockets;
                if matches!(change.origin, Origin::Retry) {
                    failures.extend(self.retries.hold_back(&mut plans, &self.active, &runtime.generations));
                }
                change.progress = Progress::Planned(plans);
                for (name, reason) in failures {
                    self.leave_out(name, &reason);
                }
            }
            Err(problem) => self.fail(&problem, runtime, now),
        }
    }

    /// Takes all steps that are due.
    ///
    /// # Errors
    /// Why the supervisor cannot start.
    pub fn advance(&mut self, runtime: &mut Runtime, now: Instant) -> Result<(), String> {
        while runtime.stage.has_changes()
            && let Some(change) = &mut self.change
        {
            match change.next_step(runtime, now) {
                ChangeStep::Wait => break,
                ChangeStep::Planned(planned) => self.on_planned(planned, runtime, now),
                ChangeStep::Prepare(plans) => self.prepare(plans, runtime, now),
                ChangeStep::LeaveOut(id, reason) => self.leave_out_generation(id, &reason, runtime),
                ChangeStep::GoOn(id) => Self::go_on(id, runtime),
                ChangeStep::WarmUp(generations) => self.warm_up(&generations, runtime, now),
                ChangeStep::AbandonWarmUp(reason) => self.abandon_warm_up(None, &reason, runtime, now),
                ChangeStep::Checked => self.finish_check(runtime, now),
                ChangeStep::Switch => self.switch(runtime, now),
                ChangeStep::Fail(reason) => self.fail(&reason, runtime, now),
            }
        }
        self.start_failure.take().map_or(Ok(()), Err)
    }

    fn prepare(&mut self, plans: Vec<Plan>, runtime: &mut Runtime, now: Instant) {
        let chosen_by = self.chosen_by();
        let Some(change) = &mut self.change else { return };
        match change.prepare(plans, &self.active, chosen_by, runtime, now) {
            Ok(()) => runtime.generations.on_time(now),
            Err(reason) => self.fail(&reason, runtime, now),
        }
    }

    /// Ends a check. It reports all applications that do not start.
    fn finish_check(&mut self, runtime: &mut Runtime, now: Instant) {
        let failures = self.change.iter().flat_map(|change| change.next.failures.values());
        let failures: Vec<_> = failures.cloned().collect();
        if failures.is_empty() {
            self.is_checked = true;
            self.change = None;
        } else {
            self.fail(&failures.join("; "), runtime, now);
        }
    }

    /// Whether a check is complete, and found no failure.
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Goes on without this application, which does not start.
    fn leave_out(&mut self, name: String, reason: &str) {
        let Some(change) = &mut self.change else { return };
        let reason = first_line(reason).to_owned();
        // Each attempt fails for the same reason, mostly.
        if self.active.failures.get(&name) != Some(&reason) && change.outlives_failures() {
            tracing::error!("{reason}; the requests of {name:?} are answered 503, and howdah tries again");
        }
        change.next.generations.remove(&name);
        change.next.failures.insert(name, reason);
    }

    /// Goes on without this generation, which does not start.
    fn leave_out_generation(&mut self, id: u64, reason: &str, runtime: &mut Runtime) {
        let Some(change) = &mut self.change else { return };
        runtime.discard(&[id]);
        change.started.retain(|started| *started != id);
        let name = runtime.generations.get(id).map(|generation| generation.name().to_owned());
        name.into_iter().for_each(|name| self.leave_out(name, reason));
    }

    /// Goes on with the processes of this generation that are ready.
    fn go_on(id: u64, runtime: &mut Runtime) {
        let Some(generation) = runtime.generations.get_mut(id) else { return };
        let name = generation.name();
        tracing::warn!(
            "the application {name:?}: not all of its processes are ready in time; the change does not wait for them any longer"
        );
        generation.go_on();
    }

    fn warm_up(&mut self, generations: &BTreeSet<u64>, runtime: &mut Runtime, now: Instant) {
        let all = runtime.generations.iter_mut().filter_map(Generation::as_php_mut);
        all.filter(|generation| generations.contains(&generation.id())).for_each(PhpGeneration::begin_warm_up);
        if let Err(error) = runtime.order_warm_up(generations, now) {
            self.fail(&format!("the warm-up cannot be sent to the router: {error}"), runtime, now);
        }
    }

    /// The router reports the result of a warm-up.
    pub fn on_warm_up_ended(&mut self, id: u64, failure: Option<String>, runtime: &mut Runtime, now: Instant) {
        // It may be the result of a change that has ended.
        let Some(warm_up) = self.warm_up_mut().filter(|warm_up| warm_up.pending().contains(&id)) else { return };
        let Some(failure) = failure else { return warm_up.finish(id) };
        let Some(generation) = runtime.generations.php_mut(id) else { return };
        let name = generation.name();
        let mut reason = format!("the application {name:?} did not pass its warm-up: {failure}");
        let output = generation.warm_up_output();
        if !output.is_empty() {
            reason.push_str(":\n");
            reason.push_str(&output);
        }
        self.abandon_warm_up(Some(id), &reason, runtime, now);
    }

    /// This generation, or all that are pending, did not pass. If nothing else can be served, they serve all the same.
    fn abandon_warm_up(&mut self, id: Option<u64>, reason: &str, runtime: &mut Runtime, now: Instant) {
        if self.change.as_ref().is_some_and(|change| change.origin.has_alternative()) {
            return self.fail(reason, runtime, now);
        }
        let Some(warm_up) = self.warm_up_mut() else { return };
        tracing::error!("{}; nothing else can be served, so it serves all the same", first_line(reason));
        match id {
            Some(id) => warm_up.finish(id),
            None => warm_up.finish_all(),
        }
    }

    fn warm_up_mut(&mut self) -> Option<&mut WarmUp> {
        match &mut self.change.as_mut()?.progress {
            Progress::WarmingUp(warm_up) => Some(warm_up),
            _ => None,
        }
    }

    // Time, and the end of a change

    /// When [`Self::advance`] or [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.change.as_ref().and_then(Change::deadline).into_iter().chain(self.switch_deadline()).min()
    }

    /// Stops the generations that no configuration names and no router uses. While the router switches, it may have to
    /// switch back.
    pub fn stop_unused(&self, runtime: &mut Runtime, now: Instant) {
        let mut used = runtime.router.known().generations;
        used.extend(self.active.generations.values());
        used.extend(self.change.iter().flat_map(Change::generations));
        runtime.generations.stop_all_but(&used, now);
    }

    /// Fails a change that has not reached the router, because howdah shuts down.
    pub fn fail_unswitched(&mut self, reason: &str, runtime: &mut Runtime, now: Instant) {
        if self.change.as_ref().is_some_and(|change| !change.is_switching()) {
            self.fail(reason, runtime, now);
        }
    }

    /// The reloads that have ended, once.
    pub fn take_ended_deploys(&mut self) -> Vec<EndedDeploy> {
        std::mem::take(&mut self.ended_deploys)
    }

    /// Ends a change that cannot be finished. The configuration before is active, and stored.
    pub fn fail(&mut self, reason: &str, runtime: &mut Runtime, now: Instant) {
        let Some(mut change) = self.change.take() else { return };
        if change.is_switching() {
            self.swap_back(&mut change, runtime);
        }
        for (id, access) in self.active.other_access_than(&change.next) {
            if let Err(problem) = runtime.listeners.set_access(id, access) {
                tracing::error!("the former access to a socket cannot be restored: {problem}");
            }
        }
        runtime.discard(&change.started);
        runtime.listeners.retain(&self.active.sockets());
        match change.origin {
            Origin::Request(request) => request.fail(reason),
            Origin::Deploy(deploy) => {
                let started = change.started.iter().filter_map(|id| runtime.generations.get(*id));
                let rejected = started.map(|new| (new.name().to_owned(), new.release().led_to.clone())).collect();
                let failure = Some(first_line(reason).to_owned());
                self.ended_deploys.push(EndedDeploy { deploy, failure, rejected });
            }
            Origin::Retry => {}
            Origin::Start | Origin::Fallback | Origin::Check => {
                self.start_failure = Some(first_line(reason).to_owned())
            }
            Origin::Stored => {
                let kept = self.state.as_ref().map(StateDirectory::keep_failed).unwrap_or_default();
                tracing::error!(
                    "the stored configuration does not run; howdah starts with an empty one, and {kept}: {}",
                    first_line(reason)
                );
                self.begin(Document::initial(), Configuration::default(), Origin::Fallback, &[], now);
            }
        }
    }
}
