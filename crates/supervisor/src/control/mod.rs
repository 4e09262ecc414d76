//! One change at a time, and the processes that it acts on.
//!
//! [`Control`] owns the parts and passes events from one to the other. Each part owns its state:
//!
//! - [`changes`]: the active configuration and the change in progress
//! - [`deploys`]: applications that are reloaded because a new release or file was found
//! - [`runtime`]: the generations, the listening sockets, and the other [processes]
//! - [`shutdown`]: the [stages](stage) in which everything exits
//!
//! A change that fails leaves what ran before. If the configuration of the command line fails, the supervisor exits, with
//! one line; if a stored one fails, it starts with an empty one. At the start, an application that does not start does
//! not hold the others down: its requests are answered 503, and it is [tried again](changes::retries).

pub mod active;
pub mod changes;
pub mod deploys;
pub mod processes;
pub mod runtime;
mod shutdown;
pub mod stage;

use crate::generation::{Generation, GenerationEvent};
use crate::os::processes::reap;
use crate::os::system_error::error_text;
use crate::plan::planning::Planned;
use crate::store::certificates;
use active::ActiveConfiguration;
use changes::Changes;
use changes::switch::Configured;
use deploys::Deploys;
use deploys::watch::DeployNotice;
use howdah_protocol::messages::acme::FromAcme;
use howdah_protocol::messages::exporter::FromExporter;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::router::{FromRouter, ToRouter};
use runtime::Runtime;
use rustix::process::Signal;
use stage::Stage;
use std::task::{Context, Poll};
use std::time::Instant;

/// Everything that the control API and the signals act on.
#[derive(Debug)]
pub struct Control {
    /// The configuration, and its change.
    pub changes: Changes,
    /// The deploys.
    pub deploys: Deploys,
    /// The processes and sockets.
    pub runtime: Runtime,
    /// Messages of the router are read before events of the generations. The two take turns.
    reads_router_first: bool,
}

/// The events of [`Control`], besides time and signals.
#[derive(Debug)]
pub enum ControlEvent {
    /// The plans of a change are complete.
    Planned(Result<Planned, String>),
    /// A deploy was found.
    Notice(DeployNotice),
    /// A message of the process that obtains certificates; `None` when it has closed its socket.
    Acme(Option<FromAcme>),
    /// A message of the router; `None` when it has closed its socket.
    Router(Option<FromRouter>),
    /// A message of the process of the metrics listener; `None` when it has closed its socket.
    Exporter(Option<FromExporter>),
    /// An event of the processes of this generation.
    Generation(u64, GenerationEvent),
}

// === impl Control ===

impl Control {
    /// Without a configuration.
    pub fn new(changes: Changes, runtime: Runtime) -> Control {
        Control { changes, deploys: Deploys::new(), runtime, reads_router_first: true }
    }

    /// The configuration that is served.
    pub fn served(&self) -> &ActiveConfiguration {
        self.changes.served(self.runtime.stage)
    }

    /// The generation that serves this application.
    pub fn served_generation(&self, name: &str) -> Option<&Generation> {
        self.runtime.generations.get(*self.served().generations.get(name)?)
    }

    /// Whether another change can begin.
    pub fn is_idle(&self) -> bool {
        matches!(self.runtime.stage, Stage::Serving) && !self.changes.is_busy()
    }

    // Events

