//! Summaries, comparisons and the verdict's inputs, from all runs of a lab.

use super::interval::{Settings, compare_paired, estimate};
use crate::load::tally::{add, distribution, histogram};
use crate::results::{
    Comparison, LoadDescription, LoadKind, LoadVerdict, Metric, Percentiles, Run, RunState, Second, Stack, Summary,
    UsageSpan, Verdict,
};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// A run, and the exact times of its right requests.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The run.
    pub run: Run,
    /// Microseconds of right requests.
    pub latency: Histogram<u64>,
}

/// A stack without an objective must answer this share of the requests.
pub const LOWEST_RIGHT_SHARE: f64 = 0.99;

/// The summary of each stack and load with at least one run that counts.
pub fn summaries(stacks: &[Stack], loads: &[LoadDescription], runs: &[Measured], settings: &Settings) -> Vec<Summary> {
    let cells = loads.iter().flat_map(|load| stacks.iter().map(move |stack| (stack, load)));
    cells.filter_map(|(stack, load)| summary(&stack.name, &load.name, runs, settings)).collect()
}

/// Each pair of stacks, for each load and metric that both have.
pub fn comparisons(
    stacks: &[Stack],
    loads: &[LoadDescription],
    runs: &[Measured],
    settings: &Settings,
) -> Vec<Comparison> {
    let mut all = Vec::new();
    for load in loads {
        for (number, baseline) in stacks.iter().enumerate() {
            for stack in &stacks[number + 1..] {
                let pairs = rounds_of_both(&stack.name, &baseline.name, &load.name, runs);
                let of_metric = |metric| compare(&pairs, &stack.name, &baseline.name, &load.name, metric, settings);
                all.extend(Metric::ALL.into_iter().filter_map(of_metric));
            }
        }
    }
    all
}

/// The verdict's inputs; `None` if there is no pair of stacks.
pub fn verdict(
    stacks: &[Stack],
    loads: &[LoadDescription],
    summaries: &[Summary],
    comparisons: &[Comparison],
    caveats: Vec<String>,
) -> Option<Verdict> {
    let loads: Vec<_> = loads.iter().filter_map(|load| load_verdict(load, summaries, comparisons)).collect();
    if stacks.len() < 2 || loads.is_empty() {
        return None;
    }
    let led = |name: &str| loads.iter().filter(|load| load.leaders.iter().any(|leader| leader == name)).count();
    let most = stacks.iter().map(|stack| led(&stack.name)).max().unwrap_or(0);
    let recommended = stacks.iter().filter(|stack| most > 0 && led(&stack.name) == most);
    let recommended = recommended.map(|stack| stack.name.clone()).collect();
    Some(Verdict { loads, recommended, caveats })
}

/// The median and the maximum; `None` without a value.
pub fn span(values: impl Iterator<Item = f64>) -> Option<UsageSpan> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let max = *values.last()?;
    let middle = values.len() / 2;
    let is_even = values.len() % 2 == 0;
    let median = if is_even { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] };
    Some(UsageSpan { median, max })
}

/// Whether a run counts.
pub fn counts(run: &Run) -> bool {
    matches!(run.state, RunState::Complete | RunState::Stopped { .. })
}

fn summary(stack: &str, load: &str, runs: &[Measured], settings: &Settings) -> Option<Summary> {
    let of_cell: Vec<_> = runs.iter().filter(|m| m.run.stack == stack && m.run.load == load).collect();
    let counted: Vec<_> = of_cell.iter().filter(|m| counts(&m.run)).collect();
    let failed_runs = of_cell.iter().filter(|m| matches!(m.run.state, RunState::Failed { .. })).count();
    if counted.is_empty() {
        return None;
    }
    let mut latency = histogram(3);
    let (mut errors, mut statuses) = (BTreeMap::new(), BTreeMap::new());
    for measured in &counted {
        add(&mut latency, &measured.latency);
        for (kind, count) in &measured.run.errors {
            *errors.entry(kind.clone()).or_default() += count;
        }
        for (status, count) in &measured.run.statuses {
            *statuses.entry(*status).or_default() += count;
        }
    }
    let requests: u64 = counted.iter().map(|m| m.run.requests).sum();
    let right: u64 = counted.iter().map(|m| m.run.right).sum();
    let of_metric = |metric: Metric| {
        let values: Vec<_> = counted.iter().filter_map(|m| value(&m.run, metric)).collect();
        Some((metric, estimate(&values, metric, settings)?))
    };
    let seconds =
        |of: &dyn Fn(&Second) -> Option<f64>| span(counted.iter().flat_map(|m| &m.run.seconds).filter_map(of));
    let switches = counted.iter().filter_map(|m| m.run.usage.as_ref());
    let switches: u64 = switches.map(|usage| usage.voluntary_switches + usage.involuntary_switches).sum();
    Some(Summary {
        stack: stack.to_owned(),
        load: load.to_owned(),
        runs: counted.len() as u32,
        discarded_runs: (of_cell.len() - counted.len() - failed_runs) as u32,
        failed_runs: failed_runs as u32,
        requests,
        right,
        right_share: right as f64 / requests.max(1) as f64,
        errors,
        statuses,
        latency: distribution(&latency),
        estimates: Metric::ALL.into_iter().filter_map(of_metric).collect(),
        cpu_percent: seconds(&|second| second.cpu_percent),
        pss_bytes: seconds(&|second| second.pss_bytes.map(|bytes| bytes as f64)),
        threads: seconds(&|second| second.threads.map(f64::from)),
        switches_per_request: (right > 0 && counted.iter().any(|m| m.run.usage.is_some()))
            .then(|| switches as f64 / right as f64),
    })
}

