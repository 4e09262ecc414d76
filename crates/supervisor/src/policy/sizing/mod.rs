//! How many workers an application needs: the policy of `"processes": "auto"`. Pure: it is told what was seen and when.
//!
//! Two laws of queues (Denning and Buzen, "The Operational Analysis of Queueing Network Models", 1978) say how many
//! workers can be of use. By the utilisation law, requests that take `cpu` seconds of a processor are finished at a rate
//! of `cores / cpu` at most. By Little's law, to finish that many when each takes `wall` seconds, `cores × wall / cpu` of
//! them must be under way. Time in which a worker waits for a processor is not counted as `wall`: more workers would only
//! make it longer.
//!
//! - Up: when requests wait, the number becomes the useful one. If our workers leave a processor idle at that moment, that
//!   is not enough, and the number doubles (when they leave most of them idle, it quadruples). It is never more than there
//!   are requests. A fork is cheap, so this is looked at again after [`QUICK`].
//! - Down: to the most that was of use within the last [`KEPT`], slowly. What a burst needed is kept for the next one, so
//!   the number does not flap.
//! - Memory: never more than what is left of the machine's memory, or of the control group's, has room for. Workers that
//!   have just been started will take theirs later, and those that leave still have theirs: both are counted.
//!
//! Nothing here fails: numbers that contradict each other make a poor decision, within the bounds.

use crate::policy::demand::Seen;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// Between which numbers the decision lies, whatever is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// How many processors there are for us: 0.5 is half of one.
    pub cores: f64,
    /// Never more workers than this.
    pub max: usize,
    /// How much memory they may take together, in bytes, if that is bounded.
    pub memory: Option<u64>,
}

/// What is seen at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The workers and the requests that wait.
    pub seen: Seen,
    /// How many of the busy workers use a processor, or wait for one.
    pub runnable: f64,
    /// How many of the workers have not taken the memory yet that they will.
    pub young: usize,
    /// How many workers beside these have been told to go, and have their memory still.
    pub leaving: usize,
    /// What was used since the last time that this was known.
    pub usage: Option<Usage>,
    /// If it was looked at.
    pub memory: Option<Memory>,
}

/// What workers used within some time, summed up over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// The time in which it was, in seconds.
    pub within: f64,
    /// How long they were busy with requests, in seconds.
    pub wall: f64,
    /// How long processors were busy with them, in seconds.
    pub cpu: f64,
    /// How long they waited for a processor, in seconds.
    pub delayed: f64,
}

/// How much memory there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What may still be used, in bytes; negative when too much is in use already.
    pub room: i64,
    /// The same without what workers of other applications will take that have just been started.
    pub room_for_more: i64,
    /// What one worker takes, in bytes, when it has run for a while.
    pub worker: u64,
}

/// The policy, and what it remembers.
#[derive(Clone, Debug)]
pub struct Sizing {
    bounds: Bounds,
    /// Sums of which the past counts less and less.
    usage: Usage,
    /// How many processors our workers keep busy, over the last looks, and when that was.
    occupied: Option<(Instant, f64)>,
    /// The most workers that were of use in each second of [`KEPT`], and how long ago that began.
    peaks: VecDeque<(Instant, usize)>,
    /// How many workers the memory had room for when it was last looked at: up to so many may be started, and beyond so
    /// many they leave.
    memory_allows: Option<usize>,
    memory_keeps: Option<usize>,
    /// When workers were sent away.
    shrunk: Option<Instant>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// So many workers shall there be, no fewer than there are.
    pub wanted: usize,
    /// So many are to leave: idle ones first, others after their request.
    pub surplus: usize,
    /// When to look again, unless requests wait earlier.
    pub look_in: Duration,
    /// Without the bound of the memory, which is this, there would be more.
    pub lacks_memory: Option<usize>,
}

/// When to look again while requests wait.
pub const QUICK: Duration = Duration::from_millis(10);
/// When to look again while there are more workers than the least.
const CALM: Duration = Duration::from_millis(250);
/// When to look again when there is nothing to decide: so that it is known what requests wait for.
const REST: Duration = Duration::from_secs(5);
/// For how long workers that were of use are kept.
const KEPT: Duration = Duration::from_secs(600);
/// Of so much time one peak is remembered.
const PEAK: Duration = Duration::from_secs(1);
/// After how long a past request counts for a third, in seconds.
const MEMORY_OF_USAGE: f64 = 10.0;
/// Less than this, in seconds of a processor, says nothing about requests.
const LEAST_KNOWN: f64 = 0.005;
/// With so much of the processors in use, another worker would not find one.
const SATURATED: f64 = 0.9;
/// With less than that, a few more workers will not fill them.
const MOSTLY_IDLE: f64 = 0.5;
/// How much more than the most that was of use is kept.
const HEADROOM: f64 = 1.1;
/// Workers leave at least this far apart.
const SHRINK_PAUSE: Duration = Duration::from_secs(1);

