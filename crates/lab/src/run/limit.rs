//! The highest constant rate that a stack holds under an objective: it is doubled until it is missed, then halved in.
//!
//! The stack runs through the whole search. A probe whose load generator was the bottleneck ends it.

use super::progress::Messages;
use super::race::{self, Means, Position, Target};
use super::rounds::{Contestant, Rounds};
use crate::load::Pace;
use crate::load::schedule::Schedule;
use crate::plan::LoadPlan;
use crate::results::{Limit, Objective, Probe, RunState};
use crate::stacks::Running;
use crate::statistics::summarize::Measured;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The objective.
    pub objective: Objective,
    /// The first rate, in requests per second.
    pub from: f64,
    /// The highest rate.
    pub to: f64,
    /// The time of each probe.
    pub length: Duration,
    /// The search ends when the missed rate is at most this share above the held one.
    pub precision: f64,
}

/// The state of a search: pure, without load.
#[derive(Clone, Debug)]
pub struct Bounds {
    search: Search,
    held: Option<f64>,
    missed: Option<f64>,
}

/// A rate below this is not searched.
const LOWEST_RATE: f64 = 1.0;
const CONNECTIONS: u32 = 2000;

// === impl Bounds ===

impl Bounds {
    /// The beginning of a search.
    pub fn new(search: Search) -> Bounds {
        Bounds { search, held: None, missed: None }
    }

    /// The next rate; `None` at the end of the search.
    pub fn next(&self) -> Option<f64> {
        let whole = |rate: f64| if rate > 20.0 { rate.round() } else { (rate * 10.0).round() / 10.0 };
        let rate = match (self.held, self.missed) {
            (None, None) => self.search.from,
            (Some(held), None) if held >= self.search.to => return None,
            (Some(held), None) => (held * 2.0).min(self.search.to),
            (None, Some(missed)) if missed <= LOWEST_RATE => return None,
            (None, Some(missed)) => (missed / 2.0).max(LOWEST_RATE),
            (Some(held), Some(missed)) if missed <= held * (1.0 + self.search.precision) => return None,
            (Some(held), Some(missed)) => (held * missed).sqrt(),
        };
        let rate = whole(rate);
        // Rounding must not try a rate twice.
        (Some(rate) != self.held && Some(rate) != self.missed).then_some(rate)
    }

    /// Takes in the result of a probe.
    pub fn learn(&mut self, rate: f64, is_held: bool) {
        if is_held {
            self.held = Some(self.held.map_or(rate, |held| held.max(rate)));
        } else {
            self.missed = Some(self.missed.map_or(rate, |missed| missed.min(rate)));
        }
    }
}

/// Searches the limit of each stack, with the requests of this load.
///
/// # Errors
/// The load generator cannot work. A stack that does not start has no limit, and no probe.
pub fn find(
    rounds: &Rounds,
    contestants: &[Contestant],
    load: &LoadPlan,
    search: Search,
    messages: &mut Messages,
) -> Result<Vec<Limit>, String> {
    let mut limits = Vec::new();
    for contestant in contestants {
        if !rounds.interrupted.load(Ordering::Relaxed) {
            limits.push(find_one(rounds, contestant, load, search, messages)?);
        }
    }
    Ok(limits)
}