/// The value of a metric in a run; `None` if it was not measured.
pub fn value(run: &Run, metric: Metric) -> Option<f64> {
    let percentile = |of: fn(&Percentiles) -> f64| run.latency.percentiles.as_ref().map(of);
    match metric {
        Metric::RequestsPerSecond => Some(run.requests_per_second),
        Metric::RequestsPerCpuSecond => run.usage.as_ref().and_then(|usage| usage.requests_per_cpu_second),
        Metric::RightShare => (run.requests > 0).then(|| run.right as f64 / run.requests as f64),
        Metric::LatencyMean => percentile(|p| p.mean),
        Metric::LatencyP50 => percentile(|p| p.p50),
        Metric::LatencyP80 => percentile(|p| p.p80),
        Metric::LatencyP90 => percentile(|p| p.p90),
        Metric::LatencyP95 => percentile(|p| p.p95),
        Metric::LatencyP99 => percentile(|p| p.p99),
        Metric::LatencyP999 => percentile(|p| p.p999),
        Metric::CpuPercent => run.usage.as_ref().map(|usage| usage.cpu_percent.median),
        Metric::PssBytes => run.usage.as_ref().map(|usage| usage.pss_bytes.median),
    }
}

/// The runs of two stacks in the rounds in which both count.
fn rounds_of_both<'a>(stack: &str, baseline: &str, load: &str, runs: &'a [Measured]) -> Vec<(&'a Run, &'a Run)> {
    let of = |name: &str, round: u32| {
        let is_it = |run: &&Run| run.stack == name && run.load == load && run.round == round && counts(run);
        runs.iter().map(|measured| &measured.run).find(is_it)
    };
    let rounds = runs.iter().map(|measured| measured.run.round).max().unwrap_or(0);
    (1..=rounds).filter_map(|round| Some((of(stack, round)?, of(baseline, round)?))).collect()
}

fn compare(
    pairs: &[(&Run, &Run)],
    stack: &str,
    baseline: &str,
    load: &str,
    metric: Metric,
    settings: &Settings,
) -> Option<Comparison> {
    let both = pairs.iter().filter_map(|(run, other)| Some((value(run, metric)?, value(other, metric)?)));
    let (values, others): (Vec<_>, Vec<_>) = both.unzip();
    let difference = compare_paired(&values, &others, metric, settings)?;
    let better = difference.is_better.map(|is_better| if is_better { stack } else { baseline }.to_owned());
    Some(Comparison {
        load: load.to_owned(),
        metric,
        stack: stack.to_owned(),
        baseline: baseline.to_owned(),
        ratio: difference.ratio,
        interval: difference.interval,
        significant: difference.significant,
        better,
        rounds: values.len() as u32,
    })
}

fn load_verdict(load: &LoadDescription, summaries: &[Summary], comparisons: &[Comparison]) -> Option<LoadVerdict> {
    let metric = match load.kind {
        LoadKind::Closed { .. } => Metric::RequestsPerSecond,
        LoadKind::Open { .. } => Metric::LatencyP99,
    };
    let of_load: Vec<_> = summaries.iter().filter(|summary| summary.load == load.name).collect();
    let level = |summary: &&Summary| summary.estimates.get(&metric).map_or(f64::NAN, |estimate| estimate.value);
    let mut ineligible = BTreeMap::new();
    let mut eligible: Vec<&Summary> = Vec::new();
    for summary in of_load {
        match reason_against(load, summary) {
            Some(reason) => {
                ineligible.insert(summary.stack.clone(), reason);
            }
            None => eligible.push(summary),
        }
    }
    eligible.sort_by(|a, b| level(a).total_cmp(&level(b)));
    if metric.is_more_better() {
        eligible.reverse();
    }
    let eligible: Vec<_> = eligible.into_iter().map(|summary| summary.stack.clone()).collect();
    let best = eligible.first();
    let is_worse = |stack: &String, best: &String| {
        comparisons.iter().any(|c| {
            let is_pair = (&c.stack == stack && &c.baseline == best) || (&c.stack == best && &c.baseline == stack);
            c.load == load.name && c.metric == metric && is_pair && c.better.as_ref() == Some(best)
        })
    };
    let leaders = best.map(|best| eligible.iter().filter(|stack| !is_worse(stack, best)).cloned().collect());
    let has_stacks = !eligible.is_empty() || !ineligible.is_empty();
    has_stacks.then(|| LoadVerdict {
        load: load.name.clone(),
        metric,
        leaders: leaders.unwrap_or_default(),
        eligible,
        ineligible,
    })
}