// === impl Bounds ===

impl Bounds {
    /// How many workers there are when nothing is known, and when nothing is to be done: two, so that one slow request
    /// does not stop all others. A machine may have many applications, and a fork is cheap.
    pub fn least(&self) -> usize {
        2.min(self.max)
    }
}

// === impl Sizing ===

impl Sizing {
    /// The policy with nothing seen yet.
    pub fn new(bounds: Bounds) -> Sizing {
        Sizing {
            bounds,
            usage: Usage::default(),
            occupied: None,
            peaks: VecDeque::new(),
            memory_allows: None,
            memory_keeps: None,
            shrunk: None,
        }
    }

    /// So many processors there are for us from now on.
    pub fn set_cores(&mut self, cores: f64) {
        self.bounds.cores = cores;
    }

    /// Decides by what is seen now.
    pub fn decide(&mut self, sample: Sample, now: Instant) -> Decision {
        let Sample { seen, .. } = sample;
        self.remember(&sample, now);
        let busy = seen.all.saturating_sub(seen.idle + seen.starting);
        let needed = busy + if seen.queues() { seen.waiting } else { 0 };
        let most = self.bounds.max.min(self.memory_allows.unwrap_or(usize::MAX));
        let least = self.bounds.least().min(most);
        let useful = self.useful().map_or(least, |useful| useful.round() as usize).max(least);

        let occupied = self.occupied.map_or(0.0, |(_, occupied)| occupied / self.bounds.cores);
        let has_idle_processor = occupied < SATURATED;
        let wanted = if seen.queues() && seen.waiting > seen.starting {
            let settled = seen.all - seen.starting.min(seen.all);
            let factor = match occupied {
                ..MOSTLY_IDLE => 4,
                ..SATURATED => 2,
                _ => 1,
            };
            needed.min(useful.max(factor * settled)).max(least)
        } else {
            least
        };
        let lacks_memory = (wanted.min(self.bounds.max) > most).then_some(most.max(seen.all));
        let wanted = wanted.min(most).max(seen.all);
        let of_use = needed.min(if has_idle_processor { wanted } else { useful });
        self.enter_peak(of_use, now);
        let keeps = self.bounds.max.min(self.memory_keeps.unwrap_or(usize::MAX));
        let surplus = self.surplus(seen.all, least, keeps, now);
        let look_in = match (seen.waiting, seen.all > least || surplus > 0) {
            (1.., _) => QUICK,
            (0, true) => CALM,
            (0, false) => REST,
        };
        Decision { wanted, surplus, look_in, lacks_memory }
    }

    /// How many workers keep the processors busy; `None` when too little has been seen.
    fn useful(&self) -> Option<f64> {
        let Usage { wall, cpu, delayed, .. } = self.usage;
        (cpu >= LEAST_KNOWN).then(|| self.bounds.cores * ((wall - delayed) / cpu).max(1.0))
    }

    /// How much of a request is waiting for others than the processors, from 0 to 1.
    fn waiting_share(&self) -> Option<f64> {
        self.useful().map(|useful| 1.0 - self.bounds.cores / useful)
    }

    /// How many workers the memory has room for, beside so many that have what they need of it: one, at least, or nothing
    /// would ever be answered.
    fn room_for(&self, memory: Memory, have_theirs: usize) -> usize {
        let worker = i64::try_from(memory.worker.max(1)).unwrap_or(i64::MAX);
        let by_room = (have_theirs as i64).saturating_add(memory.room.div_euclid(worker)).max(1) as usize;
        let by_bound = self.bounds.memory.map_or(usize::MAX, |memory| (memory / worker as u64) as usize);
        by_room.min(by_bound).max(1)
    }

