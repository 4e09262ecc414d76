//! How many workers an application needs: the policy of `"processes": "auto"`. Pure: the caller passes in the
//! measurements and the time.
//!
//! - Up: when requests wait for some milliseconds, the number becomes the useful one ([`law`]). If workers are seen to
//!   wait for others than the processors, so that a processor is idle, the useful number is too small, and the number
//!   of workers doubles (it quadruples if most processors are idle). It never exceeds the number of requests. A fork is
//!   cheap, so the next decision follows after [`QUEUED_INTERVAL`]. Beside programs that always compute, no processor is
//!   idle; workers that hardly wait for one grow in number all the same.
//! - Proof: more workers must finish more requests per second than fewer did ([`trial`]). Otherwise they are retired
//!   again, and the number that is left is measured once more. A rate is no yardstick for other requests: once workers
//!   wait for others although the last requests only computed, the policy forgets what it measured. Code that only
//!   computes has one worker for each processor, and one or two more if these finish more.
//! - Down: slowly, to the largest useful number of the last minutes ([`peaks`]). Workers that a burst needed are kept
//!   for the next burst, so the number does not oscillate. While no processor is idle, the law also shows how many
//!   workers are enough for the requests that are finished now: if there have been more for a while, that number is
//!   tried, and kept unless it finishes clearly less. Other programs may have taken the processors then.
//! - Memory: never more workers than the free memory of the machine, or of the control group, has room for ([`room`]).
//!
//! Nothing here fails: measurements that contradict each other cause a poor decision within the bounds.

mod law;
mod peaks;
mod rate;
mod reason;
mod room;
mod sample;
mod trial;

use law::Law;
use peaks::Peaks;
use rate::{Rate, RateWindow};
use room::Room;
use std::time::{Duration, Instant};
use trial::{Candidates, Growth, NO_LOSS, Pause, Probe, Verdict};

pub use reason::Reason;
pub use sample::{Bounds, Decision, Memory, Sample, Usage};

/// The policy and its history.
#[derive(Clone, Debug)]
pub struct Sizing {
    bounds: Bounds,
    law: Law,
    /// How many processors the workers keep busy, averaged over the last decisions, and when that was.
    occupied: Option<(Instant, f64)>,
    /// How many requests had been finished, and when that was: a moment ago, while requests wait.
    progress: Option<(Instant, u64)>,
    window: RateWindow,
    /// The last rate that was known, and when that was.
    last_rate: Option<(Instant, Rate)>,
    growth: Growth,
    probe: Probe,
    /// The last trial, and when it ended.
    verdict: Option<(Instant, Verdict)>,
    /// The law since the last change of the number of workers, and that number.
    settled: Law,
    settled_workers: usize,
    /// Since when there have been more workers than useful ones, which wait for processors; and how many are enough.
    crowd: Option<(Instant, usize)>,
    /// Before the number of workers exceeds the useful one again.
    crowd_pause: Pause,
    peaks: Peaks,
    /// The largest useful number since the growth that has to prove itself.
    unproven_peak: usize,
    room: Room,
    /// When workers were last retired.
    shrunk: Option<Instant>,
}

/// The numbers of one decision.
#[derive(Clone, Copy, Debug)]
struct Situation {
    /// How many workers there are.
    all: usize,
    /// The requests that are under way or wait.
    needed: usize,
    /// The useful number of workers.
    useful: usize,
    /// The fewest and the most workers.
    least: usize,
    most: usize,
    /// The requests that wait for a worker.
    queue: Queue,
    /// Whether requests do little else than compute.
    computes: bool,
    /// Whether the last requests only computed, and the ones of now wait for others than the processors: these are
    /// other requests.
    begins_to_wait: bool,
}

/// The requests that wait for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// None waits, or workers for them are being started.
    Empty,
    /// None waited a moment ago.
    New,
    /// They wait for too short a time to start workers for them.
    Short,
    /// They wait long enough to start workers for them.
    Long,
}