fn find_one(
    rounds: &Rounds,
    contestant: &Contestant,
    load: &LoadPlan,
    search: Search,
    messages: &mut Messages,
) -> Result<Limit, String> {
    let (name, interrupted) = (&contestant.plan.name, rounds.interrupted);
    let mut bounds = Bounds::new(search);
    let mut probes = Vec::new();
    let means = Means { perf: None, ..Means::of(rounds.plan) };
    match rounds.start(contestant, false) {
        Err(failure) => messages.line(&format!("{name}: {}", failure.reason)),
        Ok((mut started, _place)) => {
            while let Some(rate) = bounds.next().filter(|_| !interrupted.load(Ordering::Relaxed)) {
                let load = at_rate(load, rate, search.length, probes.is_empty());
                let roots = started.running.as_ref().map(Running::roots).unwrap_or_default();
                let (endpoint, host) = (&started.endpoint, started.host.as_str());
                let target = Target { stack: name, endpoint, host, roots: &roots, roles: &[] };
                let number = probes.len() as u32 + 1;
                let position = Position { round: number, position: number, started_after: rounds.start.elapsed() };
                messages.passing(&format!("{name}: {rate} requests/s"));
                let measured = race::run(&target, &load, &means, position, interrupted, &mut |_| {})?;
                let probe = probe(&measured, rate, &search.objective);
                let latency = probe.latency_ms.map_or_else(|| "no answer".to_owned(), |ms| format!("{ms:.1} ms"));
                let state = match (&measured.run.state, probe.held) {
                    (RunState::Voided { reason }, _) => format!("VOID: {reason}"),
                    (_, true) => "held".to_owned(),
                    (_, false) => "missed".to_owned(),
                };
                let (percentile, errors) = (search.objective.percentile, probe.error_share * 100.0);
                messages.line(&format!(
                    "{name}: {rate} requests/s: p{percentile} {latency}, {errors:.2} % failed: {state}"
                ));
                // A void probe shows nothing about the stack.
                if !probe.voided {
                    bounds.learn(rate, probe.held);
                }
                let is_over = probe.voided || measured.run.state == RunState::Interrupted;
                probes.push(probe);
                if is_over || started.running.as_mut().is_some_and(|running| running.death().is_some()) {
                    break;
                }
            }
            if let Some(running) = started.running {
                running.stop();
            }
        }
    }
    let (held, missed) = (bounds.held, bounds.missed);
    Ok(Limit { stack: name.clone(), load: load.name.clone(), objective: search.objective, held, missed, probes })
}

/// The load at a constant rate. Only the first probe warms the stack up.
fn at_rate(load: &LoadPlan, rate: f64, length: Duration, is_first: bool) -> LoadPlan {
    let connections = match load.pace {
        Pace::Open { connections, .. } => connections,
        Pace::Closed { connections, .. } => connections.max(CONNECTIONS),
    };
    let pace = Pace::Open { schedule: Schedule::constant(rate, length), connections };
    let warm_up = if is_first { load.warm_up } else { Duration::ZERO };
    LoadPlan { pace, warm_up, ..load.clone() }
}

fn probe(measured: &Measured, rate: f64, objective: &Objective) -> Probe {
    let run = &measured.run;
    let voided = matches!(run.state, RunState::Voided { .. });
    let error_share = run.failed as f64 / run.requests.max(1) as f64;
    let value = measured.latency.value_at_quantile(objective.percentile / 100.0) as f64 / 1000.0;
    let latency_ms = (!measured.latency.is_empty()).then_some(value);
    let meets = latency_ms.is_some_and(|ms| ms < objective.milliseconds) && error_share <= objective.error_share;
    let cpu_percent = run.usage.as_ref().map(|usage| usage.cpu_percent.median);
    Probe { rate, latency_ms, error_share, cpu_percent, held: meets && !voided, voided }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates that are tried for a stack whose limit is known.
    fn search(limit: f64, from: f64, to: f64) -> (Option<f64>, Option<f64>, usize) {
        let objective = Objective { percentile: 99.0, milliseconds: 200.0, error_share: 0.001 };
        let search = Search { objective, from, to, length: Duration::from_secs(1), precision: 0.05 };
        let (mut bounds, mut probes) = (Bounds::new(search), 0);
        while let Some(rate) = bounds.next() {
            bounds.learn(rate, rate <= limit);
            probes += 1;
            assert!(probes < 40, "{bounds:?}");
        }
        (bounds.held, bounds.missed, probes)
    }

    #[test]
    fn the_limit_is_found_from_below_and_from_above() {
        for (limit, from) in [(730.0, 10.0), (730.0, 5000.0), (12.0, 100.0), (99_000.0, 100.0)] {
            let (held, missed, probes) = search(limit, from, 1e6);
            let (held, missed) = (held.unwrap(), missed.unwrap());
            assert!(held <= limit && limit < missed && missed <= held * 1.06, "{limit}: {held} {missed}");
            assert!(probes < 25, "{limit}: {probes}");
        }
    }

    #[test]
    fn a_search_ends_at_its_highest_and_at_the_lowest_rate() {
        assert_eq!(search(1e9, 100.0, 1000.0).0, Some(1000.0));
        assert_eq!(search(0.0, 100.0, 1000.0).0, None);
    }
}
