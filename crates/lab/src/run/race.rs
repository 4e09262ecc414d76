//! One run: a stack under a load, with its processes and the load generator measured.

use crate::load::connection::Endpoint;
use crate::load::tally::{Tally, distribution, percentiles};
use crate::load::{Load, Outcome, Pace, Progress, Stop};
use crate::measure::kernel_events::{Counting, KernelEvents};
use crate::measure::{Role, RoleSample, Sample, Sampler, role};
use crate::plan::{LoadPlan, Plan};
use crate::results::{Generator, RoleUsage, Run, RunState, Second, Usage};
use crate::stacks::detect::find;
use crate::statistics::summarize::{Measured, span};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A stack that is ready for load.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// Its name.
    pub stack: &'a str,
    /// Its address.
    pub endpoint: &'a Endpoint,
    /// The value of `Host`.
    pub host: &'a str,
    /// Its processes; empty if they are unknown.
    pub roots: &'a [u32],
    /// Their jobs.
    pub roles: &'a [Role],
}

/// The load generator, and the counters beside it.
#[derive(Clone, Debug)]
pub struct Means {
    /// Threads of the load generator.
    pub threads: usize,
    /// Their cores; empty: any.
    pub cores: Vec<u32>,
    /// perf, if system calls and instructions are to be counted.
    pub perf: Option<PathBuf>,
}

/// The place of a run in the lab.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The round, from 1.
    pub round: u32,
    /// Its number, from 1.
    pub position: u32,
    /// Seconds since the start of the lab.
    pub started_after: Duration,
}

/// Connections that warm up a stack before an open loop.
const WARM_UP_CONNECTIONS: u32 = 10;
/// Above this share of late requests, the load was not the one that lab.json describes.
const MAX_LATE_SHARE: f64 = 0.05;
/// A thread of the generator that used more of its core than this was the bottleneck.
const MAX_THREAD_CPU: f64 = 95.0;
/// Shorter intervals between two samples give no CPU percentage.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(400);
/// Less CPU time is below the kernel's clock.
const SHORTEST_CPU: Duration = Duration::from_millis(50);

// === impl Means ===

impl Means {
    /// The means of a lab.
    pub fn of(plan: &Plan) -> Means {
        let perf = if plan.counts_events { find("perf") } else { None };
        Means { threads: plan.threads, cores: plan.generator_cores.clone(), perf }
    }
}

