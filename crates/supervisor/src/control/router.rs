//! The router, as the supervisor sees it: its birth, what it has been told, and its death.
//!
//! A router that cannot be told all that it must know is none: it is killed before anybody counts on it. What can fail on
//! our side fails before anything is sent. One that dies is started again, with the configuration in force.

use crate::control::stage::Stage;
use crate::event_loop::Supervisor;
use crate::generation::Generation;
use crate::os::identity::Account;
use crate::os::link::ChildLink;
use crate::os::memory_file::memory_file;
use crate::os::reap;
use crate::os::spawn;
use crate::policy::pace::Heartbeat;
use crate::policy::pace::router_timeouts::CONFIGURE_TIMEOUT;
use crate::store::certificates;
use howdah_protocol::process_end::ProcessEnd;
use howdah_protocol::router_messages::{FromRouter, RouterBoot, RouterConfiguration, RouterLoad, ToRouter};
use rustix::process::Pid;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A router that runs.
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) pid: Pid,
    pub(crate) link: ChildLink<ToRouter, FromRouter>,
    since: Instant,
    /// It has served by a configuration.
    pub(crate) has_served: bool,
    /// It must serve by the configuration that it was sent last by then.
    pub(crate) answer_by: Option<Instant>,
    /// Whether it still answers.
    pub(crate) heartbeat: Heartbeat,
    /// It has closed its socket: it must be gone by then.
    pub(crate) kill_at: Option<Instant>,
    pub(crate) known: Known,
}

/// What a router has been told of, and did not let go of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The generations.
    pub(crate) generations: BTreeSet<u64>,
    /// The listening sockets.
    pub(crate) listeners: BTreeSet<u64>,
}

/// What a router is to be told, with the descriptors that go with it.
type Orders = Vec<(ToRouter, Vec<OwnedFd>)>;

// === impl Router ===

