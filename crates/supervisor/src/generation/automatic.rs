//! An application whose number of workers is found by itself: what is measured, decided ([`crate::policy::sizing`]), and done.

use super::Generation;
use crate::generation::gauge::{Gauge, Measured};
use crate::plan::application::Plan;
use crate::policy::demand::Demand;
use crate::policy::pool::PoolPolicy;
use crate::policy::sizing::{QUEUED_INTERVAL, Reason, Sample, Sizing};
use std::time::{Duration, Instant};

/// What is remembered from one look to the next.
#[derive(Debug)]
pub(super) struct Automatic {
    sizing: Sizing,
    gauge: Gauge,
    /// When it was last looked at.
    looked: Option<Instant>,
    /// How many requests waited when the router last said so, and when that was.
    waiting: (usize, Instant),
    /// How much memory the new workers of other applications will take, in bytes, and when that was said.
    promised: (u64, Instant),
    /// How much there was for its own when it was last looked at, in bytes.
    room: i64,
    /// Since when, and until when, there has been no memory for more workers.
    lacks_memory: Option<(Instant, Instant)>,
    /// When an operator last heard of that.
    told_of_memory: Option<Instant>,
}

/// After this, workers that have work have taken the memory for it.
const NEW: Duration = Duration::from_secs(1);
const TELL_OF_MEMORY: Duration = Duration::from_secs(60);
/// There is no memory for more when that has been so for this long: what workers take is a guess when they are new, and too
/// much of one.
const LASTING: Duration = Duration::from_secs(3);
/// What the router said is old after this: it says it again while it is so.
const NEWS: Duration = QUEUED_INTERVAL.saturating_mul(3);

// === impl Automatic ===

impl Automatic {
    /// Nothing has been looked at yet; `None` if the configuration says how many workers there are.
    pub(super) fn of(plan: &Plan, now: Instant) -> Option<Automatic> {
        let PoolPolicy::Automatic(bounds) = plan.pool else { return None };
        let gauge = Gauge::new(plan.confined.machine(), now);
        Some(Automatic {
            sizing: Sizing::new(bounds),
            gauge,
            looked: None,
            waiting: (0, now),
            promised: (0, now),
            room: 0,
            lacks_memory: None,
            told_of_memory: None,
        })
    }
}

// === impl Generation ===

impl Generation {
    /// Why it has as many workers as it has, if that is found by itself.
    pub fn reason(&self) -> Option<Reason> {
        self.automatic.as_ref().map(|automatic| automatic.sizing.reason(self.workers.staying(), Instant::now()))
    }

    /// How much memory its new workers will take: the kernel counts it for nobody yet.
    pub fn promised(&self, now: Instant) -> u64 {
        let Some(automatic) = &self.automatic else { return 0 };
        let new = self.workers.started_since(now.checked_sub(NEW).unwrap_or(now)).count();
        // Its own control group may have less.
        (new as u64 * automatic.gauge.worker_bytes()).min(u64::try_from(automatic.room).unwrap_or(0))
    }

    /// Looks at once, or as soon as may be.
    pub(super) fn size_soon(&mut self, waiting: usize, promised: u64, now: Instant) {
        let Some(automatic) = &mut self.automatic else { return };
        automatic.waiting = (waiting, now);
        automatic.promised = (promised, now);
        let due = automatic.looked.map_or(now, |looked| looked + QUEUED_INTERVAL);
        if due <= now {
            self.size(now);
        } else {
            self.idle.look_at = Some(self.idle.look_at.map_or(due, |at| at.min(due)));
        }
    }

    /// Measures, decides, and has workers started or sent away.
    pub(super) fn size(&mut self, now: Instant) {
        let starting = self.look_who_is_idle(now);
        let measured: Vec<_> = self.measured().collect();
        let busy: Vec<_> = measured
            .iter()
            .filter(|worker| !self.idle.since.contains_key(&worker.worker.index))
            .map(|worker| worker.process)
            .collect();
        let all = self.workers.staying();
        let leaving = self.workers.leaving();
        let grown_up = measured.iter().filter(|worker| !worker.is_young()).count();
        let Some(automatic) = &mut self.automatic else { return };
        let Automatic { sizing, gauge, looked, waiting, promised, room, lacks_memory, told_of_memory } = automatic;
        *looked = Some(now);
        let waiting = if now.saturating_duration_since(waiting.1) < NEWS { waiting.0 } else { 0 };
        let promised = if now.saturating_duration_since(promised.1) < NEW { promised.0 } else { 0 };
        let memory = gauge.memory(&measured, promised, now);
        *room = memory.map_or(0, |memory| memory.room);
        let usage = gauge.usage(&measured, now);
        if usage.is_some() {
            sizing.set_cores(gauge.cores());
        }
        let sample = Sample {
            demand: Demand { idle: self.idle.since.len(), starting, all, waiting },
            runnable: gauge.runnable(&busy),
            young: (all + leaving).saturating_sub(grown_up),
            leaving,
            usage,
            memory,
        };
        let decision = sizing.decide(sample, now);
        let is_news = told_of_memory.is_none_or(|told| now.saturating_duration_since(told) >= TELL_OF_MEMORY);
        *lacks_memory = lacks_memory.filter(|(_, last)| now.saturating_duration_since(*last) < NEW);
        if let Some(allowed) = decision.lacks_memory {
            let since = lacks_memory.map_or(now, |(since, _)| since);
            *lacks_memory = Some((since, now));
            if is_news && now.saturating_duration_since(since) >= LASTING {
                *told_of_memory = Some(now);
                tracing::warn!(
                    "{waiting} requests wait for a worker of {:?}, and the memory has room for {allowed} workers: raise \
                     processes/auto/memory if that is set; otherwise add memory, or bound what a request takes \
                     (memory_limit)",
                    self.plan.name
                );
            }
        }
        self.workers.set_target(decision.wanted.max(self.least()));
        self.send_away(decision.surplus);
        self.idle.look_at = Some(now + decision.decide_again_in);
        if decision.wanted != all || decision.surplus > 0 {
            tracing::debug!(
                application = self.plan.name,
                ?sample,
                wanted = decision.wanted - decision.surplus,
                why = %self.reason().expect("it is automatic"),
                "the number of workers changes"
            );
        }
    }

    fn measured(&self) -> impl Iterator<Item = Measured> {
        self.workers.alive().filter_map(|(worker, process)| {
            Some(Measured { worker, process: process?, account: self.control.account(worker).unwrap_or_default() })
        })
    }

    /// Those go first that have been idle for longest: the others are warm. Who is busy finishes its request.
    fn send_away(&mut self, count: usize) {
        let mut idle: Vec<_> = self.idle.since.values().copied().collect();
        idle.sort_by_key(|(_, since)| *since);
        let busy = self.workers.running().filter(|worker| !self.idle.since.contains_key(&worker.index));
        let leaving: Vec<_> = idle.into_iter().map(|(worker, _)| worker).chain(busy).take(count).collect();
        for worker in leaving {
            self.idle.since.remove(&worker.index);
            self.retire(worker);
        }
    }
}
