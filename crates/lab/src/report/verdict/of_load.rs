//! The findings under one load, in sentences.

use crate::report::pairs;
use crate::report::words::{difference, difference_from, interval, label, list, metric_name, objective, plural, value};
use crate::results::{LoadDescription, LoadVerdict, Metric, Results, RunState};
use serde::Serialize;

/// The findings under one load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadFindings {
    /// The load's name for people.
    pub label: String,
    /// Sentences, the most important first.
    pub sentences: Vec<String>,
}

/// Metrics that decide between stacks that share the lead, the most important first.
const TIE_BREAKERS: [Metric; 4] =
    [Metric::RequestsPerCpuSecond, Metric::LatencyP99, Metric::RequestsPerSecond, Metric::PssBytes];

/// An interval of a difference that reaches further than this share does not show that two stacks are equal.
const WIDE: f64 = 0.1;

/// The findings under each load.
pub(super) fn findings(results: &Results) -> Vec<LoadFindings> {
    let of_load = |load: &LoadDescription| {
        let judged = results.verdict.iter().flat_map(|verdict| &verdict.loads).find(|judged| judged.load == load.name);
        let mut sentences = match judged {
            Some(judged) => judged_sentences(results, judged),
            None => figures(results, &load.name),
        };
        sentences.extend(lost_runs(results, &load.name));
        LoadFindings { label: load.label.clone(), sentences }
    };
    results.loads.iter().map(of_load).filter(|findings| !findings.sentences.is_empty()).collect()
}

/// The reason for the leader, as a clause: `it completes 45 % more requests per second than nginx (+38 % to +52 %)`.
pub(super) fn lead(results: &Results, load: &LoadVerdict) -> String {
    let metric = load.metric;
    let Some(leader) = load.leaders.first() else { return "no stack leads".to_owned() };
    let Some(second) = load.eligible.iter().find(|name| !load.leaders.contains(name)) else {
        return match load.ineligible.is_empty() {
            true => format!("it leads with {}", level(results, load, leader)),
            false => format!("it is the only stack that meets the objective, with {}", level(results, load, leader)),
        };
    };
    let than = label(results, second);
    let Some(pair) = pairs::difference(results, &load.load, metric, leader, second) else {
        return format!("it leads with {}", level(results, load, leader));
    };
    let bounds = pair.interval.map(|bounds| format!(" ({})", interval(metric, bounds))).unwrap_or_default();
    match (metric, pair.ratio >= 2.0) {
        (Metric::RequestsPerSecond, true) => {
            format!("it completes {} the requests per second of {than}{bounds}", difference(metric, pair.ratio))
        }
        (Metric::RequestsPerSecond, false) => {
            format!("it completes {} requests per second than {than}{bounds}", difference(metric, pair.ratio))
        }
        _ => format!("its {} is {} than that of {than}{bounds}", metric_name(metric), difference(metric, pair.ratio)),
    }
}

fn judged_sentences(results: &Results, load: &LoadVerdict) -> Vec<String> {
    let mut sentences = Vec::new();
    let labels: Vec<_> = load.leaders.iter().map(|name| label(results, name)).collect();
    match load.leaders.as_slice() {
        [] => {
            let wanted = results.load(&load.load).and_then(|load| load.objective);
            sentences.push(format!("No stack meets the objective ({}).", objective(wanted)));
        }
        [leader] => {
            let name = label(results, leader);
            sentences.push(format!("{name}: {}. {}.", level(results, load, leader), capital(&lead(results, load))));
        }
        _ => {
            sentences.push(if results.method.rounds < 2 {
                format!("One round cannot show a difference: {}.", levels(results, load))
            } else {
                format!(
                    "No difference was found between {}: {}. These differences may be noise.",
                    list(&labels),
                    levels(results, load)
                )
            });
            sentences.extend(open_question(results, load));
            sentences.extend(tie_breakers(results, load));
            if let Some(next) = load.eligible.iter().find(|name| !load.leaders.contains(name)) {
                sentences.push(format!("{} is behind them: {}.", label(results, next), level(results, load, next)));
            }
        }
    }
    sentences.extend(load.ineligible.iter().map(|(name, reason)| against(results, load, name, reason)));
    sentences
}

/// The values of the leaders: each one's, or the range of many.
fn levels(results: &Results, load: &LoadVerdict) -> String {
    let text = |name: &String| level(results, load, name);
    match load.leaders.as_slice() {
        [first, .., last] if load.leaders.len() > 3 => format!("from {} to {}", text(first), text(last)),
        leaders => {
            let each = leaders.iter().map(|name| format!("{} {}", label(results, name), text(name)));
            list(&each.collect::<Vec<_>>())
        }
    }
}

/// A difference between leaders that would matter, but that these rounds cannot confirm.
fn open_question(results: &Results, load: &LoadVerdict) -> Option<String> {
    let best = load.leaders.first()?;
    let widest = load.leaders[1..].iter().filter_map(|other| {
        let bounds = pairs::difference(results, &load.load, load.metric, other, best)?.interval?;
        let is_wide = bounds.0 < 1.0 - WIDE || bounds.1 > 1.0 + WIDE;
        (is_wide && !load.metric.is_share()).then_some((other, bounds))
    });
    let (other, bounds) = widest.max_by(|(_, a), (_, b)| (a.1 / a.0).total_cmp(&(b.1 / b.0)))?;
    Some(format!(
        "More rounds would show more: by these, the {} of {} may differ from that of {} by {}.",
        metric_name(load.metric),
        label(results, other),
        label(results, best),
        interval(load.metric, bounds)
    ))
}

