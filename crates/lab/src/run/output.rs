//! The files of a lab, and its table on the terminal.

use crate::report::tables::costs;
use crate::result_file::ResultFolder;
use crate::results::{Metric, Results, Run, RunState, Summary};
use std::fmt::Write;

/// Writes results.json, runs.csv, summary.csv and seconds.csv into a folder.
///
/// # Errors
/// A file cannot be written; the message names it.
pub fn write(results: &Results, folder: &ResultFolder) -> Result<(), String> {
    for (name, content) in [
        ("results.json", results.to_json()),
        ("runs.csv", runs_csv(results)),
        ("summary.csv", summary_csv(results)),
        ("seconds.csv", seconds_csv(results)),
    ] {
        folder.write(name, content)?;
    }
    Ok(())
}

/// The results as text: a table for each load, and the verdict.
pub fn table(results: &Results) -> String {
    let mut text = String::new();
    for load in results.loads.iter().filter(|_| !results.runs.is_empty()) {
        let _ = writeln!(text, "\n{}", load.label);
        let rows: Vec<_> = results.stacks.iter().map(|stack| row(results, &stack.name, &load.name)).collect();
        let head = ["", "requests/s", "p50 ms", "p90 ms", "p99 ms", "right", "CPU %", "PSS MiB", "requests/CPU s"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(rows);
        text.push_str(&align(&lines, 1));
        if is_about_costs(results) {
            text.push_str(&align(&cost_lines(results, &load.name), 2));
        }
    }
    for limit in &results.limits {
        let objective = &limit.objective;
        let held = limit.held.map_or_else(|| "no rate".to_owned(), |rate| format!("{rate} requests/s"));
        let missed = limit.missed.map_or_else(String::new, |rate| format!(", and misses it at {rate}"));
        let voided = limit.probes.last().filter(|probe| probe.voided).map(|probe| probe.rate);
        let voided =
            voided.map_or_else(String::new, |rate| format!("; at {rate} the load generator was the bottleneck"));
        let (percentile, ms, errors) = (objective.percentile, objective.milliseconds, objective.error_share * 100.0);
        let _ = writeln!(
            text,
            "{} holds p{percentile} < {ms} ms and errors <= {errors} % at {held}{missed}{voided}",
            limit.stack
        );
    }
    for skipped in &results.skipped {
        let remedy = if skipped.remedy.is_empty() { String::new() } else { format!(" ({})", skipped.remedy) };
        let _ = writeln!(text, "\nskipped: {}: {}{remedy}", skipped.name, skipped.reason);
    }
    if let Some(verdict) = &results.verdict {
        text.push('\n');
        for load in &verdict.loads {
            let found = match load.leaders.as_slice() {
                [] => "no stack meets the objective".to_owned(),
                [leader] => format!("best: {leader}"),
                leaders => format!("no difference found between the best: {}", leaders.join(", ")),
            };
            let _ = writeln!(text, "{}: {found}", load.load);
        }
        for caveat in &verdict.caveats {
            let _ = writeln!(text, "note: {caveat}");
        }
    }
    if !results.bars.is_empty() {
        text.push('\n');
    }
    for bar in &results.bars {
        let word = match bar.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "unknown",
        };
        let _ = writeln!(text, "{word:8}{}: {}", bar.promise, bar.measured);
    }
    text
}

/// Whether the lab counts system calls. The report has the costs of others, too.
fn is_about_costs(results: &Results) -> bool {
    let counted = |run: &Run| {
        run.usage.iter().flat_map(|usage| usage.roles.values()).any(|role| role.system_calls_per_request.is_some())
    };
    results.lab.get("counts") == Some(&true.into()) || results.runs.iter().any(counted)
}

