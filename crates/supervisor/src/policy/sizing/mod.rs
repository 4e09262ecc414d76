//! How many workers an application needs: the policy of `"processes": "auto"`. Pure: the caller passes in the
//! measurements and the time.
//!
//! Two laws of queues (Denning and Buzen, "The Operational Analysis of Queueing Network Models", 1978) give the number
//! of useful workers. By the utilisation law, requests that use `cpu` seconds of a processor are finished at a rate of
//! at most `cores / cpu`. By Little's law, to finish that many when each takes `wall` seconds, `cores × wall / cpu` of
//! them must be under way. The time in which a worker waits for a processor does not count as `wall`: more workers
//! would only make it longer.
//!
//! - Up: when requests wait, the number becomes the useful one. If the workers leave a processor idle at that moment,
//!   the useful number is too small, and the number of workers doubles (it quadruples if they leave most processors
//!   idle). It never exceeds the number of requests. A fork is cheap, so the next decision follows after
//!   [`QUEUED_INTERVAL`].
//! - Down: slowly, to the largest useful number of the last [`KEEP_TIME`]. Workers that a burst needed are kept for the
//!   next burst, so the number does not oscillate.
//! - Memory: never more workers than the free memory of the machine, or of the control group, has room for. New workers
//!   will use more memory later, and workers that leave still use theirs: both are counted.
//!
//! Nothing here fails: measurements that contradict each other cause a poor decision within the bounds.

use crate::policy::demand::Demand;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// The bounds of every decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// How many processors the application may use: 0.5 is half of one.
    pub cores: f64,
    /// The largest number of workers.
    pub max: usize,
    /// How much memory the workers may use together, in bytes; `None` is no bound.
    pub memory: Option<u64>,
}

/// The measurements of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The workers and the requests that wait.
    pub demand: Demand,
    /// How many of the busy workers use a processor, or wait for one.
    pub runnable: f64,
    /// How many of the workers will still use more memory than now.
    pub young: usize,
    /// How many other workers were retired, and still use their memory.
    pub leaving: usize,
    /// The usage since the last measurement; `None` if that was a moment ago.
    pub usage: Option<Usage>,
    /// The memory; `None` if it could not be measured.
    pub memory: Option<Memory>,
}

/// The usage of all workers together within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// That time, in seconds.
    pub within: f64,
    /// How long they were busy with requests, in seconds.
    pub wall: f64,
    /// How long processors were busy with them, in seconds.
    pub cpu: f64,
    /// How long they waited for a processor, in seconds.
    pub delayed: f64,
}

/// How much memory there is for workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How much may still be used, in bytes; negative if too much is in use already.
    pub room: i64,
    /// The same without what new workers of other applications will use.
    pub room_for_more: i64,
    /// How much one worker uses, in bytes, after it has run for a while.
    pub worker: u64,
}

/// The policy and its history.
#[derive(Clone, Debug)]
pub struct Sizing {
    bounds: Bounds,
    /// Sums in which the past decays.
    usage: Usage,
    /// How many processors the workers keep busy, averaged over the last decisions, and when that was.
    occupied: Option<(Instant, f64)>,
    /// The largest useful number of workers in each second of [`KEEP_TIME`], and the time at which that second began.
    peaks: VecDeque<(Instant, usize)>,
    /// How many workers the memory had room for at the last measurement: up to `memory_allows` may be started, and
    /// workers beyond `memory_keeps` are retired.
    memory_allows: Option<usize>,
    memory_keeps: Option<usize>,
    /// When workers were last retired.
    shrunk: Option<Instant>,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How many workers there should be. Never fewer than there are.
    pub wanted: usize,
    /// How many workers to retire: idle ones first, the others after their request.
    pub surplus: usize,
    /// When to decide again, unless requests wait earlier.
    pub decide_again_in: Duration,
    /// Set if the memory keeps the number at this bound.
    pub lacks_memory: Option<usize>,
}

/// When to decide again while requests wait.
pub const QUEUED_INTERVAL: Duration = Duration::from_millis(10);
/// When to decide again while there are more workers than the least.
const SHRINK_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// When to decide again if there is nothing to decide. The measurements of that time show how long requests wait for
/// others than the processors.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How long useful workers are kept.
const KEEP_TIME: Duration = Duration::from_secs(600);
/// One peak is stored for each period of this length.
const PEAK_PERIOD: Duration = Duration::from_secs(1);
/// After this time, in seconds, a past request counts for about a third.
const USAGE_DECAY_SECONDS: f64 = 10.0;
/// Less use of processors than this, in seconds, is too little to conclude anything about requests.
const MIN_KNOWN_CPU: f64 = 0.005;
/// With this share of the processors in use, another worker would not find a free one.
const SATURATED: f64 = 0.9;
/// With less than this share in use, a few more workers will not fill the processors.
const MOSTLY_IDLE: f64 = 0.5;
/// How many workers are kept for each useful one.
const HEADROOM: f64 = 1.1;
/// The least time between two retirements.
const SHRINK_INTERVAL: Duration = Duration::from_secs(1);

