//! The data of the report's charts, as small as the charts allow: columns instead of objects, and not more points than
//! a screen can show.

use crate::results::{Distribution, Estimate, LoadKind, Metric, Results, Run, RunState, Second, UsageSpan};
use serde::Serialize;
use std::collections::BTreeMap;

/// A run's chart has up to this number of points. Longer runs are put together: rates and CPU by their mean, times and
/// memory by their maximum.
const MOST_POINTS: usize = 300;

/// The charts' data. Stacks and loads are named by their numbers.
#[derive(Debug, Serialize)]
pub struct ChartData<'a> {
    stacks: Vec<Named<'a>>,
    loads: Vec<ChartLoad<'a>>,
    cells: Vec<Cell<'a>>,
    runs: Vec<ChartRun>,
    pairs: Vec<Pair>,
    probes: Vec<ChartProbe>,
    /// The lowest number of rounds for a statement.
    rounds: u32,
}

#[derive(Debug, Serialize)]
struct Named<'a> {
    name: &'a str,
    label: &'a str,
}

#[derive(Debug, Serialize)]
struct ChartLoad<'a> {
    name: &'a str,
    label: &'a str,
    is_open: bool,
    /// The highest rate of an open load.
    peak_rate: Option<f64>,
}

/// A stack under a load.
#[derive(Debug, Serialize)]
struct Cell<'a> {
    stack: usize,
    load: usize,
    right_share: f64,
    /// `[share of the requests, milliseconds]`
    distribution: Vec<(f64, f64)>,
    estimates: &'a BTreeMap<Metric, Estimate>,
    cpu: Option<UsageSpan>,
    /// Bytes.
    memory: Option<UsageSpan>,
}

/// The seconds of a run, by column.
#[derive(Debug, Serialize)]
struct ChartRun {
    stack: usize,
    load: usize,
    round: u32,
    counts: bool,
    /// Seconds of each point.
    step: u32,
    sent: Vec<Option<f64>>,
    right: Vec<Option<f64>>,
    failed: Vec<Option<f64>>,
    mean: Vec<Option<f64>>,
    p50: Vec<Option<f64>>,
    p90: Vec<Option<f64>>,
    p95: Vec<Option<f64>>,
    p99: Vec<Option<f64>>,
    max: Vec<Option<f64>>,
    cpu: Vec<Option<f64>>,
    memory: Vec<Option<f64>>,
}

/// Two stacks under a load by a metric.
#[derive(Debug, Serialize)]
struct Pair {
    load: usize,
    metric: Metric,
    stack: usize,
    baseline: usize,
    ratio: f64,
    interval: Option<(f64, f64)>,
    /// The better one; `None`: noise.
    better: Option<usize>,
}

/// A rate of a search.
#[derive(Debug, Serialize)]
struct ChartProbe {
    stack: usize,
    load: usize,
    rate: f64,
    percentile: f64,
    milliseconds: Option<f64>,
    held: bool,
    voided: bool,
}

/// The data of the charts.
pub fn chart_data(results: &Results) -> ChartData<'_> {
    let stack = |name: &str| results.stacks.iter().position(|stack| stack.name == name);
    let load = |name: &str| results.loads.iter().position(|load| load.name == name);
    let chart_load = |load: &'_ crate::results::LoadDescription| match load.kind {
        LoadKind::Open { peak_rate, .. } => (true, Some(peak_rate)),
        LoadKind::Closed { .. } => (false, None),
    };
    ChartData {
        stacks: results.stacks.iter().map(|stack| Named { name: &stack.name, label: &stack.label }).collect(),
        loads: results
            .loads
            .iter()
            .map(|load| {
                let (is_open, peak_rate) = chart_load(load);
                ChartLoad { name: &load.name, label: &load.label, is_open, peak_rate }
            })
            .collect(),
        cells: results
            .summaries
            .iter()
            .filter_map(|summary| {
                Some(Cell {
                    stack: stack(&summary.stack)?,
                    load: load(&summary.load)?,
                    right_share: summary.right_share,
                    distribution: distribution(&summary.latency),
                    estimates: &summary.estimates,
                    cpu: summary.cpu_percent,
                    memory: summary.pss_bytes,
                })
            })
            .collect(),
        runs: results
            .runs
            .iter()
            .filter_map(|run| Some(chart_run(run, stack(&run.stack)?, load(&run.load)?)))
            .collect(),
        pairs: results
            .comparisons
            .iter()
            .filter_map(|pair| {
                Some(Pair {
                    load: load(&pair.load)?,
                    metric: pair.metric,
                    stack: stack(&pair.stack)?,
                    baseline: stack(&pair.baseline)?,
                    ratio: pair.ratio,
                    interval: pair.interval,
                    better: pair.better.as_deref().filter(|_| pair.significant).and_then(stack),
                })
            })
            .collect(),
        probes: results
            .limits
            .iter()
            .flat_map(|limit| {
                limit.probes.iter().filter_map(move |probe| {
                    Some(ChartProbe {
                        stack: stack(&limit.stack)?,
                        load: load(&limit.load)?,
                        rate: probe.rate,
                        percentile: limit.objective.percentile,
                        milliseconds: probe.latency_ms,
                        held: probe.held,
                        voided: probe.voided,
                    })
                })
            })
            .collect(),
        rounds: results.method.rounds,
    }
}