/// The cost of a request by the job of the processes; empty if nothing was measured by job.
fn cost_lines(results: &Results, load: &str) -> Vec<Vec<String>> {
    let stacks = results.stacks.iter().enumerate();
    let rows: Vec<_> = stacks.flat_map(|(number, stack)| costs(results, number, &stack.name, load)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = ["per request", "", "CPU µs", "switches", "system calls", "1,000 instructions", "processes", "PSS MiB"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    let mut last = None;
    for row in rows {
        let name = if last == Some(row.stack) { String::new() } else { results.stacks[row.stack].name.clone() };
        last = Some(row.stack);
        let (calls, instructions) = (row.system_calls, row.instructions);
        lines.push(vec![name, row.role, row.cpu, row.switches, calls, instructions, row.processes, row.memory]);
    }
    lines
}

/// The lines with columns of equal width; the first ones are left-aligned.
fn align(lines: &[Vec<String>], left: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().map(|line| line.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().enumerate().map(|(column, cell)| match column {
            _ if column < left => format!("{cell:<width$}", width = widths[column]),
            _ => format!("{cell:>width$}", width = widths[column]),
        });
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// An interval whose end is this number of times its beginning has no information.
const WIDEST: f64 = 5.0;

fn row(results: &Results, stack: &str, load: &str) -> Vec<String> {
    let Some(summary) = results.summary(stack, load) else {
        let state = results.runs_of(stack, load).map(|run| state(run).0).last().unwrap_or("not run");
        return vec![stack.to_owned(), state.to_owned()];
    };
    let estimate = |metric: Metric| summary.estimates.get(&metric);
    let rate = estimate(Metric::RequestsPerSecond).map_or_else(String::new, |estimate| match estimate.interval {
        Some((low, high)) if high < low * WIDEST => format!("{:.0} ({low:.0}–{high:.0})", estimate.value),
        _ => format!("{:.0}", estimate.value),
    });
    let percentile = |of: fn(&crate::results::Percentiles) -> f64| {
        summary.latency.percentiles.as_ref().map_or_else(|| "-".to_owned(), |p| format!("{:.1}", of(p)))
    };
    let optional =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
    vec![
        stack.to_owned(),
        rate,
        percentile(|p| p.p50),
        percentile(|p| p.p90),
        percentile(|p| p.p99),
        format!("{:.2} %", (summary.right_share * 10_000.0).floor() / 100.0),
        optional(summary.cpu_percent.map(|cpu| cpu.median), 0),
        optional(summary.pss_bytes.map(|pss| pss.median / 1_048_576.0), 1),
        optional(estimate(Metric::RequestsPerCpuSecond).map(|estimate| estimate.value), 0),
    ]
}

fn runs_csv(results: &Results) -> String {
    let mut text =
        "position,round,stack,load,state,reason,duration_seconds,requests,right,failed,requests_per_second,mean_ms,\
                    p50_ms,p80_ms,p90_ms,p95_ms,p99_ms,p999_ms,max_ms,cpu_seconds,cpu_percent_median,cpu_percent_max,\
                    pss_bytes_median,pss_bytes_max,requests_per_cpu_second,switches_per_request,late_share\n"
            .to_owned();
    for run in &results.runs {
        let (state, reason) = state(run);
        let mut fields = vec![
            run.position.to_string(),
            run.round.to_string(),
            run.stack.clone(),
            run.load.clone(),
            state.to_owned(),
            reason.to_owned(),
            run.duration_seconds.to_string(),
            run.requests.to_string(),
            run.right.to_string(),
            run.failed.to_string(),
            run.requests_per_second.to_string(),
        ];
        let latency = run.latency.percentiles.as_ref();
        fields.extend(latency.map_or(vec![String::new(); 8], |p| {
            [p.mean, p.p50, p.p80, p.p90, p.p95, p.p99, p.p999, p.max].map(|value| value.to_string()).to_vec()
        }));
        let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        fields.extend(run.usage.as_ref().map_or(vec![String::new(); 7], |usage| {
            vec![
                usage.cpu_seconds.to_string(),
                usage.cpu_percent.median.to_string(),
                usage.cpu_percent.max.to_string(),
                usage.pss_bytes.median.to_string(),
                usage.pss_bytes.max.to_string(),
                optional(usage.requests_per_cpu_second),
                optional(usage.switches_per_request),
            ]
        }));
        fields.push(run.generator.late_share.to_string());
        text.push_str(&csv_line(&fields));
    }
    text
}

fn summary_csv(results: &Results) -> String {
    let mut text = "stack,load,runs,requests,right,right_share,metric,value,low,high\n".to_owned();
    for summary in &results.summaries {
        for (metric, estimate) in &summary.estimates {
            let (low, high) = estimate.interval.map_or_else(Default::default, |(a, b)| (a.to_string(), b.to_string()));
            text.push_str(&csv_line(&summary_fields(summary, *metric, estimate.value, low, high)));
        }
    }
    text
}

fn summary_fields(summary: &Summary, metric: Metric, value: f64, low: String, high: String) -> Vec<String> {
    let name = serde_json::to_value(metric).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
    vec![
        summary.stack.clone(),
        summary.load.clone(),
        summary.runs.to_string(),
        summary.requests.to_string(),
        summary.right.to_string(),
        summary.right_share.to_string(),
        name,
        value.to_string(),
        low,
        high,
    ]
}

fn seconds_csv(results: &Results) -> String {
    let mut text =
        "position,round,stack,load,second,sent,right,failed,finished,p50_ms,p99_ms,cpu_percent,pss_bytes,threads\n"
            .to_owned();
    for run in &results.runs {
        for second in &run.seconds {
            let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
            text.push_str(&csv_line(&[
                run.position.to_string(),
                run.round.to_string(),
                run.stack.clone(),
                run.load.clone(),
                second.second.to_string(),
                second.sent.to_string(),
                second.right.to_string(),
                second.failed.to_string(),
                second.finished.to_string(),
                optional(second.latency.map(|p| p.p50)),
                optional(second.latency.map(|p| p.p99)),
                optional(second.cpu_percent),
                optional(second.pss_bytes.map(|bytes| bytes as f64)),
                optional(second.threads.map(f64::from)),
            ]));
        }
    }
    text
}

fn state(run: &Run) -> (&'static str, &str) {
    match &run.state {
        RunState::Complete => ("complete", ""),
        RunState::Stopped { reason } => ("stopped", reason),
        RunState::Voided { reason } => ("voided", reason),
        RunState::Failed { reason, .. } => ("failed", reason),
        RunState::Interrupted => ("interrupted", ""),
    }
}

fn csv_line(fields: &[String]) -> String {
    let quote = |field: &String| {
        if field.contains([',', '"', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.clone() }
    };
    format!("{}\n", fields.iter().map(quote).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Results {
        Results::from_json(include_str!("../../testdata/results-sample.json")).unwrap()
    }

    #[test]
    fn each_csv_line_has_all_fields() {
        let results = sample();
        for (text, lines) in [
            (runs_csv(&results), results.runs.len()),
            (summary_csv(&results), results.summaries.iter().map(|s| s.estimates.len()).sum()),
            (seconds_csv(&results), results.runs.iter().map(|run| run.seconds.len()).sum()),
        ] {
            let fields = text.lines().next().unwrap().split(',').count();
            assert_eq!(text.lines().count(), lines + 1);
            for line in text.lines().filter(|line| !line.contains('"')) {
                assert_eq!(line.split(',').count(), fields, "{line}");
            }
        }
        assert_eq!(csv_line(&["a,b".into(), "c\"d".into()]), "\"a,b\",\"c\"\"d\"\n");
    }

    #[test]
    fn the_table_has_each_stack_the_verdict_and_the_skipped_ones() {
        let text = table(&sample());
        for part in [
            "50 connections, 5 s",
            "nginx-fpm-tcp",
            "requests/CPU s",
            "closed-50: best: howdah",
            "skipped: unit: ",
            "howdah holds p99 < 200 ms",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