// === impl Bounds ===

impl Bounds {
    /// How many workers there are when nothing is known, and when there are no requests: two, so that one slow request
    /// does not block all others. No more, because a machine may have many applications, and a fork is cheap.
    pub fn least(&self) -> usize {
        2.min(self.max)
    }
}

// === impl Sizing ===

impl Sizing {
    /// The policy without any measurement.
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

    /// Changes how many processors the application may use.
    pub fn set_cores(&mut self, cores: f64) {
        self.bounds.cores = cores;
    }

    /// Decides by the measurements of now.
    pub fn decide(&mut self, sample: Sample, now: Instant) -> Decision {
        let Sample { demand, .. } = sample;
        self.record(&sample, now);
        let busy = demand.all.saturating_sub(demand.idle + demand.starting);
        let needed = busy + if demand.has_queue() { demand.waiting } else { 0 };
        let most = self.bounds.max.min(self.memory_allows.unwrap_or(usize::MAX));
        let least = self.bounds.least().min(most);
        let useful = self.useful().map_or(least, |useful| useful.round() as usize).max(least);

        let occupied = self.occupied.map_or(0.0, |(_, occupied)| occupied / self.bounds.cores);
        let has_idle_processor = occupied < SATURATED;
        let wanted = if demand.has_queue() && demand.waiting > demand.starting {
            let settled = demand.all - demand.starting.min(demand.all);
            let factor = match occupied {
                ..MOSTLY_IDLE => 4,
                ..SATURATED => 2,
                _ => 1,
            };
            needed.min(useful.max(factor * settled)).max(least)
        } else {
            least
        };
        let lacks_memory = (wanted.min(self.bounds.max) > most).then_some(most.max(demand.all));
        let wanted = wanted.min(most).max(demand.all);
        let useful_now = needed.min(if has_idle_processor { wanted } else { useful });
        self.record_peak(useful_now, now);
        let keeps = self.bounds.max.min(self.memory_keeps.unwrap_or(usize::MAX));
        let surplus = self.surplus(demand.all, least, keeps, now);
        let decide_again_in = match (demand.waiting, demand.all > least || surplus > 0) {
            (1.., _) => QUEUED_INTERVAL,
            (0, true) => SHRINK_CHECK_INTERVAL,
            (0, false) => IDLE_INTERVAL,
        };
        Decision { wanted, surplus, decide_again_in, lacks_memory }
    }

    /// How many workers keep the processors busy; `None` if too few requests were measured.
    fn useful(&self) -> Option<f64> {
        let Usage { wall, cpu, delayed, .. } = self.usage;
        (cpu >= MIN_KNOWN_CPU).then(|| self.bounds.cores * ((wall - delayed) / cpu).max(1.0))
    }

    /// How much of a request is waiting for others than the processors, from 0 to 1.
    fn waiting_share(&self) -> Option<f64> {
        self.useful().map(|useful| 1.0 - self.bounds.cores / useful)
    }

    /// How many workers the memory has room for, beside `settled` workers that use all that they will. At least one, or
    /// no request would ever be answered.
    fn room_for(&self, memory: Memory, settled: usize) -> usize {
        let worker = i64::try_from(memory.worker.max(1)).unwrap_or(i64::MAX);
        let by_room = (settled as i64).saturating_add(memory.room.div_euclid(worker)).max(1) as usize;
        let by_bound = self.bounds.memory.map_or(usize::MAX, |memory| (memory / worker as u64) as usize);
        by_room.min(by_bound).max(1)
    }

