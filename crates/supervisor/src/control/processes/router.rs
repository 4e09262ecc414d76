//! The router process: its start, its load, its silence, and its death.
//!
//! A router that misses a message is killed, because it would work with an incomplete state. A router that does not
//! report its load, or does not apply a configuration in time, is killed as well, and so is one that signals have
//! stopped for a second, all at once or in parts: a process of the same user can do that. A router that dies is started
//! again, after a pause that grows if routers die young. A killed router that does not die, because a thread of it
//! hangs in the kernel, counts as dead after [`KILLED_GRACE`]: no instruction of it runs any more.

use crate::control::processes::hand_over::{HandOver, Known};
use crate::os::identity::{RouterAccount, UserAccount};
use crate::os::processes::link::ChildLink;
use crate::os::processes::process::Process;
use crate::os::processes::reap;
use crate::os::processes::spawn;
use crate::os::system_error::error_text;
use crate::policy::pace::router_timeouts;
use crate::policy::pace::{Backoff, Beat, Heartbeat, StoppedTime, heartbeat};
use howdah_channel::WorkerId;
use howdah_metrics::totals::Totals;
use howdah_protocol::messages::router::{FromRouter, RouterBoot, RouterLoad, ToRouter};
use howdah_protocol::messages::router_load::ArrivingLoad;
use howdah_telemetry::pipe::SpanPipe;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The router, and what is needed to start another one.
#[derive(Debug)]
pub struct RouterHandle {
    /// The account that it runs as.
    account: RouterAccount,
    /// The number of its threads.
    threads: u16,
    /// By which a router recognizes what its predecessor has issued to clients of HTTP/3.
    quic_secret: [u8; 32],
    /// Where it writes spans.
    spans: Arc<SpanPipe>,
    process: Option<RouterProcess>,
    backoff: Backoff,
    /// When to start a router.
    start_at: Option<Instant>,
    /// The latest numbers.
    load: RouterLoad,
    /// The next ones, if they come in parts.
    arriving_load: ArrivingLoad,
    /// The numbers have changed since [`Self::take_new_load`].
    has_new_load: bool,
    /// Workers that died within [`DEATHS_KEPT`]. A new router is notified of them, because the former one may have
    /// missed them.
    recent_deaths: VecDeque<(Instant, u64, WorkerId)>,
    /// The numbers that routers have counted.
    totals: Totals,
    /// How many were started.
    starts: u64,
}

/// A router that died.
#[derive(Clone, Copy, Debug)]
pub struct DeadRouter {
    /// Its process id.
    pub pid: Pid,
    since: Instant,
    has_served: bool,
}

#[derive(Debug)]
struct RouterProcess {
    pid: Pid,
    link: ChildLink<ToRouter, FromRouter>,
    since: Instant,
    /// It has applied a configuration.
    has_served: bool,
    /// The deadline to apply the last configuration.
    apply_by: Option<Instant>,
    /// Whether it still answers.
    heartbeat: Heartbeat,
    /// It has closed its socket, and must have exited by then.
    kill_at: Option<Instant>,
    /// How long signals have stopped it.
    stopped_time: StoppedTime,
    /// It was killed, and must be dead by then.
    give_up_at: Option<Instant>,
    known: Known,
}

/// How long a worker's death is kept for a new router: longer than the supervisor takes to notice a router's death.
const DEATHS_KEPT: Duration = Duration::from_secs(30);
/// How long the kernel may take to end a router that was killed.
const KILLED_GRACE: Duration = Duration::from_secs(2);
/// If the supervisor looks at a deadline this much too late, it stood still itself. Then it has this time to read reports.
const STOOD_STILL: Duration = Duration::from_secs(1);

// === impl RouterHandle ===

impl RouterHandle {
    /// Without a process.
    pub fn new(account: RouterAccount, threads: u16, quic_secret: [u8; 32], spans: Arc<SpanPipe>) -> RouterHandle {
        RouterHandle {
            account,
            threads,
            quic_secret,
            spans,
            process: None,
            backoff: Backoff::default(),
            start_at: None,
            load: RouterLoad::default(),
            arriving_load: ArrivingLoad::default(),
            has_new_load: false,
            recent_deaths: VecDeque::new(),
            totals: Totals::default(),
            starts: 0,
        }
    }