/// When to decide again while requests wait.
pub const QUEUED_INTERVAL: Duration = Duration::from_millis(10);
/// The same while requests only compute: the next step is a trial.
const TRIAL_INTERVAL: Duration = Duration::from_millis(50);
/// When to decide again while there are more workers than the least.
const SHRINK_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// When to decide again if there is nothing to decide. The measurements of that time show how long requests wait for
/// others than the processors.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// With this share of the processors in use, another worker would not find a free one.
const SATURATED: f64 = 0.9;
/// With less than this share in use, a few more workers will not fill the processors.
const MOSTLY_IDLE: f64 = 0.5;
/// The weight of a new sample of the processors that are in use, while nothing else is known of the requests, and
/// later.
const WEIGHT_IF_UNKNOWN: f64 = 0.5;
const WEIGHT_IF_KNOWN: f64 = 0.125;
/// How many workers are kept for each useful one.
const HEADROOM: f64 = 1.1;
/// The least time between two retirements.
const SHRINK_INTERVAL: Duration = Duration::from_secs(1);
/// A request that waits no longer than this for a worker is no reason for more workers.
const SHORT_WAIT: Duration = Duration::from_millis(3);
/// A request that waits no longer than this for others than the processors only computes: a preempted worker looks the
/// same.
const SHORTEST_OWN_WAIT: Duration = Duration::from_micros(100);
/// A request that waits for others is worth a worker if it waits longer for that than this share of its own wait.
const SHARE_OF_OWN_WAIT: u32 = 10;
/// With fewer useful workers per processor than this, requests only compute.
const COMPUTES: f64 = 1.25;
/// While workers wait for a processor for more than this share of their time, more workers only make the time longer.
const MOSTLY_DELAYED: f64 = 0.3;
/// With more than this share of busy workers, they are loaded even if no request waits.
const MOSTLY_BUSY: f64 = 0.7;
/// The share of the workers that is tried more if requests do not only compute.
const PROBED_SHARE: usize = 4;
/// The most workers that are tried without another reason, for each useful one.
const PROBED_FOR_USEFUL: usize = 4;
/// A rate of a longer time ago proves nothing about a growth of now.
const RECENT_RATE: Duration = Duration::from_secs(2);
/// Workers that compete for the processors are retired after this time.
const CROWDED_TIME: Duration = Duration::from_millis(500);

/// How often the use of time by this number of workers is measured: a measurement takes some microseconds for each.
pub fn usage_interval(workers: usize) -> Duration {
    Duration::from_millis(100 + workers as u64)
}

// === impl Sizing ===

impl Sizing {
    /// The policy without any measurement.
    pub fn new(bounds: Bounds) -> Sizing {
        Sizing {
            bounds,
            law: Law::default(),
            occupied: None,
            progress: None,
            window: RateWindow::default(),
            last_rate: None,
            growth: Growth::default(),
            probe: Probe::default(),
            verdict: None,
            settled: Law::default(),
            settled_workers: 0,
            crowd: None,
            crowd_pause: Pause::default(),
            peaks: Peaks::default(),
            unproven_peak: 0,
            room: Room::default(),
            shrunk: None,
        }
    }

    /// Changes how many processors the application may use.
    pub fn set_cores(&mut self, cores: f64) {
        self.bounds.cores = cores;
    }

    /// Decides by the measurements of now.
    pub fn decide(&mut self, sample: Sample, now: Instant) -> Decision {
        self.record(&sample, now);
        let demand = sample.demand;
        let situation = self.situation(&sample, now);
        let Situation { all, least, most, computes, .. } = situation;
        if situation.begins_to_wait {
            self.forget_requests();
        }

        // Two reasons at a time would prove nothing.
        let (grown, lacks_memory) = match self.probe.is_under_way(now) {
            true => (all, None),
            false => self.grown(&sample, situation, now),
        };
        let tried = if grown > all { None } else { self.try_number(situation, now) };
        let tried = tried.map(|number| number.min(most.max(all)));
        let wanted = tried.unwrap_or(grown).max(all);
        let keeps = self.bounds.max.min(self.room.keeps.unwrap_or(usize::MAX));
        let surplus = match tried {
            Some(number) if number < all && all <= keeps => all - number,
            _ => self.surplus(all, least, keeps, now),
        };
        let is_trying = self.probe.is_under_way(now) || self.growth.awaits_rate();
        let pause = match situation.queue {
            Queue::New => SHORT_WAIT,
            _ if computes || is_trying => TRIAL_INTERVAL,
            _ => QUEUED_INTERVAL,
        };
        let decide_again_in = match demand.waiting {
            1.. => pause,
            0 if is_trying => TRIAL_INTERVAL,
            0 if all > least || surplus > 0 => SHRINK_CHECK_INTERVAL,
            0 => IDLE_INTERVAL,
        };
        Decision { wanted, surplus, decide_again_in, pause, lacks_memory }
    }