    fn remember(&mut self, sample: &Sample, now: Instant) {
        if let Some(memory) = sample.memory {
            let all = sample.seen.all + sample.leaving;
            // Nobody knows how much of theirs the young ones have: to start more, nothing; to keep them, all of it.
            let for_more = Memory { room: memory.room_for_more, ..memory };
            self.memory_allows = Some(self.room_for(for_more, all.saturating_sub(sample.young)));
            self.memory_keeps = Some(self.room_for(memory, all));
        }
        if let Some(usage) = sample.usage {
            let past = (-usage.within / MEMORY_OF_USAGE).exp();
            let sum = |past_sum: f64, sum: f64| past_sum * past + sum;
            self.usage = Usage {
                within: usage.within,
                wall: sum(self.usage.wall, usage.wall),
                cpu: sum(self.usage.cpu, usage.cpu),
                delayed: sum(self.usage.delayed, usage.delayed),
            };
        }
        // Only what happens while requests wait says whether they wait for a processor. One look may find a worker in the
        // short moment in which it waits for something else.
        self.occupied = self.occupied.filter(|(at, _)| now.saturating_duration_since(*at) < 10 * QUICK);
        if sample.seen.queues() {
            let occupied = sample.runnable.min(self.bounds.cores);
            self.occupied = Some((now, self.occupied.map_or(occupied, |(_, before)| (before + occupied) / 2.0)));
        }
    }

    fn enter_peak(&mut self, of_use: usize, now: Instant) {
        while self.peaks.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > KEPT) {
            self.peaks.pop_front();
        }
        match self.peaks.back_mut() {
            Some((at, peak)) if now.saturating_duration_since(*at) < PEAK => {
                *peak = of_use.max(*peak);
            }
            _ => self.peaks.push_back((now, of_use)),
        }
    }

    fn surplus(&mut self, all: usize, least: usize, most: usize, now: Instant) -> usize {
        if self.shrunk.is_some_and(|at| now.saturating_duration_since(at) < SHRINK_PAUSE) {
            return 0;
        }
        let peak = self.peaks.iter().map(|(_, peak)| *peak).max().unwrap_or_default();
        let kept = ((peak as f64 * HEADROOM).ceil() as usize).max(least);
        let is_settled = self.peaks.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) + PEAK >= KEPT);
        let surplus = match all.saturating_sub(most) {
            0 if is_settled => all.saturating_sub(kept).min(all.div_ceil(10)),
            0 => 0,
            // No memory: at once, but what they had is seen only after they have gone.
            excess => excess.min(all.div_ceil(4)),
        };
        self.shrunk = if surplus > 0 { Some(now) } else { self.shrunk };
        surplus
    }

    /// Why there are so many workers, for an operator.
    pub fn reason(&self, all: usize, now: Instant) -> Reason {
        let useful = self.useful().map_or(0, |useful| (useful * HEADROOM).ceil() as usize).max(self.bounds.least());
        // Of equal ones, the latest.
        let peak = self.peaks.iter().max_by_key(|(_, peak)| *peak);
        let peak = peak.map(|(at, peak)| (*peak, now.saturating_duration_since(*at)));
        Reason {
            workers: all,
            cores: self.bounds.cores,
            waiting_share: self.waiting_share(),
            kept: peak.filter(|(peak, ago)| all > useful && *peak > useful && *ago > 2 * PEAK),
            memory_allows: self.memory_allows,
            max: self.bounds.max,
        }
    }
}

/// What the number of workers follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// How many there are.
    pub workers: usize,
    /// How many processors they have.
    pub cores: f64,
    /// How much of a request is waiting for others than the processors, from 0 to 1.
    pub waiting_share: Option<f64>,
    /// If more are kept than requests keep busy now: how many were of use at the most lately, and how long ago.
    pub kept: Option<(usize, Duration)>,
    /// How many the memory has room for.
    pub memory_allows: Option<usize>,
    /// How many there may be.
    pub max: usize,
}

impl fmt::Display for Reason {
    /// `12 workers: 2 cores, 87 % of a request is waiting, memory allows 140`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |count: f64, word| format!("{count} {word}{}", if count == 1.0 { "" } else { "s" });
        write!(f, "{}: {}", number(self.workers as f64, "worker"), number(self.cores, "core"))?;
        match self.waiting_share {
            Some(share) => write!(f, ", {:.0} % of a request is waiting", share * 100.0)?,
            None => write!(f, ", too few requests yet to say what they wait for")?,
        }
        if let Some((count, ago)) = self.kept {
            write!(f, ", {count} were of use {} s ago", ago.as_secs())?;
        }
        match self.memory_allows {
            Some(allows) if allows < self.max => write!(f, ", memory allows {allows}"),
            _ => write!(f, ", at most {}", self.max),
        }
    }
}

#[cfg(test)]
mod tests;