/// Why a stack cannot be recommended for a load.
fn reason_against(load: &LoadDescription, summary: &Summary) -> Option<String> {
    let failed_share = 1.0 - summary.right_share;
    let allowed = load.objective.map_or(1.0 - LOWEST_RIGHT_SHARE, |objective| objective.error_share);
    if failed_share > allowed {
        let percent =
            |share: f64| format!("{:.3}", share * 100.0).trim_end_matches('0').trim_end_matches('.').to_owned();
        return Some(format!(
            "{} % of its requests failed; the limit is {} %",
            percent(failed_share),
            percent(allowed)
        ));
    }
    let objective = load.objective?;
    let at_percentile = percentile_of(summary, objective.percentile)?;
    (at_percentile > objective.milliseconds).then(|| {
        format!("p{} is {at_percentile:.1} ms; the limit is {} ms", objective.percentile, objective.milliseconds)
    })
}

/// Any percentile of a summary, from its buckets.
fn percentile_of(summary: &Summary, percentile: f64) -> Option<f64> {
    let wanted = (summary.latency.count as f64 * percentile / 100.0).ceil().max(1.0) as u64;
    let mut seen = 0;
    let bucket = summary.latency.buckets.iter().find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    bucket.map(|(microseconds, _)| *microseconds as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tally::record;
    use crate::results::{Objective, Results};
    use std::time::Duration;

    /// The sample's runs, with times that fit to their percentiles.
    fn sample() -> (Results, Vec<Measured>) {
        let results = Results::from_json(include_str!("../../testdata/results-sample.json")).unwrap();
        let measured = |run: &Run| {
            let mut latency = histogram(3);
            for (microseconds, count) in &run.latency.buckets {
                (0..*count).for_each(|_| record(&mut latency, Duration::from_micros(*microseconds)));
            }
            Measured { run: run.clone(), latency }
        };
        let runs = results.runs.iter().map(measured).collect();
        (results, runs)
    }

    #[test]
    fn runs_that_do_not_count_are_left_out() {
        let (results, runs) = sample();
        let summaries = summaries(&results.stacks, &results.loads, &runs, &Settings::default());
        assert_eq!(summaries.len(), 8);
        for summary in &summaries {
            let of_cell = || results.runs_of(&summary.stack, &summary.load);
            let complete = of_cell().filter(|run| run.state == RunState::Complete).count();
            assert_eq!(summary.runs as usize, complete);
            assert_eq!((summary.runs + summary.discarded_runs + summary.failed_runs) as usize, of_cell().count());
            assert_eq!(summary.latency.count, summary.right);
        }
        assert_eq!(
            summaries.iter().map(|s| (s.discarded_runs, s.failed_runs)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
            (1, 1)
        );
    }

    #[test]
    fn the_verdict_names_who_leads_and_why_others_cannot() {
        let (mut results, runs) = sample();
        results.loads[1].objective = Some(Objective { percentile: 99.0, milliseconds: 12.0, error_share: 0.001 });
        let settings = Settings::default();
        let summaries = summaries(&results.stacks, &results.loads, &runs, &settings);
        let comparisons = comparisons(&results.stacks, &results.loads, &runs, &settings);
        let verdict = verdict(&results.stacks, &results.loads, &summaries, &comparisons, vec![]).unwrap();
        assert_eq!(verdict.recommended, ["howdah"]);
        assert_eq!(verdict.loads[0].eligible[0], "howdah");
        assert_eq!(verdict.loads[0].leaders, ["howdah"]);
        assert!(verdict.loads[0].ineligible["php-s"].contains("failed; the limit is 1 %"), "{verdict:?}");
        assert!(!verdict.loads[1].eligible.iter().any(|stack| stack == "php-s"));
        let (slow, limit) = (&verdict.loads[1], 12.0);
        for stack in &slow.eligible {
            let summary = summaries.iter().find(|s| &s.stack == stack && s.load == slow.load).unwrap();
            assert!(percentile_of(summary, 99.0).unwrap() <= limit);
        }
        let alone = &results.stacks[..1];
        assert!(super::verdict(alone, &results.loads, &summaries, &comparisons, vec![]).is_none());
    }

    #[test]
    fn a_span_is_the_median_and_the_maximum() {
        assert_eq!(span([3.0, 1.0, 2.0].into_iter()), Some(UsageSpan { median: 2.0, max: 3.0 }));
        assert_eq!(span([4.0, 1.0, 2.0, 3.0].into_iter()), Some(UsageSpan { median: 2.5, max: 4.0 }));
        assert_eq!(span(std::iter::empty()), None);
    }
}
