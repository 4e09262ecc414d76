//! A router that does not answer: how long it is waited for, and what comes then.
//!
//! It is asked for its load now and then; one that does not answer for long hangs, and is killed. Another one is started.
//! One that does not take over a configuration is killed, and another one started with it. If that one does not, either,
//! the change has failed: the configuration before it is in force again. Whoever asked for the status hears that there is
//! none.

use crate::api::Answer;
use crate::event_loop::Supervisor;
use crate::os::reap;
use crate::policy::pace::router_timeouts::{STATUS_TIMEOUT, SWITCH_TIMEOUT};
use crate::policy::pace::{Beat, heartbeat};
use howdah_config::{Refusal, answer};
use howdah_protocol::router_messages::ToRouter;
use std::time::Instant;

// === impl Supervisor ===

impl Supervisor {
    /// When somebody has been silent for too long.
    pub(crate) fn silence_deadline(&self) -> Option<Instant> {
        let router =
            self.router.as_ref().map(|router| router.answer_by.into_iter().chain([router.heartbeat.deadline()]));
        let router = router.into_iter().flatten();
        let status = self.status_asks.first().map(|(since, _)| *since + STATUS_TIMEOUT);
        router.chain(status).chain(self.switched_at().map(|since| since + SWITCH_TIMEOUT)).min()
    }

    /// Loses patience with whom it is time for.
    pub(crate) fn on_silence(&mut self, now: Instant) {
        let overdue = self.status_asks.iter().take_while(|(since, _)| *since + STATUS_TIMEOUT <= now).count();
        for (_, ask) in self.status_asks.drain(..overdue) {
            let detail = "the router does not answer; it may be overloaded, or stopped: ask again";
            let _ = ask.reply.send(Answer::from(Refusal::new(500, answer::text::NO_STATUS, detail)));
        }
        self.ask_router(now);
        let gives_up = self.switched_at().is_some_and(|since| since + SWITCH_TIMEOUT <= now);
        if let Some(router) = &mut self.router
            && let Some(answer_by) = router.answer_by
            && (gives_up || answer_by <= now)
        {
            router.answer_by = None;
            tracing::error!(
                "the router (pid {}) does not take over its configuration; it is killed",
                router.pid.as_raw_pid()
            );
            reap::kill(router.pid);
        }
        if gives_up {
            let seconds = SWITCH_TIMEOUT.as_secs();
            self.switch_back(&format!("no router took it over in {seconds} seconds; howdah's log says more"), now);
        }
    }

    /// Asks it how it is, and loses patience with one that has not said it for long.
    fn ask_router(&mut self, now: Instant) {
        let Some(router) = self.router.as_mut().filter(|router| router.heartbeat.is_due(now)) else { return };
        match router.heartbeat.beat(now) {
            Beat::Probe => router.link.send(ToRouter::ReportLoad, Vec::new()),
            Beat::Lost => {
                let (pid, seconds) = (router.pid.as_raw_pid(), heartbeat::TIMEOUT.as_secs());
                tracing::error!("the router (pid {pid}) has not answered for {seconds} s; it is killed");
                reap::kill(router.pid);
            }
        }
    }
}