    /// The next event.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ControlEvent> {
        if let Poll::Ready(plans) = self.changes.poll_planned(self.runtime.stage, cx) {
            return Poll::Ready(ControlEvent::Planned(plans));
        }
        if let Poll::Ready(notice) = self.deploys.poll_notice(cx) {
            return Poll::Ready(ControlEvent::Notice(notice));
        }
        if let Poll::Ready(message) = self.runtime.acme.poll_receive(cx) {
            return Poll::Ready(ControlEvent::Acme(message));
        }
        if let Poll::Ready(message) = self.runtime.exporter.poll_receive(cx) {
            return Poll::Ready(ControlEvent::Exporter(message));
        }
        for _ in 0..2 {
            let event = match self.reads_router_first {
                true => self.runtime.router.poll_receive(cx).map(ControlEvent::Router),
                false => self.runtime.generations.poll_event(cx).map(|(id, event)| ControlEvent::Generation(id, event)),
            };
            self.reads_router_first = !self.reads_router_first;
            if event.is_ready() {
                return event;
            }
        }
        Poll::Pending
    }

    /// Passes an event on.
    pub fn on_event(&mut self, event: ControlEvent, now: Instant) {
        match event {
            ControlEvent::Planned(plans) => self.changes.on_planned(plans, &mut self.runtime, now),
            ControlEvent::Notice(notice) => self.deploys.on_notice(notice, &self.changes, &self.runtime),
            ControlEvent::Acme(message) => {
                let Runtime { acme, certificates, .. } = &mut self.runtime;
                acme.on_message(message, certificates, now);
            }
            ControlEvent::Router(Some(message)) => self.on_router_message(message, now),
            ControlEvent::Exporter(message) => self.runtime.exporter.on_message(message),
            ControlEvent::Router(None) => self.runtime.router.on_close(now),
            ControlEvent::Generation(id, event) => self.runtime.generations.on_event(id, event, now),
        }
    }

    fn on_router_message(&mut self, message: FromRouter, now: Instant) {
        let runtime = &mut self.runtime;
        match message {
            FromRouter::Configured { version } => self.on_configured(version, now),
            FromRouter::Rejected { version, reason } => self.changes.on_rejected(version, &reason, runtime, now),
            FromRouter::WarmUpEnded { generation, failure } => {
                self.changes.on_warm_up_ended(generation, failure, runtime, now);
            }
            FromRouter::Released { generation } => {
                runtime.router.on_released(generation);
                self.changes.stop_unused(runtime, now);
            }
            FromRouter::Violation { generation, rule } => {
                let id = generation;
                if let Some(generation) = runtime.generations.php_mut(id) {
                    let name = generation.name();
                    tracing::error!("a worker of {name:?} broke the channel's rules ({rule}); all are replaced");
                    generation.replace_workers(id, now);
                }
            }
            FromRouter::WorkersWanted { generation, waiting } => {
                runtime.generations.on_workers_wanted(generation, waiting, now);
            }
            FromRouter::Overdue { generation, worker, request } => {
                let id = generation;
                if let Some(generation) = runtime.generations.php_mut(id) {
                    generation.on_overdue(id, worker, request, now);
                }
            }
            FromRouter::RoadRunnerWorkerReleased { generation, worker, reason } => {
                if let Some(generation) = runtime.generations.get_mut(generation) {
                    generation.on_released_worker(worker, reason, now);
                }
            }
            FromRouter::CannotAccept { reason } => runtime.router.on_cannot_accept(&reason),
            FromRouter::UnknownName { name } => runtime.acme.on_unknown_name(name, now),
            FromRouter::AnswersChallenges { version } => runtime.acme.on_answered(version),
            FromRouter::Load(load) => runtime.router.on_load(load),
        }
    }

    /// The router has applied the configuration with this version.
    fn on_configured(&mut self, version: u64, now: Instant) {
        let configured = self.changes.on_configured(version, &mut self.runtime, now);
        if configured != Configured::Outdated && matches!(self.runtime.stage, Stage::Booting) {
            self.runtime.stage = Stage::Serving;
        }
        if configured == Configured::Switched {
            self.deploys.watch(&self.changes, &self.runtime);
            let Runtime { acme, certificates, stage, .. } = &mut self.runtime;
            // A shutdown finishes a switch, and orders nothing any more.
            if stage.has_changes() {
                acme.update(&self.changes.active().configuration, certificates, now);
                acme.on_time(certificates, now);
            }
        }
    }

    /// Reaps dead children, and notes whether the router is stopped. The messages that the dead sent are read first.
    /// Returns whether there may be more of them.
    pub fn reap(&mut self, now: Instant) -> bool {
        self.runtime.router.check_stopped(now);
        let (dead, may_be_more) = reap::reap_some();
        for (pid, end) in &dead {
            self.runtime.acme.on_death(*pid, &end.to_string(), now);
        }
        self.runtime.generations.receive_pending(&dead, now);
        let (router, others): (Vec<_>, Vec<_>) =
            dead.into_iter().partition(|(pid, _)| self.runtime.router.is_process(*pid));
        let (exporter, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(pid, _)| self.runtime.exporter.is_process(*pid));
        exporter.into_iter().for_each(|(_, end)| self.runtime.exporter.on_death(end, now));
        for (_, end) in router {
            self.on_router_death(end, now);
        }
        self.runtime.generations.on_deaths(others, now);
        may_be_more
    }

    /// The router is dead, and with it all requests: no router uses former generations any more.
    fn on_router_death(&mut self, end: ProcessEnd, now: Instant) {
        while let Some(message) = self.runtime.router.try_receive() {
            self.on_router_message(message, now);
        }
        let Some(dead) = self.runtime.router.take_dead() else { return };
        let (pid, runtime) = (dead.pid.as_raw_pid(), &mut self.runtime);
        match runtime.stage {
            Stage::Booting => {
                self.changes.fail(&format!("the router {end} before it was ready"), runtime, now);
            }
            Stage::Serving => {
                tracing::error!("the router (pid {pid}) {end}; another one is started");
                runtime.router.reset_load();
                runtime.router.restart_after(dead, now);
                runtime.generations.on_router_death(now);
                self.changes.on_router_lost(runtime, now);
                self.changes.stop_unused(runtime, now);
                self.on_time(now);
            }
            Stage::Draining(_) | Stage::Stopping(_) | Stage::Killing(_) => {
                if matches!(runtime.stage, Stage::Draining(_)) && end != ProcessEnd::Code(0) {
                    tracing::error!("the router (pid {pid}) {end} while howdah shut down; requests were lost");
                }
                shutdown::router_drained(&mut self.changes, runtime, now);
            }
        }
    }

    /// Finishes an event: processes that have exited are forgotten, the router is notified of workers, and processes that
    /// missed a message are replaced.
    pub fn settle(&mut self, now: Instant) {
        let Control { changes, deploys, runtime, .. } = self;
        if matches!(runtime.stage, Stage::Serving) {
            if !changes.is_switching() {
                runtime.exporter.update(changes.active(), now);
            }
            runtime.exporter.start_due(runtime.router.account(), &runtime.listeners, now);
        }
        runtime.exporter.on_time(now);
        for ended in changes.take_ended_deploys() {
            deploys.on_ended(ended, changes, runtime, now);
        }
        if matches!(runtime.stage, Stage::Serving) {
            if let Some((message, descriptors)) = runtime.acme.answers().take_new() {
                runtime.router.send(message, descriptors);
            }
            if let Some((message, descriptors)) = runtime.acme.take_new_on_demand(&runtime.certificates) {
                runtime.router.send(message, descriptors);
            }
            for name in runtime.acme.take_rejected_names() {
                runtime.router.send(ToRouter::NameRefused { name }, Vec::new());
            }
            if runtime.acme.take_new_certificates()
                && let Err(error) = runtime.send_certificates(changes.active())
            {
                tracing::error!("the router uses the former certificates: {}", error_text(&error));
            }
        }
        runtime.generations.remove_ended();
        runtime.router.forward(runtime.generations.take_notices(), now);
        runtime.router.kill_if_send_failed();
        runtime.generations.kill_prototypes_if_send_failed();
    }

    /// Takes the steps of a change that are due.
    ///
    /// # Errors
    /// Why the supervisor cannot start.
    pub fn advance(&mut self, now: Instant) -> Result<(), String> {
        let Control { changes, deploys, runtime, .. } = self;
        let advanced = changes.advance(runtime, now);
        for ended in changes.take_ended_deploys() {
            deploys.on_ended(ended, changes, runtime, now);
        }
        advanced
    }

    /// Begins the next reload that is due. Returns `false` if no reload is due.
    pub fn begin_reload(&mut self, now: Instant) -> bool {
        self.is_idle() && self.deploys.begin_next(&mut self.changes, &self.runtime, now)
    }

    /// Begins another attempt to start applications that do not start, if it is time. Returns `false` if none is due.
    pub fn begin_retry(&mut self, now: Instant) -> bool {
        self.is_idle() && self.changes.begin_retry(now)
    }

    /// Whether the configuration was only to be checked, and that is done.
    pub fn is_checked(&self) -> bool {
        self.changes.is_checked()
    }

    // Certificates

    /// The router gets the certificate that was replaced under this name, if the configuration uses it. Listeners only
    /// use it for new connections; the connections to servers need the whole configuration again.
    pub fn send_replaced_certificate(&mut self, name: &str) {
        let Control { changes, runtime, .. } = self;
        let active = changes.active();
        let sent = if certificates::used_by_proxy(&active.configuration).contains(name) {
            runtime.configure_router(active)
        } else if certificates::used(&active.configuration).contains(name) {
            runtime.send_certificates(active)
        } else {
            Ok(())
        };
        if let Err(error) = sent {
            tracing::error!("the router uses the former certificate {name:?}: {}; upload it again", error_text(&error));
        }
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let Runtime { generations, router, exporter, stage, acme, .. } = &self.runtime;
        // A change in progress comes first.
        let retry_at = self.changes.retry_at().filter(|_| self.is_idle());
        let deadlines = [
            generations.next_deadline(),
            router.next_deadline(),
            exporter.next_deadline(),
            stage.deadline(),
            self.changes.next_deadline(),
            retry_at,
            acme.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: Instant) {
        let runtime = &mut self.runtime;
        runtime.generations.on_time(now);
        runtime.acme.on_time(&mut runtime.certificates, now);
        if runtime.router.on_time(now) {
            self.on_router_death(ProcessEnd::Signal(Signal::KILL.as_raw()), now);
        }
        let Control { changes, runtime, .. } = self;
        if runtime.router.is_start_due(now) {
            changes.start_router(runtime, now);
        }
        changes.on_time(runtime, now);
        shutdown::on_time(changes, runtime, now);
    }

    // Signals

    /// Finishes the requests in progress, then shuts down. Requested twice, shuts down at once.
    pub fn drain(&mut self, now: Instant) {
        shutdown::drain(&mut self.changes, &mut self.runtime, now);
    }

    /// Kills everything.
    pub fn quit(&mut self, now: Instant) {
        shutdown::quit(&mut self.changes, &mut self.runtime, now);
    }

    /// Whether the shutdown has ended all processes.
    pub fn is_over(&self) -> bool {
        shutdown::is_over(&self.runtime)
    }

    /// Whether the shutdown has waited long enough for processes that were killed.
    pub fn is_abandoned(&self, now: Instant) -> bool {
        matches!(self.runtime.stage, Stage::Killing(until) if until <= now)
    }

    /// Opens all logs again. If the log of howdah's messages was opened again, too (`has_new_log`), all processes get it.
    pub fn reopen_logs(&mut self, has_new_log: bool) {
        self.reopen_access_log();
        if has_new_log && self.runtime.router.is_running() {
            match rustix::stdio::stderr().try_clone_to_owned() {
                Ok(log) => self.runtime.router.send(ToRouter::ReopenErrorLog, vec![log]),
                Err(error) => tracing::error!("the router writes the old log: {}", error_text(&error)),
            }
        }
        for (name, application) in &self.changes.active().configuration.applications {
            // The processes of other programs write to howdah's log by way of the supervisor.
            let writes_to_log = has_new_log && application.as_php().is_some();
            if application.outputs().iter().any(Option::is_some) || writes_to_log {
                self.deploys.reopen_logs(name);
            }
        }
    }

    /// Reopens the access log. A router that is started later gets the new file.
    fn reopen_access_log(&mut self) {
        let Some(log) = self.changes.access_log_mut() else { return };
        if !log.reopen() || !self.runtime.router.is_running() {
            return;
        }
        match log.descriptor() {
            Ok(descriptor) => self.runtime.router.send(ToRouter::ReopenAccessLog, Vec::from_iter(descriptor)),
            Err(error) => tracing::error!("the router writes the old access log: {}", error_text(&error)),
        }
    }
}