    fn situation(&mut self, sample: &Sample, now: Instant) -> Situation {
        let Sample { demand, finished, .. } = *sample;
        let busy = demand.all.saturating_sub(demand.idle + demand.starting);
        let most = self.bounds.max.min(self.room.allows.unwrap_or(usize::MAX));
        let least = self.bounds.least().min(most);
        let for_each_core = self.law.for_each_core();
        let queue = match demand.has_queue() && demand.waiting > demand.starting {
            true => self.queue(demand.waiting, finished, now),
            false => Queue::Empty,
        };
        if queue == Queue::Long {
            // One sample may find a worker in a short moment in which it waits for something else, so some are
            // averaged.
            let occupied = (busy as f64 - sample.blocked).clamp(0.0, self.bounds.cores);
            let weight = if for_each_core.is_some() { WEIGHT_IF_KNOWN } else { WEIGHT_IF_UNKNOWN };
            let first = if for_each_core.is_some() { self.bounds.cores } else { occupied };
            let before = self.occupied.map_or(first, |(_, before)| before);
            self.occupied = Some((now, before + (occupied - before) * weight));
        }
        let is_blocked = self.occupied.is_some_and(|(_, occupied)| occupied < SATURATED * self.bounds.cores);
        let computed = for_each_core.is_some_and(|workers| workers < COMPUTES);
        Situation {
            all: demand.all,
            needed: busy + if demand.has_queue() { demand.waiting } else { 0 },
            useful: self.law.staffed(self.bounds.cores).map_or(least, |useful| useful.round() as usize).max(least),
            least,
            most,
            queue,
            computes: computed && !is_blocked,
            begins_to_wait: computed && is_blocked,
        }
    }

    /// The requests are other ones now. The measurements of the former ones prove nothing about these: their use of time,
    /// their rate, and the numbers of workers that were tried with them.
    fn forget_requests(&mut self) {
        (self.law, self.settled, self.crowd) = (Law::default(), Law::default(), None);
        self.window.restart();
        self.last_rate = None;
        self.growth.forget();
        self.probe.abandon();
    }

    /// The state of a queue that is not empty, by Little's law: as many requests as wait now will have been finished
    /// when the last one begins.
    fn queue(&mut self, waiting: usize, finished: u64, now: Instant) -> Queue {
        let Some((since, before)) = self.progress else {
            self.progress = Some((now, finished));
            return Queue::New;
        };
        let passed = now.saturating_duration_since(since);
        if passed >= 2 * QUEUED_INTERVAL {
            self.progress = Some((now, finished));
        }
        let wait = match finished.saturating_sub(before) {
            0 => passed,
            count => passed.mul_f64(waiting as f64 / count as f64),
        };
        let own_wait = self.law.wait_of_request();
        let short =
            if own_wait < SHORTEST_OWN_WAIT { SHORT_WAIT } else { SHORT_WAIT.min(own_wait / SHARE_OF_OWN_WAIT) };
        if passed >= short.min(SHORT_WAIT / 2) && wait >= short { Queue::Long } else { Queue::Short }
    }

