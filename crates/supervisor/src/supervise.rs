//! The event loop: what children say, what signals ask for, and what the clock brings.

use crate::backoff::Backoff;
use crate::generation::Generation;
use crate::identity::Account;
use crate::link::Link;
use crate::listen::Listeners;
use crate::reap::{self, Reaped};
use crate::shutdown::Stage;
use crate::signals::{Request, Signals};
use crate::start::{Start, memory_file};
use crate::{banner, logs, spawn};
use howdah_channel::WorkerId;
use howdah_channel::lifecycle::{FromPrototype, FromRouter, ProcessEnd, RouterBoot, ToRouter};
use howdah_config::AccessLog;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::io::IsTerminal;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Everything that runs.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) start: Start,
    pub(crate) access_log: Option<AccessLog>,
    /// How many threads a router has.
    pub(crate) threads: u16,
    pub(crate) listeners: Listeners,
    pub(crate) generations: Vec<Generation>,
    pub(crate) signals: Signals,
    pub(crate) router: Option<Router>,
    pub(crate) router_backoff: Backoff,
    /// When to start a router.
    pub(crate) router_due: Option<Instant>,
    pub(crate) stage: Stage,
    /// Why the router did not come up.
    pub(crate) boot_failure: Option<String>,
    /// Workers that died lately: a new router hears of them again, since the former may not have.
    pub(crate) recent_deaths: VecDeque<(Instant, u64, WorkerId)>,
}

#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) pid: Pid,
    pub(crate) link: Link<ToRouter, FromRouter>,
    since: Instant,
    /// It has closed its socket: it must be gone by then.
    kill_at: Option<Instant>,
}

/// For how long a new router is told of a worker's death: longer than it takes to notice a router's.
const DEATHS_KEPT: Duration = Duration::from_secs(30);

enum Event {
    Signal(Request),
    /// `None`: its socket is closed.
    Router(Option<FromRouter>),
    /// Of the generation in this place.
    Prototype(usize, Option<FromPrototype>),
    Time,
}

// === impl Supervisor ===

impl Supervisor {
    /// Runs until a signal ends it; fails if the applications or the router do not come up.
    pub async fn run(mut self) -> Result<(), String> {
        let mut result = Ok(());
        self.on_time(Instant::now());
        if self.generations.is_empty() {
            // No application's message will ever start it.
            result = self.go_on_booting(Instant::now());
        }
        while !self.is_over() {
            let event = self.next_event().await;
            let handled = self.handle(event, Instant::now());
            if result.is_ok() && handled.is_err() {
                result = handled;
                self.quit();
            }
        }
        result
    }

    async fn next_event(&mut self) -> Event {
        let deadline = self.next_deadline();
        let clock = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = poll_fn(|cx| self.poll_event(cx)) => event,
            () = clock => Event::Time,
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(request) = self.signals.poll_next(cx) {
            return Poll::Ready(Event::Signal(request));
        }
        if let Some(router) = &mut self.router
            && let Poll::Ready(message) = router.link.poll_receive(cx)
        {
            return Poll::Ready(Event::Router(message));
        }
        for (place, generation) in self.generations.iter_mut().enumerate() {
            if let Poll::Ready(message) = generation.poll_receive(cx) {
                return Poll::Ready(Event::Prototype(place, message));
            }
        }
        Poll::Pending
    }

    fn next_deadline(&self) -> Option<Instant> {
        let generations = self.generations.iter().filter_map(Generation::next_deadline);
        let router = self.router.as_ref().and_then(|router| router.kill_at);
        generations.chain(self.router_due).chain(router).chain(self.stage.deadline()).min()
    }

    fn handle(&mut self, event: Event, now: Instant) -> Result<(), String> {
        match event {
            Event::Signal(Request::Reap) => self.reap(now),
            Event::Signal(Request::Drain) => self.drain(now),
            Event::Signal(Request::Quit) => self.quit(),
            Event::Signal(Request::ReopenLogs) => self.reopen_logs(),
            Event::Signal(Request::HangUp) if std::io::stdout().is_terminal() => self.quit(),
            Event::Signal(Request::HangUp | Request::Nothing) => {}
            Event::Router(Some(message)) => self.on_router_message(message, now),
            Event::Router(None) => {
                if let Some(router) = &mut self.router {
                    router.kill_at = Some(now + reap::CLOSED_GRACE);
                }
            }
            Event::Prototype(place, Some(message)) => self.generations[place].on_message(message, now),
            Event::Prototype(place, None) => self.generations[place].on_close(now),
            Event::Time => self.on_time(now),
        }
        self.pass_notices();
        if matches!(self.stage, Stage::Booting) {
            self.go_on_booting(now)?;
        }
        Ok(())
    }

    /// The router is started when every application has been seen to work.
    fn go_on_booting(&mut self, now: Instant) -> Result<(), String> {
        if let Some(reason) = self.boot_failure.take() {
            return Err(reason);
        }
        for generation in &self.generations {
            if let Some(reason) = generation.failure() {
                return Err(format!("the application {:?} does not start: {reason}", generation.name()));
            }
        }
        if self.router.is_none() && self.generations.iter().all(Generation::is_proven) {
            self.start_router(now).map_err(|error| format!("the router cannot be started: {error}"))?;
        }
        Ok(())
    }

