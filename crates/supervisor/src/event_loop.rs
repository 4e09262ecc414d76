//! The event loop: what children say, what signals ask for, and what the clock brings.

use crate::api::Ask;
use crate::boot::start::Start;
use crate::control::change::{Change, Current};
use crate::control::reload::{Astray, Due};
use crate::control::router::Router;
use crate::control::stage::Stage;
use crate::control::watch::{DeployNotice, Watch};
use crate::generation::Generation;
use crate::os::listen::Listeners;
use crate::os::logs;
use crate::os::pid_file::PidFile;
use crate::os::reap;
use crate::os::signals::{SignalRequest, Signals};
use crate::os::sweep::Sweep;
use crate::os::system_error::error_text;
use crate::plan::application::{Defaults, Plan};
use crate::policy::pace::Backoff;
use crate::store::certificates::Certificates;
use crate::store::state_directory::StateDirectory;
use howdah_channel::WorkerId;
use howdah_protocol::prototype_messages::FromPrototype;
use howdah_protocol::router_messages::{FromRouter, RouterLoad, ToRouter};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io::IsTerminal;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Everything that runs.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) start: Start,
    pub(crate) defaults: Defaults,
    /// How many threads a router has.
    pub(crate) threads: u16,
    pub(crate) listeners: Listeners,
    /// The control API's.
    pub(crate) control_listeners: Listeners,
    /// Those of the configuration in force, those that a change starts, and those that end.
    pub(crate) generations: Vec<Generation>,
    pub(crate) next_generation: u64,
    pub(crate) current: Current,
    pub(crate) change: Option<Change>,
    /// Changes that wait for the one under way.
    pub(crate) asks: VecDeque<Ask>,
    /// What looks for deploys.
    pub(crate) watch: Watch,
    /// Applications that are to start anew, when it is their turn.
    pub(crate) due_reloads: BTreeMap<String, Due>,
    /// Applications whose paths do not lead to what runs.
    pub(crate) astray: BTreeMap<String, Astray>,
    /// Who waits for the router's numbers, and since when: in this order.
    pub(crate) status_asks: Vec<(Instant, Ask)>,
    /// What the control sockets ask for.
    pub(crate) control: mpsc::UnboundedReceiver<Ask>,
    /// Where the configuration is stored.
    pub(crate) state: Option<StateDirectory>,
    pub(crate) certificates: Certificates,
    /// The router's latest numbers.
    pub(crate) load: RouterLoad,
    /// Why the first configuration does not run.
    pub(crate) start_failure: Option<String>,
    /// Who is heard first: a place among the generations, or behind them the router.
    pub(crate) next_talker: usize,
    pub(crate) signals: Signals,
    pub(crate) router: Option<Router>,
    pub(crate) router_backoff: Backoff,
    /// When to start a router.
    pub(crate) router_due: Option<Instant>,
    pub(crate) stage: Stage,
    pub(crate) sweep: Sweep,
    pub(crate) _pid_file: Option<PidFile>,
    /// Workers that died lately: a new router hears of them again, since the former may not have.
    pub(crate) recent_deaths: VecDeque<(Instant, u64, WorkerId)>,
}

/// For how long a new router is told of a worker's death: longer than it takes to notice a router's.
const DEATHS_KEPT: Duration = Duration::from_secs(30);

enum Event {
    Signal(SignalRequest),
    /// `None`: its socket is closed.
    Router(Option<FromRouter>),
    /// Of the generation in this place.
    Prototype(usize, Option<FromPrototype>),
    Ask(Ask),
    /// A change has its plans.
    Planned(Result<Vec<Plan>, String>),
    DeployNotice(DeployNotice),
    Time,
}

// === impl Supervisor ===