impl Router {
    /// Sends it this. It knows so much then.
    fn tell(&mut self, orders: Orders, known: Known) -> io::Result<()> {
        self.known = known;
        for (message, descriptors) in orders {
            self.link.send(message, descriptors);
        }
        self.link.check()
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Starts a router with the configuration in force, or sets the time to try it again.
    pub(crate) fn start_router_or_wait(&mut self, now: Instant) {
        self.router_due = None;
        self.stop_unused(now);
        let Err(error) = self.start_router(now) else { return };
        let reason = format!("the router cannot be started: {error}");
        if matches!(self.stage, Stage::Booting) {
            return self.fail_change(&reason, now);
        }
        tracing::error!("{reason}");
        self.router_due = Some(now + self.router_backoff.after_death(Duration::ZERO, false));
        self.change_lost_a_router(now);
    }

    /// Sends the router the configuration in force, and what of it it does not know yet.
    ///
    /// # Errors
    /// When that cannot be sent: the router goes on as before, or is about to be replaced.
    pub(crate) fn configure_router(&mut self, now: Instant) -> io::Result<()> {
        let Some(router) = &self.router else { return Ok(()) };
        let (orders, known) = self.orders(&router.known)?;
        let Some(router) = &mut self.router else { return Ok(()) };
        router.answer_by = Some(now + CONFIGURE_TIMEOUT);
        router.tell(orders, known)
    }

    /// Lets the router warm these generations, which no configuration names yet. At the start it is born for it.
    ///
    /// # Errors
    /// When that cannot be sent.
    pub(crate) fn order_warm_up(&mut self, generations: &BTreeSet<u64>, now: Instant) -> io::Result<()> {
        let mut known = self.router.as_ref().map(|router| router.known.clone()).unwrap_or_default();
        let mut orders = Vec::new();
        for generation in self.generations.iter().filter(|generation| generations.contains(&generation.id())) {
            introduce(generation, &mut known, &mut orders)?;
            orders.push((ToRouter::WarmUp { generation: generation.id() }, vec![generation.warm_up()?]));
        }
        match &mut self.router {
            Some(router) => router.tell(orders, known),
            None if matches!(self.stage, Stage::Booting) => self.spawn_router(orders, known, None, now),
            None => Ok(()),
        }
    }

    /// It is dead, and with it all requests: nobody uses old generations any more.
    pub(crate) fn router_died(&mut self, end: ProcessEnd, now: Instant) {
        while let Some(message) = self.router.as_mut().and_then(|router| router.link.try_receive()) {
            self.on_router_message(message, now);
        }
        let Some(router) = self.router.take() else { return };
        match self.stage {
            Stage::Booting => self.fail_change(&format!("the router {end} before it was ready"), now),
            Stage::Serving => {
                self.load = RouterLoad::default();
                self.answer_status();
                tracing::error!("the router (pid {}) {end}; another one is started", router.pid.as_raw_pid());
                self.router_due = Some(now + self.router_backoff.after_death(now - router.since, router.has_served));
                self.change_lost_a_router(now);
                self.stop_unused(now);
                self.on_time(now);
            }
            _ => {
                if matches!(self.stage, Stage::Draining(_)) && end != ProcessEnd::Code(0) {
                    let pid = router.pid.as_raw_pid();
                    tracing::error!("the router (pid {pid}) {end} while howdah ended; the requests under way are lost");
                }
                self.router_drained(now);
            }
        }
    }

    /// Stops the generations that no configuration names and no router uses. While the router switches, it may have to
    /// switch back.
    pub(crate) fn stop_unused(&mut self, now: Instant) {
        let mut used: BTreeSet<u64> = self.current.generations.values().copied().collect();
        used.extend(self.change.iter().flat_map(|change| change.generations()));
        used.extend(self.router.iter().flat_map(|router| &router.known.generations));
        for generation in self.generations.iter_mut().filter(|generation| !used.contains(&generation.id())) {
            generation.stop(now);
        }
    }

    fn start_router(&mut self, now: Instant) -> io::Result<()> {
        let (mut orders, known) = self.orders(&Known::default())?;
        let dead = self.recent_deaths.iter();
        let deaths = dead.map(|(_, generation, worker)| (*generation, *worker));
        orders.extend(
            deaths.map(|(generation, worker)| (ToRouter::WorkerDied { generation, worker, killer: None }, Vec::new())),
        );
        self.spawn_router(orders, known, Some(now + CONFIGURE_TIMEOUT), now)
    }

    fn spawn_router(
        &mut self,
        orders: Orders,
        known: Known,
        answer_by: Option<Instant>,
        now: Instant,
    ) -> io::Result<()> {
        let account: &Account = &self.start.account;
        let boot = RouterBoot { identity: account.identity(), user: account.name.clone(), threads: self.threads };
        let (pid, socket) = spawn::router()?;
        let told = ChildLink::new(socket).and_then(|mut link| {
            link.send(ToRouter::Boot(boot), Vec::new());
            let nothing = Known::default();
            let mut router = Router {
                pid,
                link,
                since: now,
                has_served: false,
                answer_by,
                heartbeat: Heartbeat::new(now),
                kill_at: None,
                known: nothing,
            };
            router.tell(orders, known).map(|()| router)
        });
        match told {
            Ok(router) => self.router = Some(router),
            Err(error) => {
                reap::kill(pid);
                return Err(error);
            }
        }
        Ok(())
    }

    /// What a router that knows this is told of the configuration in force, and what it knows then.
    fn orders(&self, known: &Known) -> io::Result<(Orders, Known)> {
        let (current, mut known) = (&self.current, known.clone());
        let mut orders = Vec::new();
        for generation in self.generations.iter().filter(|g| current.generations.values().any(|id| *id == g.id())) {
            introduce(generation, &mut known, &mut orders)?;
        }
        for id in &current.listeners {
            if known.listeners.insert(*id) {
                orders.push((ToRouter::AddListener { id: *id }, vec![self.listeners.descriptor(*id)?]));
            }
        }
        let certificates = self.certificates.for_router(certificates::used(&current.configuration));
        let mut descriptors =
            vec![memory_file(current.document.compact().as_bytes())?, memory_file(certificates.as_bytes())?];
        if let Some(log) = &current.access_log {
            descriptors.push(log.descriptor()?);
        }
        let configuration = RouterConfiguration {
            version: current.version,
            listeners: current.listeners.clone(),
            generations: current.generations.clone(),
            access_log: current.access_log.is_some(),
        };
        orders.push((ToRouter::Configure(configuration), descriptors));
        Ok((orders, known))
    }
}

/// What a router that knows this is told of a generation, with its workers.
fn introduce(generation: &Generation, known: &mut Known, orders: &mut Orders) -> io::Result<()> {
    if known.generations.insert(generation.id()) {
        let (boot, descriptors) = generation.for_router()?;
        orders.push((ToRouter::AddGeneration(boot), descriptors));
        for worker in generation.workers() {
            orders.push((ToRouter::WorkerStarted { generation: generation.id(), worker }, Vec::new()));
        }
    }
    Ok(())
}