fn chart_run(run: &Run, stack: usize, load: usize) -> ChartRun {
    let length = run.seconds.iter().map(|second| second.second as usize + 1).max().unwrap_or(0);
    let step = length.div_ceil(MOST_POINTS).max(1);
    let mut points: Vec<Vec<&Second>> = vec![Vec::new(); length.div_ceil(step)];
    for second in &run.seconds {
        points[second.second as usize / step].push(second);
    }
    let mean =
        |of: fn(&Second) -> Option<f64>| column(&points, of, |values| values.iter().sum::<f64>() / values.len() as f64);
    let highest =
        |of: fn(&Second) -> Option<f64>| column(&points, of, |values| values.iter().copied().fold(0.0, f64::max));
    ChartRun {
        stack,
        load,
        round: run.round,
        counts: matches!(run.state, RunState::Complete | RunState::Stopped { .. }),
        step: step as u32,
        sent: mean(|second| Some(second.sent as f64)),
        right: mean(|second| Some(second.right as f64)),
        failed: mean(|second| Some(second.failed as f64)),
        mean: highest(|second| second.latency.map(|times| times.mean)),
        p50: highest(|second| second.latency.map(|times| times.p50)),
        p90: highest(|second| second.latency.map(|times| times.p90)),
        p95: highest(|second| second.latency.map(|times| times.p95)),
        p99: highest(|second| second.latency.map(|times| times.p99)),
        max: highest(|second| second.latency.map(|times| times.max)),
        cpu: mean(|second| second.cpu_percent),
        memory: highest(|second| second.pss_bytes.map(|bytes| bytes as f64)),
    }
}

fn column(points: &[Vec<&Second>], of: fn(&Second) -> Option<f64>, join: fn(&[f64]) -> f64) -> Vec<Option<f64>> {
    let point = |seconds: &Vec<&Second>| {
        let values: Vec<_> = seconds.iter().filter_map(|second| of(second)).collect();
        (!values.is_empty()).then(|| rounded(join(&values)))
    };
    points.iter().map(point).collect()
}

/// Some shares of the requests with the time that they took at most: dense where percentiles are read.
fn distribution(latency: &Distribution) -> Vec<(f64, f64)> {
    let total = latency.count as f64;
    let mut wanted: Vec<f64> = (0..20).map(|step| f64::from(step) * 0.05).collect();
    let mut rest = 0.05;
    while rest * total >= 1.0 {
        wanted.extend([1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2].map(|part| 1.0 - rest * part));
        rest /= 5.0;
    }
    wanted.push(1.0);
    wanted.sort_by(f64::total_cmp);
    wanted.dedup();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut buckets = latency.buckets.iter().peekable();
    let mut seen = 0.0;
    for share in wanted {
        let rank = (share * total).ceil().clamp(1.0, total.max(1.0));
        while let Some((_, number)) = buckets.peek() {
            if seen + *number as f64 >= rank {
                break;
            }
            seen += *number as f64;
            buckets.next();
        }
        if let Some((microseconds, _)) = buckets.peek() {
            points.push((share, *microseconds as f64 / 1000.0));
        }
    }
    points
}

/// Four significant digits: enough for a chart.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    // Without this, 0.1 × 10 may be written as 1.0000000000000002.
    format!("{rounded:.6}").parse().unwrap_or(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_long_run_has_few_points_and_keeps_its_peaks() {
        let mut results = fixture::sample();
        let run = &mut results.runs[0];
        let example = run.seconds[0].clone();
        run.seconds = (0..3600).map(|second| Second { second, ..example.clone() }).collect();
        run.seconds[1800].latency.as_mut().unwrap().p99 = 9000.0;
        run.seconds[1800].failed = 12;
        let run = chart_run(run, 0, 0);
        assert_eq!((run.step, run.p99.len()), (12, 300));
        assert_eq!(run.p99[150], Some(9000.0));
        assert_eq!(run.failed[150], Some(1.0), "errors per second, as a mean");
    }

    #[test]
    fn a_second_without_a_response_is_a_gap() {
        let mut results = fixture::sample();
        let run = &mut results.runs[0];
        run.seconds[1].latency = None;
        run.seconds[2].cpu_percent = None;
        let run = chart_run(run, 0, 0);
        assert!(run.p50[0].is_some() && run.p50[1].is_none() && run.cpu[2].is_none());
    }

    #[test]
    fn the_distribution_goes_to_the_slowest_response() {
        let results = fixture::sample();
        for summary in &results.summaries {
            let points = distribution(&summary.latency);
            let percentiles = summary.latency.percentiles.unwrap();
            assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{points:?}");
            let median = points.iter().find(|(share, _)| *share == 0.5).unwrap().1;
            assert!((median / percentiles.p50 - 1.0).abs() < 0.02);
            assert!((points.last().unwrap().1 / percentiles.max - 1.0).abs() < 0.02);
        }
        assert!(distribution(&Distribution::default()).is_empty());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [rounded(123_456.0), rounded(0.012_345_6), rounded(5.0), rounded(0.0)],
            [123_500.0, 0.01235, 5.0, 0.0]
        );
    }
}