    /// The number of its threads.
    pub fn threads(&self) -> u16 {
        self.threads
    }

    /// The account that it runs as.
    pub fn account(&self) -> &UserAccount {
        &self.account.account
    }

    /// The account that it runs as, if only root could choose it.
    pub fn account_by_root(&self) -> Option<&RouterAccount> {
        Some(&self.account).filter(|router| router.account.ids.is_some())
    }

    /// Whether it runs as this user, and not as the user of the supervisor.
    pub fn has_user_of(&self, account: &UserAccount) -> bool {
        let user = |account: &UserAccount| account.ids.map(|(user, _)| user);
        user(&self.account.account).is_some_and(|own| user(account) == Some(own))
    }

    /// Whether there is a process.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Whether this is its process.
    pub fn is_process(&self, pid: Pid) -> bool {
        self.process.as_ref().is_some_and(|process| process.pid == pid)
    }

    /// The generations and sockets that it has received.
    pub fn known(&self) -> Known {
        self.process.as_ref().map(|process| process.known.clone()).unwrap_or_default()
    }

    /// Its latest numbers.
    pub fn load(&self) -> &RouterLoad {
        &self.load
    }

    /// The numbers that routers have counted until now.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Names of a configuration that the router may count with.
    pub fn add_names<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.totals.add_names(names);
    }

    /// How many routers were started.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Its process.
    pub fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(|process| process.pid)
    }

    /// Whether there are new numbers, once.
    pub fn take_new_load(&mut self) -> bool {
        std::mem::take(&mut self.has_new_load)
    }

    // Its process

    /// Starts a router with a configuration.
    ///
    /// # Errors
    /// When no process can be started, or it misses a message. There is no router then.
    pub fn start(&mut self, mut hand_over: HandOver, now: Instant) -> io::Result<()> {
        let deaths = self.recent_deaths.iter();
        hand_over.messages.extend(deaths.map(|(_, generation, worker)| {
            (ToRouter::WorkerDied { generation: *generation, worker: *worker, killer: None }, Vec::new())
        }));
        self.spawn(hand_over, Some(now + router_timeouts::configure()), now)
    }

    /// Starts a router that has no configuration yet.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_for_warm_up(&mut self, hand_over: HandOver, now: Instant) -> io::Result<()> {
        self.spawn(hand_over, None, now)
    }

    fn spawn(&mut self, hand_over: HandOver, apply_by: Option<Instant>, now: Instant) -> io::Result<()> {
        let RouterAccount { account, added_group } = &self.account;
        let boot = RouterBoot {
            identity: account.identity(),
            user: account.name.clone(),
            added_group: *added_group,
            threads: self.threads,
            span_marker: self.spans.marker,
            quic_secret: self.quic_secret,
        };
        let spans = self.spans.write.try_clone()?;
        let counters = self.totals.begin_router(self.threads)?;
        let (pid, socket) = spawn::router()?;
        self.starts += 1;
        let started = ChildLink::new(socket).and_then(|mut link| {
            link.send(ToRouter::Boot(boot), vec![counters, spans]);
            let mut process = RouterProcess {
                pid,
                link,
                since: now,
                has_served: false,
                apply_by,
                heartbeat: Heartbeat::new(now),
                kill_at: None,
                stopped_time: StoppedTime::new(now),
                give_up_at: None,
                known: Known::default(),
            };
            process.send(hand_over).map(|()| process)
        });
        match started {
            Ok(process) => {
                self.process = Some(process);
                Ok(())
            }
            Err(error) => {
                reap::kill(pid);
                Err(error)
            }
        }
    }

    /// Starts another one, after a pause, because this one died.
    pub fn restart_after(&mut self, dead: DeadRouter, now: Instant) {
        self.start_at = Some(now + self.backoff.after_death(now - dead.since, dead.has_served));
    }

    /// Tries again to start one, after a pause.
    pub fn retry_start(&mut self, now: Instant) {
        self.start_at = Some(now + self.backoff.after_death(Duration::ZERO, false));
    }

    /// Starts no other one.
    pub fn cancel_start(&mut self) {
        self.start_at = None;
    }

    /// Whether it is time to start one.
    pub fn is_start_due(&self, now: Instant) -> bool {
        self.start_at.is_some_and(|at| at <= now)
    }

    /// Its process is dead.
    pub fn take_dead(&mut self) -> Option<DeadRouter> {
        let RouterProcess { pid, since, has_served, .. } = self.process.take()?;
        self.totals.end_router();
        self.arriving_load = ArrivingLoad::default();
        Some(DeadRouter { pid, since, has_served })
    }

    /// No router reports numbers any more.
    pub fn reset_load(&mut self) {
        self.load = RouterLoad::default();
        self.has_new_load = true;
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill();
        }
    }

    /// Notes whether a signal has stopped it. Called when the state of a child has changed.
    pub fn check_stopped(&mut self, now: Instant) {
        if let Some(process) = &mut self.process {
            process.stopped_time.observe(process.is_stopped(), now);
        }
    }

    // Time

    /// When [`Self::on_time`] has something to do, or a router is to be started.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.process.as_ref().and_then(RouterProcess::next_deadline).into_iter().chain(self.start_at).min()
    }

    /// Kills a process that does not exit, is stopped, does not report its load, or does not apply its configuration.
    /// Returns `true` if the process was killed and does not die: it counts as dead.
    pub fn on_time(&mut self, now: Instant) -> bool {
        let Some(process) = &mut self.process else { return false };
        if let Some(at) = process.give_up_at {
            if at > now {
                return false;
            }
            tracing::error!(
                "the router (pid {}) was killed {} s ago and does not die: a thread of it hangs in the kernel, as in a file \
                 system that does not answer; its connections hang with it",
                process.pid.as_raw_pid(),
                KILLED_GRACE.as_secs()
            );
            return true;
        }
        if process.kill_at.take_if(|at| *at <= now).is_some() {
            process.kill();
        }
        process.check_stop(now);
        process.check_heartbeat(now);
        if process.is_unconfigured(now) {
            self.kill_unconfigured();
        }
        false
    }

    /// Kills a process that has not applied its configuration yet.
    pub fn kill_unconfigured(&mut self) {
        if let Some(process) = &mut self.process
            && process.apply_by.take().is_some()
        {
            let pid = process.pid.as_raw_pid();
            tracing::error!("the router (pid {pid}) did not apply its configuration in time; killing it");
            process.kill();
        }
    }

    /// Kills the process if a message to it failed. Another one receives everything.
    pub fn kill_if_send_failed(&mut self) {
        if let Some(process) = &mut self.process
            && let Err(error) = process.link.check()
        {
            tracing::error!("a message to the router failed ({}); killing the router", error_text(&error));
            process.kill();
        }
    }

    // Messages

    /// Its next message; `None`, once, when it has closed its socket.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromRouter>> {
        self.process.as_mut().map_or(Poll::Pending, |process| process.link.poll_receive(cx))
    }

    /// A message that is already there.
    pub fn try_receive(&mut self) -> Option<FromRouter> {
        self.process.as_mut()?.link.try_receive()
    }

    /// It has closed its socket.
    pub fn on_close(&mut self, now: Instant) {
        if let Some(process) = &mut self.process {
            process.kill_at = Some(now + reap::CLOSED_GRACE);
        }
    }

    /// It has reported its load, or a part of it. Each part answers the heartbeat.
    pub fn on_load(&mut self, part: RouterLoad) {
        if let Some(process) = &mut self.process {
            process.heartbeat.answered();
        }
        if let Some(load) = self.arriving_load.add(part) {
            self.load = load;
            self.has_new_load = true;
        }
    }

    /// It cannot accept connections, for this reason. Another one has other limits.
    pub fn on_cannot_accept(&mut self, reason: &str) {
        // Each of its threads reports it again and again.
        if let Some(process) = self.process.as_mut().filter(|process| process.give_up_at.is_none()) {
            let pid = process.pid.as_raw_pid();
            tracing::error!("the router (pid {pid}) cannot accept connections ({reason}); killing it");
            process.kill();
        }
    }

    /// It has applied the configuration with these sockets.
    pub fn on_configured(&mut self, sockets: impl Iterator<Item = u64>) {
        if let Some(process) = &mut self.process {
            process.apply_by = None;
            process.has_served = true;
            process.known.listeners = sockets.collect();
        }
    }

    /// It has rejected the configuration.
    pub fn on_rejected(&mut self) {
        if let Some(process) = &mut self.process {
            process.apply_by = None;
        }
    }

    /// It uses this generation no more.
    pub fn on_released(&mut self, generation: u64) {
        if let Some(process) = &mut self.process {
            process.known.generations.remove(&generation);
        }
    }

    /// Sends a message, if there is a process.
    pub fn send(&mut self, message: ToRouter, descriptors: Vec<OwnedFd>) {
        if let Some(process) = &mut self.process {
            process.link.send(message, descriptors);
        }
    }

    /// Sends messages, if there is a process.
    ///
    /// # Errors
    /// When it misses one.
    pub fn hand_over(&mut self, hand_over: HandOver) -> io::Result<()> {
        self.process.as_mut().map_or(Ok(()), |process| process.send(hand_over))
    }

    /// Sends a configuration, which is to be applied in time.
    ///
    /// # Errors
    /// When it misses a message.
    pub fn configure(&mut self, hand_over: HandOver) -> io::Result<()> {
        if let Some(process) = &mut self.process {
            // Not the time of the event that led here: a disk may have been slow since then.
            process.apply_by = Some(Instant::now() + router_timeouts::configure());
        }
        self.hand_over(hand_over)
    }

    /// Sends what generations have to report of their workers.
    pub fn forward(&mut self, notices: Vec<(ToRouter, Vec<OwnedFd>)>, now: Instant) {
        // They are in the order of their times.
        let is_old = |(at, ..): &(Instant, u64, WorkerId)| now.duration_since(*at) >= DEATHS_KEPT;
        while self.recent_deaths.front().is_some_and(is_old) {
            self.recent_deaths.pop_front();
        }
        for (notice, descriptors) in notices {
            if let ToRouter::WorkerDied { generation, worker, .. } = &notice {
                self.recent_deaths.push_back((now, *generation, *worker));
            }
            self.send(notice, descriptors);
        }
    }
}