    fn on_router_message(&mut self, message: FromRouter, now: Instant) {
        match message {
            FromRouter::Ready if matches!(self.stage, Stage::Booting) => {
                self.stage = Stage::Serving;
                banner::print(&self.start, &self.listeners, &self.generations);
            }
            FromRouter::Ready => {}
            FromRouter::Violation { generation: id, rule } => {
                if let Some(generation) = self.generations.iter_mut().find(|generation| generation.id() == id) {
                    let name = generation.name();
                    tracing::error!("a worker of {name:?} broke the channel's rules ({rule}); all are replaced");
                    generation.replace_workers(now);
                }
            }
        }
    }

    fn on_time(&mut self, now: Instant) {
        for generation in &mut self.generations {
            generation.on_time(now);
        }
        if let Some(router) = &mut self.router
            && router.kill_at.take_if(|at| *at <= now).is_some()
        {
            reap::kill(router.pid);
        }
        if self.router_due.is_some_and(|due| due <= now) {
            self.router_due = None;
            if let Err(error) = self.start_router(now) {
                tracing::error!("the router cannot be started: {error}");
                self.router_due = Some(now + self.router_backoff.after_death(Default::default()));
            }
        }
        self.on_stage_time(now);
    }

    /// Reaps all dead children. What they said before they died comes first.
    fn reap(&mut self, now: Instant) {
        let mut dead = Vec::new();
        while let Reaped::Dead(pid, end) = reap::reap() {
            dead.push((pid, end));
        }
        for generation in &mut self.generations {
            generation.receive_pending(now);
        }
        // Workers first: with their prototype they would become nameless.
        dead.sort_by_key(|(pid, _)| self.generations.iter().any(|generation| generation.is_prototype(*pid)));
        for (pid, end) in dead {
            if self.router.as_ref().is_some_and(|router| router.pid == pid) {
                self.router_died(end, now);
            } else {
                // Nobody knows an orphan that some PHP script left behind.
                let _ = self.generations.iter_mut().any(|generation| generation.on_death(pid, end, now));
            }
        }
    }

    fn router_died(&mut self, end: ProcessEnd, now: Instant) {
        while let Some(message) = self.router.as_mut().and_then(|router| router.link.try_receive()) {
            self.on_router_message(message, now);
        }
        let Some(router) = self.router.take() else { return };
        match self.stage {
            Stage::Booting => self.boot_failure = Some(format!("the router {end} before it was ready")),
            Stage::Serving => {
                tracing::error!("the router (pid {}) {end}; another one is started", router.pid.as_raw_pid());
                self.router_due = Some(now + self.router_backoff.after_death(now - router.since));
                self.on_time(now);
            }
            _ => self.router_drained(now),
        }
    }

    fn start_router(&mut self, now: Instant) -> io::Result<()> {
        let account: &Account = &self.start.account;
        let mut descriptors = vec![memory_file(self.start.configuration.as_bytes())?];
        if let Some(log) = &self.access_log {
            descriptors.push(logs::open(log).map_err(io::Error::other)?);
        }
        descriptors.extend(self.listeners.descriptors()?);
        let mut generations = Vec::new();
        for generation in &self.generations {
            let (boot, shared) = generation.for_router()?;
            generations.push(boot);
            descriptors.extend(shared);
        }
        let boot = RouterBoot {
            identity: account.identity(),
            user: account.name.clone(),
            access_log: self.access_log.is_some(),
            threads: self.threads,
            generations,
        };
        let (pid, socket) = spawn::router()?;
        let mut link = Link::new(socket)?;
        link.send(ToRouter::Boot(boot), descriptors);
        for generation in &self.generations {
            for worker in generation.workers() {
                link.send(ToRouter::WorkerStarted { generation: generation.id(), worker }, Vec::new());
            }
        }
        for (_, generation, worker) in &self.recent_deaths {
            link.send(ToRouter::WorkerDied { generation: *generation, worker: *worker }, Vec::new());
        }
        self.router = Some(Router { pid, link, since: now, kill_at: None });
        Ok(())
    }

    fn pass_notices(&mut self) {
        let now = Instant::now();
        self.recent_deaths.retain(|(at, ..)| now.duration_since(*at) < DEATHS_KEPT);
        for notice in self.generations.iter_mut().flat_map(|generation| generation.notices.drain(..)) {
            if let ToRouter::WorkerDied { generation, worker } = &notice {
                self.recent_deaths.push_back((now, *generation, *worker));
            }
            if let Some(router) = &mut self.router {
                router.link.send(notice, Vec::new());
            }
        }
    }

    fn reopen_logs(&mut self) {
        let (Some(log @ AccessLog::Path(_)), Some(router)) = (&self.access_log, &mut self.router) else {
            return;
        };
        match logs::open(log) {
            Ok(descriptor) => router.link.send(ToRouter::ReopenLog, vec![descriptor]),
            Err(reason) => tracing::error!("the access log stays as it is: {reason}"),
        }
    }
}
