//! The switch: the last step of a change, in which the router gets the new configuration.
//!
//! It becomes the active one before the router has applied it, so that the next router, should this one die, gets it, too. If no router
//! applies it, the configuration before is active again.

use crate::control::active::ActiveConfiguration;
use crate::control::changes::change::{Change, Origin, Progress};
use crate::control::changes::opened_parts::{METRICS_LISTENER, OpenedParts, option_of_listener};
use crate::control::changes::{Changes, EndedDeploy};
use crate::control::runtime::Runtime;
use crate::control::stage::Stage;
use crate::os::listen::ChosenBy;
use crate::policy::pace::router_timeouts;
use std::collections::BTreeMap;
use std::time::Instant;

/// The meaning of a router's report that it has applied a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configured {
    /// That is not the active configuration any more.
    Outdated,
    /// No change was waiting for it: the configuration was active before.
    Unchanged,
    /// A change is complete.
    Switched,
}

/// How many routers may die over a new configuration before the change fails.
const MAX_ROUTERS_LOST: u32 = 3;

// === impl Changes ===

impl Changes {
    /// Everything new works: it becomes active.
    pub(super) fn switch(&mut self, runtime: &mut Runtime, now: Instant) {
        let prepared = self.set_changed_access(runtime).and_then(|()| self.listen_to_new(runtime));
        if let Err(problem) = prepared.and_then(|()| self.store()) {
            return self.fail(&problem, runtime, now);
        }
        let Some(change) = &mut self.change else { return };
        // The disk may have been slow since `now`.
        change.progress = Progress::Switching { since: Instant::now(), routers_lost: 0 };
        change.next.keep_access_log_of(&self.active);
        std::mem::swap(&mut self.active, &mut change.next);
        if !runtime.router.is_running() {
            return self.start_router(runtime, now);
        }
        runtime.listeners.block_new_connections(&self.active.sockets());
        if let Err(error) = runtime.configure_router(&self.active) {
            self.switch_back(&format!("the router cannot be configured: {error}"), runtime, now);
        }
    }

    /// Sets the access to the sockets of the active configuration that have another one in the next.
    fn set_changed_access(&self, runtime: &Runtime) -> Result<(), String> {
        let Some(Change { next, .. }) = &self.change else { return Ok(()) };
        next.other_access_than(&self.active).try_for_each(|(id, access)| runtime.listeners.set_access(id, access))
    }

    /// Lets clients connect: until now new sockets were only bound, so that no client waited for what boots.
    fn listen_to_new(&mut self, runtime: &mut Runtime) -> Result<(), String> {
        let chosen_by = self.chosen_by();
        let Some(Change { next, origin, .. }) = &mut self.change else { return Ok(()) };
        let mut parts = OpenedParts::of(origin.outlives_missing_parts(), &self.active, &mut next.missing);
        let listeners = next.listeners.iter_mut().zip(&next.configuration.listeners);
        for (id, listener) in listeners.filter(|(id, _)| !self.active.listeners.contains(id)) {
            let listens = runtime.listeners.listen(*id, listener.backlog, chosen_by);
            if parts.take(option_of_listener(listener), listens)?.is_none() {
                *id = runtime.listeners.absent();
            }
        }
        let metrics = next.metrics_listener.filter(|id| self.active.metrics_listener != Some(*id));
        let listens = metrics.map_or(Ok(()), |id| runtime.listeners.listen(id, None, ChosenBy::Metrics));
        if parts.take(METRICS_LISTENER.to_owned(), listens)?.is_none() {
            next.metrics_listener = None;
        }
        Ok(())
    }

    /// Stores the next configuration, unless it is stored already. On a read-only file system, the one of the command
    /// line is not stored: it will be given again.
    fn store(&self) -> Result<(), String> {
        let (Some(state), Some(change)) = (&self.state, &self.change) else { return Ok(()) };
        let is_stored = match &change.origin {
            Origin::Start => state.is_read_only(),
            origin => origin.is_stored(),
        };
        if is_stored { Ok(()) } else { state.store_configuration(&change.next.document.compact()) }
    }

    /// Starts a router with the active configuration, or sets the time for the next attempt.
    pub fn start_router(&mut self, runtime: &mut Runtime, now: Instant) {
        runtime.router.cancel_start();
        self.stop_unused(runtime, now);
        let Err(error) = runtime.start_router(&self.active, now) else { return };
        let reason = format!("the router cannot be started: {error}");
        if matches!(runtime.stage, Stage::Booting) {
            return self.fail(&reason, runtime, now);
        }
        tracing::error!("{reason}");
        runtime.router.retry_start(now);
        self.on_router_lost(runtime, now);
    }