// === impl RouterProcess ===

impl RouterProcess {
    fn send(&mut self, hand_over: HandOver) -> io::Result<()> {
        self.known = hand_over.known;
        for (message, descriptors) in hand_over.messages {
            self.link.send(message, descriptors);
        }
        self.link.check()
    }

    fn kill(&mut self) {
        reap::kill(self.pid);
        self.give_up_at.get_or_insert_with(|| Instant::now() + KILLED_GRACE);
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.give_up_at.is_some() {
            return self.give_up_at;
        }
        let stopped = self.stopped_time.deadline();
        [Some(self.heartbeat.deadline()), self.kill_at, self.apply_by, stopped].into_iter().flatten().min()
    }

    fn is_stopped(&self) -> bool {
        Process::find(self.pid).is_some_and(Process::is_stopped_by_signal)
    }

    /// Kills a router that is stopped: it would accept connections only after SIGCONT.
    fn check_stop(&mut self, now: Instant) {
        if self.stopped_time.deadline().is_none_or(|at| at > now) {
            return;
        }
        let is_stopped = self.is_stopped();
        self.stopped_time.observe(is_stopped, now);
        if is_stopped {
            tracing::error!("the router (pid {}) was stopped by a signal; killing it", self.pid.as_raw_pid());
            self.kill();
        }
    }

    /// Whether it has not applied its configuration in time. A supervisor that stood still, because it was stopped or waited for
    /// a disk, may have the report still to read.
    fn is_unconfigured(&mut self, now: Instant) -> bool {
        let Some(by) = self.apply_by.filter(|by| *by <= now) else { return false };
        if now - by > STOOD_STILL {
            self.apply_by = Some(now + STOOD_STILL);
            return false;
        }
        true
    }

    /// Requests its load when it is time, and kills a router that does not answer any more.
    fn check_heartbeat(&mut self, now: Instant) {
        if !self.heartbeat.is_due(now) {
            return;
        }
        match self.heartbeat.beat(now) {
            Beat::Probe => self.link.send(ToRouter::ReportLoad, Vec::new()),
            Beat::Lost => {
                let (pid, seconds) = (self.pid.as_raw_pid(), heartbeat::timeout().as_secs());
                tracing::error!("the router (pid {pid}) has not answered for {seconds} s; it is killed");
                self.kill();
            }
        }
    }
}