    /// How many workers the measurements of requests justify, and the memory's bound if that is lower.
    fn grown(&mut self, sample: &Sample, situation: Situation, now: Instant) -> (usize, Option<usize>) {
        let Situation { all, needed, useful, least, most, queue, computes, .. } = situation;
        let cores = self.bounds.cores.ceil() as usize;
        let occupied = self.occupied.map_or(1.0, |(_, occupied)| occupied / self.bounds.cores);
        let is_free = self.crowd_pause.is_over(now) || !self.law.is_machine_busy();
        let occupied = if is_free { occupied.max(self.law.occupied()) } else { 1.0 };
        let settled = all - sample.demand.starting.min(all);
        let ceiling = self.growth.ceiling(now);
        let justified = match occupied {
            _ if queue != Queue::Long => 0,
            // The workers compute, and there are fewer than processors.
            ..SATURATED if sample.blocked == 0.0 => useful.max(cores),
            ..MOSTLY_IDLE => useful.max(4 * settled),
            ..SATURATED => useful.max(2 * settled),
            // One more may be better, which a trial shows.
            _ if computes => useful.min(cores),
            _ if self.law.delayed_share() > MOSTLY_DELAYED => 0,
            _ => useful,
        };
        let wanted = needed.min(justified).min(ceiling).max(least);
        let lacks_memory = (wanted.min(self.bounds.max) > most).then_some(most.max(all));
        let wanted = wanted.min(most).max(all);
        if wanted > all {
            let recent = self.last_rate.filter(|(at, _)| now.saturating_duration_since(*at) < RECENT_RATE);
            self.growth.begin(recent.map(|(_, rate)| rate).filter(|rate| rate.workers <= all));
        }
        let useful_now = needed.min(if occupied < SATURATED { wanted } else { useful });
        self.record_peak(useful_now, now);
        (wanted, lacks_memory)
    }

    /// A useful number counts only after the growth has proved itself.
    fn record_peak(&mut self, useful_now: usize, now: Instant) {
        self.unproven_peak = self.unproven_peak.max(useful_now);
        if !self.growth.is_under_way() {
            self.peaks.record(std::mem::take(&mut self.unproven_peak), now);
        }
    }

    /// Judges a growth, or tries one worker more or fewer. Returns the number of workers that there should be, if that
    /// is not the one of other reasons.
    fn try_number(&mut self, situation: Situation, now: Instant) -> Option<usize> {
        let Situation { all, needed, computes, .. } = situation;
        if self.crowd(now).is_some() && computes {
            self.probe.abandon();
            return Some(self.bounds.most_computing());
        }
        if !self.law.is_machine_busy() {
            self.crowd_pause = Pause::default();
        }
        if !self.window.is_loaded(now) {
            self.growth.on_lull();
            return self.probe.abandon().map(|most| most.min(all));
        }
        if let Some(verdict) = self.growth.judge(self.window.rate(), now) {
            self.verdict = Some((now, verdict));
            self.unproven_peak = self.unproven_peak.min(verdict.keep);
            self.window.restart();
            return Some(verdict.keep.min(needed.max(all)));
        }
        if self.growth.awaits_rate() {
            return self.probe.abandon().map(|most| most.min(all));
        }
        let (number, verdict) = self.probe.step(all, self.window.rate(), self.candidates(situation, now), now);
        if let Some(verdict) = verdict {
            self.verdict = Some((now, verdict));
            self.peaks.record(verdict.keep, now);
            self.window.restart();
            match verdict.keep < verdict.before.workers {
                true if computes => self.growth.fail(verdict.keep, now),
                true => self.crowd_pause.on_failure(now),
                false => {}
            }
        }
        Some(number)
    }

    /// Notices when there have been more workers than useful ones for a while, which wait for processors.
    fn record_crowd(&mut self, all: usize, now: Instant) {
        let waits = self.settled.is_machine_busy() || self.settled.delayed_share() > MOSTLY_DELAYED;
        let useful = self.settled.staffed(self.bounds.cores).filter(|_| waits && self.window.is_loaded(now));
        let is_crowded = |useful: &f64| all > self.bounds.most_computing() && all as f64 > useful * HEADROOM;
        self.crowd = useful.filter(is_crowded).map(|useful| {
            let enough = self.bounds.most_computing().max(useful.ceil() as usize);
            (self.crowd.map_or(now, |(since, _)| since), enough)
        });
    }

    /// The number of workers that is enough, if there have been more for a while.
    fn crowd(&self, now: Instant) -> Option<usize> {
        let lasting = self.crowd.filter(|(since, _)| now.saturating_duration_since(*since) >= CROWDED_TIME);
        lasting.map(|(_, most)| most)
    }