impl Supervisor {
    /// Runs until a signal ends it; fails if the applications or the router do not come up.
    pub async fn run(mut self) -> Result<(), String> {
        self.on_time(Instant::now());
        // Without applications nobody's message would ever start the router.
        let mut result = self.go_on_changing(Instant::now());
        if result.is_err() {
            self.quit();
        }
        while !self.is_over() {
            let event = self.next_event().await;
            let now = Instant::now();
            let mut handled = self.handle(event, now);
            // Whoever sends without a pause must not stop the clock.
            if self.next_deadline().is_some_and(|at| at <= now) {
                handled = handled.and_then(|()| self.handle(Event::Time, now));
            }
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
        if let Poll::Ready(Some(ask)) = self.control.poll_recv(cx) {
            return Poll::Ready(Event::Ask(ask));
        }
        if let Poll::Ready(plans) = self.poll_planned(cx) {
            return Poll::Ready(Event::Planned(plans));
        }
        if let Poll::Ready(notice) = self.watch.poll_notice(cx) {
            return Poll::Ready(Event::DeployNotice(notice));
        }
        // One message of each in turn, the router's place being behind the generations': nobody waits for a flood to end.
        let talkers = self.generations.len() + 1;
        for turn in 0..talkers {
            let place = (self.next_talker + turn) % talkers;
            if let Poll::Ready(event) = self.poll_talker(place, cx) {
                self.next_talker = place + 1;
                return Poll::Ready(event);
            }
        }
        Poll::Pending
    }

    fn poll_talker(&mut self, place: usize, cx: &mut Context<'_>) -> Poll<Event> {
        match (self.generations.get_mut(place), &mut self.router) {
            (Some(generation), _) => generation.poll_receive(cx).map(|message| Event::Prototype(place, message)),
            (None, Some(router)) => router.link.poll_receive(cx).map(Event::Router),
            (None, None) => Poll::Pending,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let generations = self.generations.iter().filter_map(Generation::next_deadline);
        let router = self.router.as_ref().and_then(|router| router.kill_at);
        let silence = self.silence_deadline();
        generations
            .chain(self.router_due)
            .chain(router)
            .chain(self.stage.deadline())
            .chain(self.change_deadline())
            .chain(silence)
            .min()
    }

    fn handle(&mut self, event: Event, now: Instant) -> Result<(), String> {
        match event {
            Event::Signal(SignalRequest::Reap) => self.reap(now),
            Event::Signal(SignalRequest::Drain) => self.drain(now),
            Event::Signal(SignalRequest::Quit) => self.quit(),
            Event::Signal(SignalRequest::ReopenLogs) => self.reopen_logs(),
            Event::Signal(SignalRequest::HangUp) if std::io::stdout().is_terminal() => self.quit(),
            Event::Signal(SignalRequest::HangUp | SignalRequest::Nothing) => {}
            Event::Router(Some(message)) => self.on_router_message(message, now),
            Event::Router(None) => {
                if let Some(router) = &mut self.router {
                    router.kill_at = Some(now + reap::CLOSED_GRACE);
                }
            }
            Event::Prototype(place, Some(message)) => self.generations[place].on_message(message, now),
            Event::Prototype(place, None) => self.generations[place].on_close(now),
            Event::Ask(ask) => self.on_ask(ask, now),
            Event::Planned(plans) => self.planned(plans, now),
            Event::DeployNotice(notice) => self.on_notice(notice),
            Event::Time => self.on_time(now),
        }
        self.forget_ended();
        self.pass_notices();
        self.replace_uninformed();
        loop {
            self.go_on_changing(now)?;
            if !self.take_ask(now) && !self.next_reload(now) {
                return Ok(());
            }
        }
    }

    pub(crate) fn on_router_message(&mut self, message: FromRouter, now: Instant) {
        match message {
            FromRouter::Configured { version } => self.configured(version, now),
            FromRouter::Rejected { version, reason } => self.router_refused(version, &reason, now),
            FromRouter::Warmed { generation, refusal } => self.warmed(generation, refusal, now),
            FromRouter::Released { generation } => self.released(generation, now),
            FromRouter::Violation { generation: id, rule } => {
                if let Some(generation) = self.generation_mut(id) {
                    let name = generation.name();
                    tracing::error!("a worker of {name:?} broke the channel's rules ({rule}); all are replaced");
                    generation.replace_workers(now);
                }
            }
            FromRouter::WorkersWanted { generation, waiting } => {
                let others = self.generations.iter().filter(|other| other.id() != generation);
                let promised = others.map(|other| other.promised(now)).sum();
                if let Some(generation) = self.generation_mut(generation) {
                    generation.on_wanting(waiting, promised, now);
                }
            }
            FromRouter::Overdue { generation, worker, request } => {
                if let Some(generation) = self.generation_mut(generation) {
                    generation.on_overdue(worker, request, now);
                }
            }
            FromRouter::Load(load) => {
                if let Some(router) = &mut self.router {
                    router.heartbeat.answered();
                }
                self.load = load;
                self.answer_status();
            }
        }
    }

    /// The one that serves this application.
    pub(crate) fn generation_in_force(&self, name: &str) -> Option<&Generation> {
        let id = self.in_force().generations.get(name)?;
        self.generations.iter().find(|generation| generation.id() == *id)
    }

    pub(crate) fn generation_mut(&mut self, id: u64) -> Option<&mut Generation> {
        self.generations.iter_mut().find(|generation| generation.id() == id)
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        for generation in &mut self.generations {
            generation.on_time(now);
        }
        if let Some(router) = &mut self.router
            && router.kill_at.take_if(|at| *at <= now).is_some()
        {
            reap::kill(router.pid);
        }
        if self.router_due.is_some_and(|due| due <= now) {
            self.start_router_or_wait(now);
        }
        self.on_silence(now);
        self.on_stage_time(now);
    }

    /// Reaps all dead children. What they said before they died comes first.
    fn reap(&mut self, now: Instant) {
        let mut dead = Vec::new();
        while let Some((pid, end)) = reap::reap() {
            dead.push((pid, end));
        }
        for generation in &mut self.generations {
            if dead.iter().any(|(pid, _)| generation.is_prototype(*pid)) {
                generation.receive_pending(now);
            }
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
        for generation in &mut self.generations {
            generation.settle_nameless(now);
        }
    }

    fn pass_notices(&mut self) {
        let now = Instant::now();
        self.recent_deaths.retain(|(at, ..)| now.duration_since(*at) < DEATHS_KEPT);
        for notice in self.generations.iter_mut().flat_map(|generation| generation.notices.drain(..)) {
            if let ToRouter::WorkerDied { generation, worker, .. } = &notice {
                self.recent_deaths.push_back((now, *generation, *worker));
            }
            if let Some(router) = &mut self.router {
                router.link.send(notice, Vec::new());
            }
        }
    }

    /// Who does not know what it should, as it could not be told, is killed; another one is told everything.
    fn replace_uninformed(&mut self) {
        if let Some(router) = &mut self.router
            && let Err(error) = router.link.check()
        {
            tracing::error!("the router does not know what it should ({}); it is killed", error_text(&error));
            reap::kill(router.pid);
        }
        for generation in &mut self.generations {
            generation.replace_uninformed_prototype();
        }
    }

    fn reopen_logs(&mut self) {
        if let Some(log) = &self.start.log_file
            && let Err(reason) = logs::write_errors_to(log)
        {
            tracing::error!("{reason}");
        }
        // A router that is started later gets the new one.
        let Some(log) = &mut self.current.access_log else { return };
        let (true, Some(router)) = (log.reopen(), &mut self.router) else { return };
        match log.descriptor() {
            Ok(descriptor) => router.link.send(ToRouter::ReopenAccessLog, vec![descriptor]),
            Err(error) => tracing::error!("the router writes the old access log: {}", error_text(&error)),
        }
    }
}
