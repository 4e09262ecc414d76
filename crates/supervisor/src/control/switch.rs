//! The last step of a change: the router serves by the new configuration, or by the one before it as if nothing had been
//! asked. Until it has switched, what was before is kept ready.
//!
//! A router that dies meanwhile is replaced by one with the new configuration, but not for ever: perhaps it is what they die
//! of.

use crate::boot::banner;
use crate::control::change::{Change, Origin, Progress};
use crate::control::stage::Stage;
use crate::event_loop::Supervisor;
use crate::os::reap;
use crate::store::state_directory::StateDirectory;
use std::time::Instant;

/// A configuration over which so many routers die is given up.
const ROUTERS_LOST_AT_MOST: u32 = 3;

// === impl Supervisor ===

impl Supervisor {
    /// All that is new works: from now on it is in force.
    pub(crate) fn switch(&mut self, now: Instant) {
        if let Err(problem) = self.listen_to_new() {
            return self.fail_change(&problem, now);
        }
        let Some(change) = &mut self.change else { return };
        let is_stored = |state: &&StateDirectory| match &change.origin {
            // It was given at the start, and will be again.
            Origin::Start => state.is_read_only(),
            origin => origin.is_stored(),
        };
        if let Some(state) = self.state.as_ref().filter(|state| !is_stored(state))
            && let Err(reason) = state.store_configuration(&change.next.document.compact())
        {
            return self.fail_change(&reason, now);
        }
        change.progress = Progress::Switching { since: now, routers_lost: 0 };
        change.next.keep_log_of(&self.current);
        std::mem::swap(&mut self.current, &mut change.next);
        if self.router.is_none() {
            return self.start_router_or_wait(now);
        }
        self.listeners.block_new_connections(&self.current.listeners);
        if let Err(error) = self.configure_router(now) {
            self.switch_back(&format!("the router cannot be configured: {error}"), now);
        }
    }

    /// Since when the router switches, if it does.
    pub(crate) fn switched_at(&self) -> Option<Instant> {
        match self.change.as_ref()?.progress {
            Progress::Switching { since, .. } => Some(since),
            Progress::Planning(_) | Progress::Booting | Progress::Warming(_) => None,
        }
    }

    /// The router serves by the configuration with this number.
    pub(crate) fn configured(&mut self, version: u64, now: Instant) {
        if version != self.current.version {
            return;
        }
        if let Some(router) = &mut self.router {
            router.answer_by = None;
            router.has_served = true;
            router.known.listeners = self.current.listeners.iter().copied().collect();
        }
        // A router that was started again says so, too, while the next change still boots: then its sockets are kept.
        let mut listeners = self.current.listeners.clone();
        let switched = self.change.take_if(|change| change.is_switching());
        listeners.extend(self.change.iter().flat_map(|change| &change.next.listeners));
        self.listeners.keep(&listeners);
        if switched.is_some() {
            self.warn();
            self.let_former_workers_go(now);
        }
        for (id, listener) in self.current.listeners.iter().zip(&self.current.configuration.listeners) {
            if let Err(problem) = self.listeners.listen(*id, listener.backlog, self.chosen_by()) {
                tracing::warn!("the backlog of a listener stays as it is: {problem}");
            }
        }
        if matches!(self.stage, Stage::Booting) {
            self.stage = Stage::Serving;
            tracing::info!(concat!("howdah ", env!("CARGO_PKG_VERSION"), " serves"));
            banner::print(&self.start, &self.listeners, &self.current, &self.generations);
        }
        if let Some(change) = switched {
            match change.origin {
                Origin::Api(reply) => reply.send(Ok(&self.current.document)),
                Origin::Reload(reloading) => reloading.tell_success(now),
                Origin::Start | Origin::Stored | Origin::Nothing => {}
            }
            self.watch_applications();
        }
        self.stop_unused(now);
    }

    /// What is left to former generations are the requests under way: new ones turn to the new.
    fn let_former_workers_go(&mut self, now: Instant) {
        let former: Vec<_> =
            self.generations.iter().map(|generation| generation.id()).filter(|id| self.is_former(*id)).collect();
        for generation in self.generations.iter_mut().filter(|generation| former.contains(&generation.id())) {
            generation.let_idle_workers_go(now);
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

    /// A router died, or could not be started: a warm-up begins anew with the next one, and a switch goes on. Perhaps it is
    /// the configuration that it dies of.
    pub(crate) fn change_lost_a_router(&mut self, now: Instant) {
        match self.change.as_mut().map(|change| &mut change.progress) {
            Some(Progress::Warming(warming)) => warming.router_lost(),
            Some(Progress::Switching { routers_lost, .. }) => {
                *routers_lost += 1;
                if *routers_lost >= ROUTERS_LOST_AT_MOST {
                    let reason = format!("the router ended {ROUTERS_LOST_AT_MOST} times before it served by it");
                    self.switch_back(&reason, now);
                }
            }
            Some(Progress::Planning(_) | Progress::Booting) | None => {}
        }
    }

    /// The router uses this generation no more.
    pub(crate) fn released(&mut self, id: u64, now: Instant) {
        if let Some(router) = &mut self.router {
            router.known.generations.remove(&id);
        }
        self.stop_unused(now);
    }

    /// There will be no router to finish the change, as all ends. What is stored is in force from the next start.
    pub(crate) fn end_switching(&mut self) {
        if let Some(change) = self.change.take_if(|change| change.is_switching())
            && let Origin::Api(reply) = change.origin
        {
            reply.send(Ok(&self.current.document));
        }
    }

    /// The router does not serve by the new configuration: the one before it is in force again.
    pub(crate) fn switch_back(&mut self, reason: &str, now: Instant) {
        if !self.change.as_ref().is_some_and(Change::is_switching) {
            return;
        }
        self.fail_change(reason, now);
        // It may be another one than the one that served by it before.
        if matches!(self.stage, Stage::Serving)
            && let Err(error) = self.configure_router(now)
            && let Some(router) = &self.router
        {
            tracing::error!("the router cannot be told of the configuration before; it is replaced: {error}");
            reap::kill(router.pid);
        }
    }

    /// What was before a change that the router does not carry out is current again, and stored.
    pub(crate) fn swap_back(&mut self, change: &mut Change) {
        change.next.keep_log_of(&self.current);
        std::mem::swap(&mut self.current, &mut change.next);
        self.listeners.unblock_new_connections();
        let other = self.current.version > 0 && self.current.document.compact() != change.next.document.compact();
        // What comes now is newer than what failed.
        self.current.version = change.next.version + 1;
        if let Some(state) = self.state.as_ref().filter(|_| other)
            && let Err(problem) = state.store_configuration(&self.current.document.compact())
        {
            tracing::error!("the configuration that was not put in force stays stored: {problem}");
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
}