    /// Which numbers may be better than the one of now.
    fn candidates(&self, situation: Situation, now: Instant) -> Candidates {
        let Situation { all, useful, least, most, queue, computes, .. } = situation;
        let cores = self.bounds.cores.ceil() as usize;
        let least = least.max(cores.min(most));
        let more = |number: usize, bound: usize| Some(number.min(bound).min(most)).filter(|number| *number > all);
        let fewer = |number: usize| Some(number.max(least)).filter(|number| *number < all);
        if computes {
            return Candidates {
                more: more(all + 1, self.bounds.most_computing()),
                fewer: fewer(all.saturating_sub(1)).filter(|_| all <= self.bounds.most_computing()),
                gain_of_fewer: 1.0,
            };
        }
        // While no processor is idle, the law knows the number.
        let may_be_more = queue != Queue::Empty && !self.law.is_machine_busy();
        Candidates {
            more: more(all + all.div_ceil(PROBED_SHARE), useful * PROBED_FOR_USEFUL).filter(|_| may_be_more),
            fewer: self.crowd(now).and_then(fewer),
            gain_of_fewer: NO_LOSS,
        }
    }

    fn record(&mut self, sample: &Sample, now: Instant) {
        let Sample { demand, finished, .. } = *sample;
        if let Some(memory) = sample.memory {
            self.room.record(memory, sample, self.bounds.memory);
        }
        if let Some(usage) = sample.usage {
            self.law.record(usage);
            self.settled.record(usage);
        }
        if self.settled_workers != demand.all {
            (self.settled, self.settled_workers, self.crowd) = (Law::default(), demand.all, None);
        }
        let settled = demand.all - demand.starting.min(demand.all);
        let busy = settled.saturating_sub(demand.idle);
        let competes = busy as f64 > self.bounds.cores && self.law.is_machine_busy();
        let is_loaded = demand.waiting > 0 || competes || busy as f64 > MOSTLY_BUSY * settled as f64;
        if self.growth.is_confirming() && sample.leaving > 0 {
            // The last requests of retired workers do not count for the others.
            self.window.restart();
        }
        self.window.record(settled, busy, finished, is_loaded, now);
        self.record_crowd(demand.all, now);
        self.last_rate = self.window.rate().map(|rate| (now, rate)).or(self.last_rate);
        let is_recent = |at: Instant| now.saturating_duration_since(at) < 10 * QUEUED_INTERVAL;
        self.occupied = self.occupied.filter(|(at, _)| is_recent(*at));
        self.progress = self.progress.filter(|(at, _)| is_recent(*at));
    }

    fn surplus(&mut self, all: usize, least: usize, most: usize, now: Instant) -> usize {
        if self.shrunk.is_some_and(|at| now.saturating_duration_since(at) < SHRINK_INTERVAL) {
            return 0;
        }
        let peak = self.peaks.largest(now).map_or(0, |(peak, _)| peak);
        let kept = ((peak as f64 * HEADROOM).ceil() as usize).max(least);
        let surplus = match all.saturating_sub(most) {
            0 if self.peaks.are_complete(now) => all.saturating_sub(kept).min(all.div_ceil(10)),
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
        let useful = self.law.for_each_core().map(|workers| workers * self.bounds.cores);
        let useful = useful.map_or(0, |useful| (useful * HEADROOM).ceil() as usize).max(self.bounds.least());
        let peak = self.peaks.largest(now);
        let is_current = |verdict: &Verdict| [verdict.before.workers, verdict.tried.workers].contains(&all);
        Reason {
            workers: all,
            cores: self.bounds.cores,
            waiting_share: self.law.waiting_share(),
            trial: self
                .verdict
                .filter(|(_, verdict)| is_current(verdict) || verdict.keep == all)
                .map(|(at, verdict)| (verdict, now.saturating_duration_since(at))),
            kept: peak.filter(|(peak, ago)| all > useful && *peak > useful && *ago > 2 * peaks::PERIOD),
            memory_allows: self.room.allows,
            max: self.bounds.max,
        }
    }
}

#[cfg(test)]
mod tests;