    fn record(&mut self, sample: &Sample, now: Instant) {
        if let Some(memory) = sample.memory {
            let all = sample.demand.all + sample.leaving;
            // It is not known how much of their memory the young workers use already: to start more workers, they count
            // as if they used nothing; to keep them, as if they used all of it.
            let for_more = Memory { room: memory.room_for_more, ..memory };
            self.memory_allows = Some(self.room_for(for_more, all.saturating_sub(sample.young)));
            self.memory_keeps = Some(self.room_for(memory, all));
        }
        if let Some(usage) = sample.usage {
            let past = (-usage.within / USAGE_DECAY_SECONDS).exp();
            let sum = |past_sum: f64, sum: f64| past_sum * past + sum;
            self.usage = Usage {
                within: usage.within,
                wall: sum(self.usage.wall, usage.wall),
                cpu: sum(self.usage.cpu, usage.cpu),
                delayed: sum(self.usage.delayed, usage.delayed),
            };
        }
        // Only samples that are taken while requests wait show whether they wait for a processor. One sample may find a
        // worker in a short moment in which it waits for something else, so two are averaged.
        self.occupied = self.occupied.filter(|(at, _)| now.saturating_duration_since(*at) < 10 * QUEUED_INTERVAL);
        if sample.demand.has_queue() {
            let occupied = sample.runnable.min(self.bounds.cores);
            self.occupied = Some((now, self.occupied.map_or(occupied, |(_, before)| (before + occupied) / 2.0)));
        }
    }

    fn record_peak(&mut self, useful_now: usize, now: Instant) {
        while self.peaks.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > KEEP_TIME) {
            self.peaks.pop_front();
        }
        match self.peaks.back_mut() {
            Some((at, peak)) if now.saturating_duration_since(*at) < PEAK_PERIOD => {
                *peak = useful_now.max(*peak);
            }
            _ => self.peaks.push_back((now, useful_now)),
        }
    }

    fn surplus(&mut self, all: usize, least: usize, most: usize, now: Instant) -> usize {
        if self.shrunk.is_some_and(|at| now.saturating_duration_since(at) < SHRINK_INTERVAL) {
            return 0;
        }
        let peak = self.peaks.iter().map(|(_, peak)| *peak).max().unwrap_or_default();
        let kept = ((peak as f64 * HEADROOM).ceil() as usize).max(least);
        let is_settled =
            self.peaks.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) + PEAK_PERIOD >= KEEP_TIME);
        let surplus = match all.saturating_sub(most) {
            0 if is_settled => all.saturating_sub(kept).min(all.div_ceil(10)),
            0 => 0,
            // No memory: at once, but in steps, because the memory of retired workers is free only after they have
            // exited.
            excess => excess.min(all.div_ceil(4)),
        };
        self.shrunk = if surplus > 0 { Some(now) } else { self.shrunk };
        surplus
    }

    /// The reason for the number of workers, for an operator.
    pub fn reason(&self, all: usize, now: Instant) -> Reason {
        let useful = self.useful().map_or(0, |useful| (useful * HEADROOM).ceil() as usize).max(self.bounds.least());
        // Of equal peaks, the latest.
        let peak = self.peaks.iter().max_by_key(|(_, peak)| *peak);
        let peak = peak.map(|(at, peak)| (*peak, now.saturating_duration_since(*at)));
        Reason {
            workers: all,
            cores: self.bounds.cores,
            waiting_share: self.waiting_share(),
            kept: peak.filter(|(peak, ago)| all > useful && *peak > useful && *ago > 2 * PEAK_PERIOD),
            memory_allows: self.memory_allows,
            max: self.bounds.max,
        }
    }
}

/// The reason for the number of workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// How many there are.
    pub workers: usize,
    /// How many processors they have.
    pub cores: f64,
    /// How much of a request is waiting for others than the processors, from 0 to 1.
    pub waiting_share: Option<f64>,
    /// Set if more workers are kept than requests keep busy now: the largest useful number, and how long ago that was.
    pub kept: Option<(usize, Duration)>,
    /// How many the memory has room for.
    pub memory_allows: Option<usize>,
    /// The largest number of workers.
    pub max: usize,
}

impl fmt::Display for Reason {
    /// `12 workers: 2 cores, 87 % of a request is waiting, memory allows 140`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |count: f64, word| format!("{count} {word}{}", if count == 1.0 { "" } else { "s" });
        write!(f, "{}: {}", number(self.workers as f64, "worker"), number(self.cores, "core"))?;
        match self.waiting_share {
            Some(share) => write!(f, ", {:.0} % of a request is waiting", share * 100.0)?,
            None => write!(f, ", too few requests to measure what they wait for")?,
        }
        if let Some((count, ago)) = self.kept {
            write!(f, ", {count} were useful {} s ago", ago.as_secs())?;
        }
        match self.memory_allows {
            Some(allows) if allows < self.max => write!(f, ", memory allows {allows}"),
            _ => write!(f, ", at most {}", self.max),
        }
    }
}

#[cfg(test)]
mod tests;