    /// The router has applied the configuration with this version.
    pub fn on_configured(&mut self, version: u64, runtime: &mut Runtime, now: Instant) -> Configured {
        if version != self.active.version {
            return Configured::Outdated;
        }
        runtime.router.on_configured(self.active.sockets_of_router());
        // A router that was restarted reports this, too, while the next change still boots: its sockets are kept then.
        let mut listeners = self.active.sockets();
        let switched = self.change.take_if(|change| change.is_switching());
        listeners.extend(self.change.iter().flat_map(|change| change.next.sockets()));
        runtime.listeners.retain(&listeners);
        if let Some(change) = &switched {
            self.warnings.log(&self.active, runtime, !change.origin.has_active_configuration());
            self.retire_idle_workers(runtime, now);
        }
        for (id, listener) in self.active.listeners.iter().zip(&self.active.configuration.listeners) {
            if let Err(problem) = runtime.listeners.listen(*id, listener.backlog, self.chosen_by()) {
                tracing::warn!("the backlog of a listener stays as it is: {problem}");
            }
        }
        let configured = if switched.is_some() { Configured::Switched } else { Configured::Unchanged };
        let (origin, before) = switched.map(|change| (change.origin, change.next)).unzip();
        match origin {
            Some(Origin::Request(request)) => request.succeed(&self.active.document),
            Some(Origin::Deploy(deploy)) => {
                self.ended_deploys.push(EndedDeploy { deploy, failure: None, rejected: BTreeMap::new() });
            }
            Some(Origin::Retry) => {
                let before = before.unwrap_or_else(ActiveConfiguration::empty);
                let failed = before.failures.into_keys();
                for name in failed.filter(|name| self.active.generations.contains_key(name)) {
                    tracing::info!("the application {name:?} has started");
                }
                for option in before.missing.into_keys().filter(|option| !self.active.missing.contains_key(option)) {
                    tracing::info!("{option}: it works now");
                }
            }
            Some(Origin::Start | Origin::Stored | Origin::Fallback | Origin::Check) | None => {}
        }
        self.stop_unused(runtime, now);
        configured
    }

    /// New requests go to the new generations. The former ones only finish the requests that they have.
    fn retire_idle_workers(&self, runtime: &mut Runtime, now: Instant) {
        for generation in runtime.generations.iter_mut().filter(|generation| self.is_former(generation.id())) {
            generation.on_former(now);
        }
    }

    /// The router rejected the configuration: a bug, because it was validated before.
    pub fn on_rejected(&mut self, version: u64, reason: &str, runtime: &mut Runtime, now: Instant) {
        if version == self.active.version {
            runtime.router.on_rejected();
            tracing::error!("the router rejected the configuration: {reason}");
            self.switch_back(&format!("the router rejected the configuration: {reason}"), runtime, now);
        }
    }

    /// A router died, or could not be started. The next router starts a warm-up again, and a switch goes on with it,
    /// unless too many routers died: the configuration may be the cause.
    pub fn on_router_lost(&mut self, runtime: &mut Runtime, now: Instant) {
        match self.change.as_mut().map(|change| &mut change.progress) {
            Some(Progress::WarmingUp(warm_up)) => warm_up.router_lost(),
            Some(Progress::Switching { routers_lost, .. }) => {
                *routers_lost += 1;
                if *routers_lost >= MAX_ROUTERS_LOST {
                    let reason =
                        format!("the router exited {MAX_ROUTERS_LOST} times before it applied the configuration");
                    self.switch_back(&reason, runtime, now);
                }
            }
            Some(Progress::Planning(_) | Progress::Planned(_) | Progress::Booting { .. }) | None => {}
        }
    }

    /// The router did not apply the new configuration: the one before is active again.
    fn switch_back(&mut self, reason: &str, runtime: &mut Runtime, now: Instant) {
        if !self.change.as_ref().is_some_and(Change::is_switching) {
            return;
        }
        self.fail(reason, runtime, now);
        // The router may be another process than the one that applied it before.
        if matches!(runtime.stage, Stage::Serving)
            && let Err(error) = runtime.configure_router(&self.active)
            && runtime.router.is_running()
        {
            tracing::error!("the former configuration cannot be sent to the router ({error}); killing the router");
            runtime.router.kill();
        }
    }

    /// Makes the configuration before active again, and stores it.
    pub(super) fn swap_back(&mut self, change: &mut Change, runtime: &mut Runtime) {
        change.next.keep_access_log_of(&self.active);
        std::mem::swap(&mut self.active, &mut change.next);
        runtime.listeners.unblock_new_connections();
        let other = self.active.version > 0 && self.active.document.compact() != change.next.document.compact();
        // The next configuration must have a larger version than the one that failed.
        self.active.version = change.next.version + 1;
        if let Some(state) = self.state.as_ref().filter(|_| other)
            && let Err(problem) = state.store_configuration(&self.active.document.compact())
        {
            tracing::error!("the configuration that failed stays stored: {problem}");
        }
    }

    /// Fails a switch that has taken too long.
    pub fn on_time(&mut self, runtime: &mut Runtime, now: Instant) {
        if self.switch_deadline().is_some_and(|at| at <= now) {
            runtime.router.kill_unconfigured();
            let seconds = router_timeouts::switch().as_secs();
            let reason = format!("no router applied the configuration within {seconds} s; see howdah's log");
            self.switch_back(&reason, runtime, now);
        }
    }

    pub(super) fn switch_deadline(&self) -> Option<Instant> {
        match self.change.as_ref()?.progress {
            Progress::Switching { since, .. } => Some(since + router_timeouts::switch()),
            _ => None,
        }
    }

    /// Ends a switch, because howdah shuts down and there will be no router to finish it. The stored
    /// configuration is active from the next start.
    pub fn finish_switch(&mut self) {
        if let Some(change) = self.change.take_if(|change| change.is_switching())
            && let Origin::Request(request) = change.origin
        {
            request.succeed(&self.active.document);
        }
    }
}