/// A stack that does not meet the objective. If it looks better than the leader, that is explained.
fn against(results: &Results, load: &LoadVerdict, name: &str, reason: &str) -> String {
    let of = |name: &str| {
        let summary = results.summary(name, &load.load)?;
        summary.estimates.get(&load.metric).map(|estimate| estimate.value)
    };
    let looks_better = load
        .leaders
        .first()
        .and_then(|leader| Some((of(name)?, of(leader)?)))
        .filter(|(it, leader)| if load.metric.is_more_better() { it > leader } else { it < leader });
    let name = label(results, name);
    match looks_better {
        Some((it, _)) => format!(
            "{name} looks better with {}, but it does not qualify: {reason}. Speed does not make up for errors.",
            value(load.metric, it)
        ),
        None => format!("{name} does not qualify: {reason}."),
    }
}

/// Differences by other metrics: a leader that is better than each other leader.
fn tie_breakers(results: &Results, load: &LoadVerdict) -> Vec<String> {
    let metrics = TIE_BREAKERS.into_iter().filter(|metric| *metric != load.metric);
    metrics.filter_map(|metric| tie_breaker(results, load, metric)).collect()
}

fn tie_breaker(results: &Results, load: &LoadVerdict, metric: Metric) -> Option<String> {
    let against = |name: &String, other: &String| pairs::difference(results, &load.load, metric, name, other);
    let is_best = |name: &&String| {
        let mut others = load.leaders.iter().filter(|other| other != name);
        others.all(|other| against(name, other).is_some_and(|pair| pair.is_better == Some(true)))
    };
    let best = load.leaders.iter().find(is_best)?;
    let others = load.leaders.iter().filter(|other| *other != best);
    let ratios = others.filter_map(|other| Some((other, against(best, other)?.ratio)));
    let (nearest, ratio) = ratios.min_by(|a, b| a.1.ln().abs().total_cmp(&b.1.ln().abs()))?;
    let distance = match load.leaders.len() {
        2 => difference_from(metric, ratio, label(results, nearest)),
        _ => format!("at least {}", difference_from(metric, ratio, "each of the others")),
    };
    let name = label(results, best);
    Some(match metric {
        Metric::PssBytes => format!("{name} needs less memory: {}.", distance),
        Metric::RequestsPerCpuSecond => {
            format!("{name} completes more requests with the same CPU time: {}.", distance)
        }
        Metric::RequestsPerSecond => format!("{name} completes more requests per second: {}.", distance),
        _ => format!("{name} has the lower {}: {}.", metric_name(metric), distance),
    })
}

/// The figures of stacks that are compared with nothing.
fn figures(results: &Results, load: &str) -> Vec<String> {
    let summaries = results.summaries.iter().filter(|summary| summary.load == load);
    summaries
        .map(|summary| {
            let of = |metric: Metric| summary.estimates.get(&metric).map(|estimate| value(metric, estimate.value));
            let p99 = of(Metric::LatencyP99).map(|text| format!("p99 {text}"));
            let ok = of(Metric::RightShare).map(|_| value(Metric::RightShare, summary.right_share) + " HTTP OK");
            let parts: Vec<_> = [of(Metric::RequestsPerSecond), p99, ok].into_iter().flatten().collect();
            format!("{}: {}.", label(results, &summary.stack), parts.join(", "))
        })
        .collect()
}

/// Stacks whose runs failed or were stopped.
fn lost_runs(results: &Results, load: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    for stack in &results.stacks {
        let runs: Vec<_> = results.runs_of(&stack.name, load).collect();
        let failed = runs.iter().filter_map(|run| match &run.state {
            RunState::Failed { reason, .. } => Some(reason),
            _ => None,
        });
        let failed: Vec<_> = failed.collect();
        if let Some(reason) = failed.first() {
            let rounds = plural(runs.len() as u64, "run");
            sentences.push(format!(
                "{} failed in {} of {rounds}: {}.",
                stack.label,
                failed.len(),
                reason.trim_end_matches('.')
            ));
        }
        let stopped = runs.iter().filter_map(|run| match &run.state {
            RunState::Stopped { reason } => Some(reason),
            _ => None,
        });
        let stopped: Vec<_> = stopped.collect();
        if let Some(reason) = stopped.first() {
            sentences.push(format!(
                "{} was stopped in {} of {}: {}.",
                stack.label,
                stopped.len(),
                plural(runs.len() as u64, "run"),
                reason.trim_end_matches('.')
            ));
        }
    }
    sentences
}

/// A stack's value of the metric that decides: `312 requests/s`, `p99 5.27 ms`.
fn level(results: &Results, load: &LoadVerdict, name: &str) -> String {
    let summary = results.summary(name, &load.load);
    let Some(estimate) = summary.and_then(|summary| summary.estimates.get(&load.metric)) else {
        return "no value".to_owned();
    };
    match load.metric {
        Metric::RequestsPerSecond | Metric::RequestsPerCpuSecond => value(load.metric, estimate.value),
        metric => format!("{} {}", metric_name(metric), value(metric, estimate.value)),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
