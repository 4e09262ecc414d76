//! A prototype that says nothing: how long it is waited for, and what comes then.
//!
//! It forks at once when it is told to, or says that it cannot. And it is asked now and then whether it is there: one that
//! hangs would not tell the deaths of its workers, either. One that hangs is killed: its workers finish what they do (in a
//! namespace of processes, they die with it), and another one starts. While nothing is to be forked, and no worker of it
//! has died, one that somebody has stopped is left alone.

use super::{Generation, Prototype};
use crate::os::cgroup::Group;
use crate::os::process::Process;
use crate::policy::pace::{Beat, Heartbeat, heartbeat};
use howdah_protocol::prototype_messages::ToPrototype;
use std::time::{Duration, Instant};

/// What is known of a prototype's answers.
#[derive(Debug)]
pub(super) struct Silence {
    /// When it last answered an order; `None` once it was killed as it did not for long.
    answered: Option<Instant>,
    /// Whether it still answers at all.
    heartbeat: Heartbeat,
    /// While it was stopped a worker of it was found dead.
    untold_deaths: bool,
}

/// How long a prototype may take to fork the next worker, or to say that it cannot.
const LONGEST_FORK: Duration = Duration::from_secs(10);
/// How much later that may be looked at: otherwise we have been stopped ourselves.
const FORK_GRACE: Duration = Duration::from_secs(1);

// === impl Silence ===

impl Silence {
    /// A prototype starts.
    pub(super) fn begin(now: Instant) -> Silence {
        Silence { answered: Some(now), heartbeat: Heartbeat::new(now), untold_deaths: false }
    }

    /// It has forked, or could not.
    pub(super) fn fork_answered(&mut self, now: Instant) {
        self.answered = self.answered.map(|_| now);
    }

    /// It has said that it is there.
    pub(super) fn is_there(&mut self) {
        self.heartbeat.answered();
    }
}

// === impl Generation ===

impl Generation {
    /// When somebody must have answered.
    pub(super) fn silence_deadline(&self) -> Option<Instant> {
        let forks = self.fork_deadline();
        forks.into_iter().chain(self.can_answer().then_some(self.silence.heartbeat.deadline())).min()
    }

    /// Asks, and loses patience, when it is time.
    pub(super) fn look_at_silence(&mut self, now: Instant) {
        self.wait_for_forks(now);
        self.ask_prototype(now);
    }

    /// When a prototype that has booted must have answered the orders that it has.
    fn fork_deadline(&self) -> Option<Instant> {
        if !self.can_answer() {
            return None;
        }
        Some(self.workers.oldest_fork_order()?.max(self.silence.answered?) + LONGEST_FORK)
    }

    fn wait_for_forks(&mut self, now: Instant) {
        let Some(deadline) = self.fork_deadline().filter(|deadline| *deadline <= now) else { return };
        if now - deadline >= FORK_GRACE {
            // It was not looked at in time: its answers may be there.
            self.silence.answered = Some(now + FORK_GRACE - LONGEST_FORK);
        } else {
            self.silence.answered = None;
            let (name, seconds) = (&self.plan.name, LONGEST_FORK.as_secs());
            tracing::error!("the prototype of {name:?} has not forked a worker within {seconds} s; it is killed");
            self.kill_prototype();
        }
    }

    /// Its questions are counted, not timed, as we may have been stopped meanwhile.
    fn ask_prototype(&mut self, now: Instant) {
        if !self.can_answer() || !self.silence.heartbeat.is_due(now) {
            return;
        }
        if self.is_stopped_by_others() {
            self.silence.heartbeat.skip(now);
            self.look_for_untold_deaths();
            return;
        }
        self.silence.untold_deaths = false;
        match self.silence.heartbeat.beat(now) {
            Beat::Lost => {
                let (name, seconds) = (&self.plan.name, heartbeat::timeout().as_secs());
                tracing::error!("the prototype of {name:?} has not answered for {seconds} s; it is killed");
                self.kill_prototype();
            }
            Beat::Probe => {
                if let Prototype::Up { link: Some(link), .. } = &mut self.prototype {
                    link.send(ToPrototype::Ping, Vec::new());
                }
            }
        }
    }

    /// Nobody else tells that a worker has died. That is seen twice: who was stopped and goes on now tells it by itself.
    fn look_for_untold_deaths(&mut self) {
        let has_untold_deaths = self.has_untold_deaths();
        if std::mem::replace(&mut self.silence.untold_deaths, has_untold_deaths) && has_untold_deaths {
            let name = &self.plan.name;
            tracing::error!("the prototype of {name:?} is stopped, and tells of no worker that has died; it is killed");
            self.kill_prototype();
        }
    }

    fn has_untold_deaths(&self) -> bool {
        self.workers.alive().any(|(_, process)| process.is_some_and(Process::is_dead))
    }

    /// By an operator, with a signal, a debugger, or by freezing its control group.
    fn is_stopped_by_others(&self) -> bool {
        let Prototype::Up { pid, .. } = self.prototype else { return false };
        let is_frozen = self.plan.confined.cgroup.as_ref().is_some_and(Group::is_frozen);
        is_frozen || Process::find(pid).is_some_and(Process::is_stopped)
    }

    fn can_answer(&self) -> bool {
        self.proven && matches!(self.prototype, Prototype::Up { booted: true, link: Some(_), .. })
    }
}