/// Warms a stack up and runs a load; with perf a second time, for what only perf counts.
///
/// # Errors
/// The load generator cannot work: the kernel gives it no descriptors or not its cores.
pub fn run(
    target: &Target,
    load: &LoadPlan,
    means: &Means,
    position: Position,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Measured, String> {
    let whole = Load {
        endpoint: target.endpoint.clone(),
        host: target.host.to_owned(),
        targets: load.targets.clone(),
        pace: load.pace.clone(),
        keep_alive: load.keep_alive,
        timeout: load.timeout,
        keeps_cookies: load.keeps_cookies,
        sessions: load.sessions.clone(),
        autostop: load.autostop.iter().map(|(_, condition)| condition.clone()).collect(),
        threads: means.threads,
        cores: means.cores.clone(),
    };
    if !load.warm_up.is_zero() {
        let connections = match load.pace {
            Pace::Closed { connections, .. } => connections,
            Pace::Open { connections, .. } => connections.min(WARM_UP_CONNECTIONS),
        };
        let pace = Pace::Closed { connections, length: Some(load.warm_up), requests: None };
        crate::load::run(&Load { pace, autostop: Vec::new(), ..whole.clone() }, interrupted, &mut |_| {})?;
    }
    let sampler = Sampler::start(target.roots.to_vec(), target.roles.to_vec());
    let outcome = crate::load::run(&whole, interrupted, progress);
    let samples = sampler.finish();
    let outcome = outcome?;
    let mut run = describe(target, load, position, &outcome, &samples);
    if let (Some(perf), Some(usage), RunState::Complete) = (&means.perf, &mut run.usage, &run.state) {
        let counting = Counting::start(perf, &role::pids(target.roles, target.roots))?;
        let again = crate::load::run(&whole, interrupted, &mut |_| {});
        let counted = counting.finish();
        add_events(&mut usage.roles, &counted, again?.tally.right);
    }
    Ok(Measured { run, latency: outcome.tally.latency })
}

/// Adds what perf counted in a run with this number of right requests.
fn add_events(roles: &mut BTreeMap<String, RoleUsage>, counted: &BTreeMap<String, KernelEvents>, right: u64) {
    for (name, usage) in roles {
        let events = counted.get(name).copied().unwrap_or_default();
        let per_request =
            |count: Option<u64>| count.filter(|_| right > 0).map(|count| round(count as f64 / right as f64));
        usage.system_calls_per_request = per_request(events.system_calls);
        usage.instructions_per_request = per_request(events.instructions);
    }
}

/// A run that could not be made.
pub fn without_load(stack: &str, load: &str, position: Position, state: RunState) -> Measured {
    let tally = Tally::new();
    let run = Run {
        stack: stack.to_owned(),
        load: load.to_owned(),
        round: position.round,
        position: position.position,
        state,
        started_after_seconds: position.started_after.as_secs_f64(),
        duration_seconds: 0.0,
        requests: 0,
        right: 0,
        failed: 0,
        requests_per_second: 0.0,
        received_bytes: 0,
        statuses: Default::default(),
        errors: Default::default(),
        latency: distribution(&tally.latency),
        failure_latency: distribution(&tally.failure_latency),
        usage: None,
        generator: Generator::default(),
        seconds: Vec::new(),
    };
    Measured { run, latency: tally.latency }
}

fn describe(target: &Target, load: &LoadPlan, position: Position, outcome: &Outcome, samples: &[Sample]) -> Run {
    let tally = &outcome.tally;
    let failed = tally.failed();
    let requests = tally.right + failed;
    let (timed_right, length) = match (&load.pace, &outcome.stop) {
        // Requests that were under way at its end are right, but not of its time.
        (Pace::Closed { length: Some(length), .. }, Stop::Finished) => {
            (tally.right_in_time, *length.min(&tally.last_outcome.max(*length)))
        }
        (Pace::Open { schedule, .. }, Stop::Finished) => (tally.right, schedule.length().max(tally.last_outcome)),
        _ => (tally.right, tally.last_outcome),
    };
    let seconds = seconds(tally, samples);
    let generator = generator(outcome, &seconds, requests);
    let state = match &outcome.stop {
        Stop::Interrupted => RunState::Interrupted,
        stop => match (bottleneck(&generator, tally), stop) {
            (Some(reason), _) => RunState::Voided { reason },
            (None, Stop::Condition(reason)) => RunState::Stopped { reason: reason.clone() },
            (None, _) => RunState::Complete,
        },
    };
    Run {
        state,
        duration_seconds: round(tally.last_outcome.as_secs_f64()),
        requests,
        right: tally.right,
        failed,
        requests_per_second: round(timed_right as f64 / length.as_secs_f64().max(1e-3)),
        received_bytes: tally.received_bytes,
        statuses: tally.statuses.clone(),
        errors: tally.failures.iter().map(|(failure, count)| (failure.name().to_owned(), *count)).collect(),
        latency: distribution(&tally.latency),
        failure_latency: distribution(&tally.failure_latency),
        usage: usage(samples, tally.right),
        generator,
        seconds,
        ..without_load(target.stack, &load.name, position, RunState::Complete).run
    }
}

fn seconds(tally: &Tally, samples: &[Sample]) -> Vec<Second> {
    let describe = |(number, second): (usize, &crate::load::tally::SecondTally)| {
        let pair = samples.get(number).zip(samples.get(number + 1));
        let pair = pair.filter(|(from, to)| to.at - from.at >= SHORTEST_INTERVAL);
        Second {
            second: number as u32,
            sent: second.sent,
            right: second.right,
            failed: second.failed,
            finished: second.finished,
            latency: percentiles(&second.latency),
            cpu_percent: pair.map(|(from, to)| percent(to.cpu - from.cpu, to.at - from.at)),
            pss_bytes: pair.and_then(|(_, to)| to.pss_bytes),
            threads: pair.map(|(_, to)| to.threads),
            voluntary_switches: pair.map(|(from, to)| to.voluntary - from.voluntary),
            involuntary_switches: pair.map(|(from, to)| to.involuntary - from.involuntary),
            generator_cpu_percent: pair.map(|_| percent(second.generator_cpu, Duration::from_secs(1))),
        }
    };
    tally.seconds.iter().enumerate().map(describe).collect()
}

fn usage(samples: &[Sample], right: u64) -> Option<Usage> {
    let (first, last) = (samples.first()?, samples.last()?);
    if last.processes == 0 && samples.iter().all(|sample| sample.processes == 0) {
        return None;
    }
    let cpu = last.cpu - first.cpu;
    let pairs: Vec<_> = samples.iter().zip(&samples[1..]).collect();
    let long: Vec<_> = pairs.iter().filter(|(from, to)| to.at - from.at >= SHORTEST_INTERVAL).collect();
    let of_cpu = if long.is_empty() {
        span(std::iter::once(percent(cpu, last.at - first.at)))
    } else {
        span(long.iter().map(|(from, to)| percent(to.cpu - from.cpu, to.at - from.at)))
    };
    // The first sample is of the idle stack.
    let busy = if samples.len() > 1 { &samples[1..] } else { samples };
    let voluntary_switches = last.voluntary - first.voluntary;
    let involuntary_switches = last.involuntary - first.involuntary;
    Some(Usage {
        cpu_seconds: cpu.as_secs_f64(),
        requests_per_cpu_second: (cpu >= SHORTEST_CPU && right > 0).then(|| round(right as f64 / cpu.as_secs_f64())),
        cpu_percent: of_cpu.unwrap_or_default(),
        pss_bytes: span(busy.iter().filter_map(|sample| Some(sample.pss_bytes? as f64))).unwrap_or_default(),
        threads: span(busy.iter().map(|sample| f64::from(sample.threads))).unwrap_or_default(),
        processes: span(busy.iter().map(|sample| f64::from(sample.processes))).unwrap_or_default(),
        voluntary_switches,
        involuntary_switches,
        switches_per_request: (right > 0)
            .then(|| round((voluntary_switches + involuntary_switches) as f64 / right as f64)),
        roles: roles(busy, right),
    })
}

/// The usage of the processes of each role. `samples` are those of the busy stack; counters begin at 0 before them.
fn roles(samples: &[Sample], right: u64) -> BTreeMap<String, RoleUsage> {
    let Some(last) = samples.last() else { return BTreeMap::new() };
    let per_request = |value: f64| (right > 0).then(|| round(value / right as f64));
    let describe = |(name, end): (&String, &RoleSample)| {
        let of_role = |value: fn(&RoleSample) -> f64| {
            span(samples.iter().filter_map(|sample| sample.roles.get(name)).map(value)).unwrap_or_default()
        };
        let usage = RoleUsage {
            cpu_microseconds_per_request: per_request(end.cpu.as_secs_f64() * 1e6),
            switches_per_request: per_request(end.switches as f64),
            processes: of_role(|sample| f64::from(sample.processes)),
            pss_bytes: of_role(|sample| sample.pss_bytes as f64),
            ..RoleUsage::default()
        };
        (name.clone(), usage)
    };
    last.roles.iter().map(describe).collect()
}

fn generator(outcome: &Outcome, seconds: &[Second], requests: u64) -> Generator {
    let tally = &outcome.tally;
    Generator {
        cpu_percent: span(seconds.iter().filter_map(|second| second.generator_cpu_percent)).unwrap_or_default(),
        threads: outcome.threads as u32,
        late_sends: tally.late_sends,
        late_share: tally.late_sends as f64 / requests.max(1) as f64,
        latest_send_ms: round(tally.latest_send.as_secs_f64() * 1000.0),
        connections: tally.peak_connections as u32,
        connects: tally.connects,
    }
}

/// Why the run was limited by the load generator and not by the stack.
fn bottleneck(generator: &Generator, tally: &Tally) -> Option<String> {
    let by_thread = generator.cpu_percent.median / f64::from(generator.threads.max(1));
    if tally.seconds.len() > 2 && by_thread > MAX_THREAD_CPU {
        return Some(format!(
            "the load generator used {by_thread:.0} % of a core for each of its threads: give it more threads and cores, or \
             make the load with `howdah lab k6` on other machines"
        ));
    }
    (generator.late_share > MAX_LATE_SHARE).then(|| {
        format!(
            "the load generator sent {:.1} % of the requests more than 1 ms late: give it cores of its own (\"cores\" in \
             lab.json), or lower the rate",
            generator.late_share * 100.0
        )
    })
}

fn percent(cpu: Duration, time: Duration) -> f64 {
    (cpu.as_secs_f64() / time.as_secs_f64().max(1e-3) * 1000.0).round() / 10.0
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: u64, cpu_ms: u64) -> Sample {
        let role = RoleSample {
            cpu: Duration::from_millis(cpu_ms / 2),
            switches: seconds * 8,
            processes: seconds as u32,
            pss_bytes: 500,
        };
        Sample {
            roles: BTreeMap::from([("php".to_owned(), role)]),
            at: Duration::from_secs(seconds),
            cpu: Duration::from_millis(cpu_ms),
            pss_bytes: Some(1000 + cpu_ms),
            threads: 3,
            processes: 2,
            voluntary: seconds * 10,
            involuntary: seconds,
        }
    }

    #[test]
    fn usage_is_by_second_and_in_total() {
        let usage = usage(&[sample(0, 0), sample(1, 500), sample(2, 1500), sample(3, 1600)], 320).unwrap();
        assert_eq!((usage.cpu_percent.median, usage.cpu_percent.max), (50.0, 100.0));
        assert_eq!((usage.cpu_seconds, usage.requests_per_cpu_second), (1.6, Some(200.0)));
        assert_eq!((usage.pss_bytes.median, usage.pss_bytes.max), (2500.0, 2600.0));
        assert_eq!((usage.voluntary_switches, usage.involuntary_switches), (30, 3));
        let php = &usage.roles["php"];
        assert_eq!((php.cpu_microseconds_per_request, php.switches_per_request), (Some(2500.0), Some(0.075)));
        assert_eq!((php.processes.median, php.processes.max, php.pss_bytes.median), (2.0, 3.0, 500.0));
        let gone = Sample { processes: 0, ..sample(0, 0) };
        assert_eq!(super::usage(&[gone.clone(), gone], 5), None);
    }

    #[test]
    fn what_perf_counted_is_divided_by_the_requests_of_its_own_run() {
        let mut roles = BTreeMap::from([("front".to_owned(), RoleUsage::default())]);
        let events = KernelEvents { system_calls: Some(300), instructions: None };
        add_events(&mut roles, &BTreeMap::from([("front".to_owned(), events)]), 100);
        let front = &roles["front"];
        assert_eq!((front.system_calls_per_request, front.instructions_per_request), (Some(3.0), None));
    }

    #[test]
    fn a_generator_that_was_the_bottleneck_voids_the_run() {
        let mut tally = Tally::new();
        tally.second(Duration::from_secs(4));
        let generator = |cpu: f64, late_share: f64| Generator {
            cpu_percent: crate::results::UsageSpan { median: cpu, max: cpu },
            threads: 2,
            late_share,
            ..Generator::default()
        };
        assert_eq!(bottleneck(&generator(150.0, 0.001), &tally), None);
        assert!(bottleneck(&generator(198.0, 0.0), &tally).unwrap().contains("99 % of a core"));
        assert!(bottleneck(&generator(10.0, 0.2), &tally).unwrap().contains("20.0 % of the requests"));
    }
}
