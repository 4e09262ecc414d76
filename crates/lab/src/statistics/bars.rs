//! Is a bar met? A bar is a limit of a figure: of a stack under a load, by itself, or divided by the same figure of the best of
//! other stacks, or of another load. Pure.
//!
//! A figure is the median of the rounds that count; counts of failures are their sum, as a median hides a bad round. Errors are
//! fast: the times of a stack that refuses many requests are no measure for those of the others.

use super::summarize::{LOWEST_RIGHT_SHARE, counts, span, value};
use crate::results::{Metric, RoleUsage, Run};
use std::fmt;
use std::str::FromStr;

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A metric of comparisons: `requests_per_second`, `latency_p99`, `pss_bytes`.
    Metric(Metric),
    /// `cpu_microseconds`: CPU time of the whole process tree per right request.
    CpuMicroseconds,
    /// `failed`: failed requests, in all rounds.
    Failed,
    /// `lost`: requests without a complete response, in all rounds.
    Lost,
    /// `failure_p50`: the median time of failed requests, in milliseconds.
    FailureP50,
    /// `ROLE.FIGURE`: of the processes of a role, such as `php.system_calls`.
    Role(String, RoleFigure),
}

/// A figure of the processes of a role, per right request where it is a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleFigure {
    /// `cpu_microseconds`
    CpuMicroseconds,
    /// `switches`
    Switches,
    /// `system_calls`
    SystemCalls,
    /// `instructions`
    Instructions,
    /// `processes`: the median of the seconds.
    Processes,
    /// `pss_bytes`: the median of the seconds.
    PssBytes,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The least value.
    AtLeast(f64),
    /// The highest value.
    AtMost(f64),
}

/// The question of a bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The load.
    pub load: String,
    /// The stack.
    pub stack: String,
    /// The figure.
    pub figure: Figure,
    /// The other stacks; empty: the figure by itself.
    pub than: Vec<String>,
    /// The other load.
    pub than_load: Option<String>,
    /// The limit.
    pub limit: Limit,
    /// A difference of the figures up to this value does not count.
    pub grain: f64,
}

/// The answer to a bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The measured value, in words.
    pub measured: String,
    /// Whether the bar is met; `None` if it was not measured.
    pub met: Option<bool>,
}

const NAMES_OF_ROLES: [(&str, RoleFigure); 6] = [
    ("cpu_microseconds", RoleFigure::CpuMicroseconds),
    ("switches", RoleFigure::Switches),
    ("system_calls", RoleFigure::SystemCalls),
    ("instructions", RoleFigure::Instructions),
    ("processes", RoleFigure::Processes),
    ("pss_bytes", RoleFigure::PssBytes),
];
/// Failures with a complete response.
const ANSWERED: [&str; 3] = ["wrong_status", "wrong_body", "wrong_header"];

// === impl Question ===

impl Question {
    /// The loads that it needs.
    pub fn loads(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.load).chain(&self.than_load)
    }

    /// The answer that these runs give.
    pub fn answer(&self, runs: &[&Run]) -> Answer {
        let of = |stack: &str, load: &str| self.figure.of(runs, stack, load);
        let unknown =
            |stack: &str, load: &str| Answer { measured: format!("{stack}, {load}: not measured"), met: None };
        let Some(ours) = of(&self.stack, &self.load) else { return unknown(&self.stack, &self.load) };
        let failing = self.failing(runs);
        let has_failing = |name: &str| failing.iter().any(|(other, _)| *other == name);
        if !failing.is_empty() && self.than.iter().all(|name| has_failing(name)) {
            let shares =
                failing.iter().map(|(name, share)| format!("only {:.1} % of {name}'s requests", share * 100.0));
            let shares = shares.collect::<Vec<_>>().join(", ");
            let measured = format!("{} against none: {shares} succeeded", self.figure.format(ours));
            let share = right_share(runs, &self.stack, &self.load);
            return Answer { measured, met: Some(share.is_some_and(|share| share >= LOWEST_RIGHT_SHARE)) };
        }
        let other = match &self.than_load {
            Some(load) => Some((format!("under {load}"), of(&self.stack, load))),
            None if self.than.is_empty() => None,
            None => {
                let others = self.than.iter().filter(|name| !has_failing(name));
                let others = others.filter_map(|name| Some((name.clone(), of(name, &self.load)?)));
                let best = others.max_by(|(_, a), (_, b)| match self.limit {
                    Limit::AtLeast(_) => a.total_cmp(b),
                    Limit::AtMost(_) => b.total_cmp(a),
                });
                Some(best.map_or((self.than.join(", "), None), |(name, value)| (name, Some(value))))
            }
        };
        match other {
            None => Answer { measured: self.figure.format(ours), met: Some(self.limit.is_met(ours)) },
            Some((name, None)) => unknown(&name, &self.load),
            Some((name, Some(theirs))) => {
                let ratio = if ours == theirs { 1.0 } else { ours / theirs };
                let is_equal = (ours - theirs).abs() <= self.grain;
                let met = self.limit.is_met(ratio) || is_equal;
                let measured =
                    format!("{ratio:.2} ({} against {} {name})", self.figure.format(ours), self.figure.format(theirs));
                Answer { measured, met: Some(met) }
            }
        }
    }

    /// The other stacks whose times are no measure, with the share of their requests that succeeded.
    fn failing(&self, runs: &[&Run]) -> Vec<(&str, f64)> {
        if !self.figure.is_time() {
            return Vec::new();
        }
        let shares = self.than.iter().filter_map(|name| Some((name.as_str(), right_share(runs, name, &self.load)?)));
        shares.filter(|(_, share)| *share < LOWEST_RIGHT_SHARE).collect()
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (word, value) = match self.limit {
            Limit::AtLeast(value) => ("at least", value),
            Limit::AtMost(value) => ("at most", value),
        };
        write!(f, "{}: {}: {} {word} {value}", self.load, self.stack, self.figure)?;
        match &self.than_load {
            Some(load) => write!(f, " × that under {load}"),
            None if self.than.is_empty() => Ok(()),
            None => write!(f, " × {}", self.than.join(" or ")),
        }
    }
}

// === impl Limit ===

impl Limit {
    fn is_met(self, value: f64) -> bool {
        match self {
            Limit::AtLeast(least) => value >= least,
            Limit::AtMost(most) => value <= most,
        }
    }
}

// === impl Figure ===

impl Figure {
    /// The figure of a stack under a load; `None` if it was not measured.
    pub fn of(&self, runs: &[&Run], stack: &str, load: &str) -> Option<f64> {
        let values = of_cell(runs, stack, load).map(|run| self.of_run(run));
        // A round without the figure, such as a p99 without a right response, has no place in a median.
        let values: Vec<f64> = values.flatten().collect();
        match self {
            Figure::Failed | Figure::Lost => (!values.is_empty()).then(|| values.iter().sum()),
            _ => span(values.into_iter()).map(|span| span.median),
        }
    }

    /// Whether it is a time of right responses.
    fn is_time(&self) -> bool {
        matches!(self, Figure::Metric(metric) if metric.is_time())
    }

    fn of_run(&self, run: &Run) -> Option<f64> {
        match self {
            Figure::Metric(metric) => value(run, *metric),
            Figure::CpuMicroseconds => {
                let cpu = run.usage.as_ref()?.cpu_seconds;
                (run.right > 0).then(|| cpu / run.right as f64 * 1e6)
            }
            Figure::Failed => Some(run.failed as f64),
            Figure::Lost => {
                let lost = run.errors.iter().filter(|(kind, _)| !ANSWERED.contains(&kind.as_str()));
                Some(lost.map(|(_, count)| *count as f64).sum())
            }
            Figure::FailureP50 => run.failure_latency.percentiles.as_ref().map(|p| p.p50),
            Figure::Role(role, figure) => figure.of(run.usage.as_ref()?.roles.get(role)?),
        }
    }

    fn format(&self, value: f64) -> String {
        match self {
            Figure::Metric(Metric::PssBytes) | Figure::Role(_, RoleFigure::PssBytes) => {
                format!("{:.1} MiB", value / 1_048_576.0)
            }
            _ if value.abs() >= 1000.0 || value == value.round() => format!("{value:.0}"),
            _ => format!("{value:.2}"),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let metric;
        let name = match self {
            Figure::Metric(it) => {
                metric = serde_json::to_value(it).ok().and_then(|name| name.as_str().map(str::to_owned));
                metric.as_deref().unwrap_or_default()
            }
            Figure::CpuMicroseconds => "cpu_microseconds",
            Figure::Failed => "failed",
            Figure::Lost => "lost",
            Figure::FailureP50 => "failure_p50",
            Figure::Role(role, figure) => {
                let name = NAMES_OF_ROLES.iter().find(|(_, other)| other == figure).map_or("", |(name, _)| name);
                return write!(f, "{role}.{name}");
            }
        };
        f.write_str(name)
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Figure, String> {
        let own = match text {
            "cpu_microseconds" => Some(Figure::CpuMicroseconds),
            "failed" => Some(Figure::Failed),
            "lost" => Some(Figure::Lost),
            "failure_p50" => Some(Figure::FailureP50),
            _ => None,
        };
        let of_role = text.split_once('.').and_then(|(role, name)| {
            let (_, figure) = NAMES_OF_ROLES.iter().find(|(other, _)| *other == name)?;
            Some(Figure::Role(role.to_owned(), *figure))
        });
        let metric = || serde_json::from_value(text.into()).ok().map(Figure::Metric);
        own.or(of_role).or_else(metric).ok_or_else(|| {
            let names = NAMES_OF_ROLES.map(|(name, _)| name).join(", ");
            format!(
                "{text:?} is not a figure; there are requests_per_second, right_share, latency_p50 and other metrics of \
                 results.json, cpu_microseconds, failed, lost, failure_p50, and of the roles front and php: {names}"
            )
        })
    }
}

/// The runs of a stack under a load that count.
fn of_cell<'r>(runs: &'r [&'r Run], stack: &'r str, load: &'r str) -> impl Iterator<Item = &'r Run> {
    runs.iter().copied().filter(move |run| run.stack == stack && run.load == load && counts(run))
}

/// The share of a stack's requests under a load that succeeded; `None` without a request.
fn right_share(runs: &[&Run], stack: &str, load: &str) -> Option<f64> {
    let (right, requests) =
        of_cell(runs, stack, load).fold((0, 0), |(right, requests), run| (right + run.right, requests + run.requests));
    (requests > 0).then(|| right as f64 / requests as f64)
}

// === impl RoleFigure ===

impl RoleFigure {
    fn of(self, usage: &RoleUsage) -> Option<f64> {
        match self {
            RoleFigure::CpuMicroseconds => usage.cpu_microseconds_per_request,
            RoleFigure::Switches => usage.switches_per_request,
            RoleFigure::SystemCalls => usage.system_calls_per_request,
            RoleFigure::Instructions => usage.instructions_per_request,
            RoleFigure::Processes => Some(usage.processes.median),
            RoleFigure::PssBytes => Some(usage.pss_bytes.median),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;

    fn question(stack: &str, figure: &str, than: &[&str], limit: Limit, grain: f64) -> Question {
        Question {
            load: "closed-50".to_owned(),
            stack: stack.to_owned(),
            figure: figure.parse().unwrap(),
            than: than.iter().map(|name| (*name).to_owned()).collect(),
            than_load: None,
            limit,
            grain,
        }
    }

    fn sample() -> Vec<Run> {
        Results::from_json(include_str!("../../testdata/results-sample.json")).unwrap().runs
    }

    fn answer(stack: &str, figure: &str, than: &[&str], limit: Limit, grain: f64) -> Answer {
        question(stack, figure, than, limit, grain).answer(&sample().iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_figure_is_compared_with_its_limit_or_with_the_best_of_others() {
        let at_least = |value| Limit::AtLeast(value);
        let howdah = answer("howdah", "requests_per_second", &[], at_least(1.0), 0.0);
        assert_eq!(howdah.met, Some(true), "{howdah:?}");
        let best = answer("howdah", "requests_per_second", &["nginx-fpm-tcp", "php-s"], at_least(1.0), 0.0);
        let other = answer("php-s", "requests_per_second", &["howdah"], at_least(1.0), 0.0);
        assert_eq!((best.met, other.met), (Some(true), Some(false)), "{best:?} {other:?}");
        assert!(best.measured.contains("nginx-fpm-tcp"), "the best of the others: {best:?}");
        assert_eq!(answer("php-s", "requests_per_second", &["howdah"], at_least(1.0), 1e9).met, Some(true));
        let failures = answer("php-s", "failed", &[], Limit::AtMost(0.0), 0.0);
        assert_eq!(failures.met, Some(false), "{failures:?}");
    }

    #[test]
    fn what_was_not_measured_is_no_answer() {
        for (stack, figure, than) in [
            ("none", "latency_p99", &[][..]),
            ("howdah", "latency_p99", &["none"]),
            ("howdah", "php.system_calls", &[]),
        ] {
            let answer = answer(stack, figure, than, Limit::AtMost(1e9), 0.0);
            assert_eq!(answer.met, None, "{answer:?}");
            assert!(answer.measured.contains("not measured"));
        }
    }

    #[test]
    fn the_times_of_a_stack_that_refuses_requests_are_no_measure() {
        let answer = |failing: &[&str], figure: &str, than: &[&str]| {
            let mut runs = sample();
            for run in runs.iter_mut().filter(|run| failing.contains(&run.stack.as_str())) {
                (run.right, run.requests) = (11, 100);
                run.latency.percentiles.as_mut().unwrap().p90 = 0.001;
            }
            let question = question("howdah", figure, than, Limit::AtMost(1e3), 0.0);
            question.answer(&runs.iter().collect::<Vec<_>>())
        };
        let (fpm, both) = (["nginx-fpm-tcp"], ["nginx-fpm-tcp", "nginx-fpm"]);
        let other = answer(&fpm, "latency_p90", &both);
        assert!(other.met == Some(true) && other.measured.ends_with(" nginx-fpm)"), "{other:?}");
        let none = answer(&fpm, "latency_p90", &fpm);
        assert!(none.met == Some(true) && none.measured.contains("only 11.0 % of nginx-fpm-tcp's"), "{none:?}");
        let ours_too = answer(&["howdah", "nginx-fpm-tcp"], "latency_p90", &fpm);
        assert_eq!(ours_too.met, Some(false), "{ours_too:?}");
        let rate = answer(&fpm, "requests_per_second", &fpm);
        assert!(rate.measured.contains("nginx-fpm-tcp"), "{rate:?}");
    }

    #[test]
    fn each_figure_has_one_name() {
        for name in ["requests_per_second", "latency_p999", "cpu_microseconds", "failed", "lost", "php.processes"] {
            assert_eq!(name.parse::<Figure>().unwrap().to_string(), name);
        }
        assert!("p99".parse::<Figure>().unwrap_err().contains("latency_p50"));
        assert!("php.memory".parse::<Figure>().is_err());
    }
}
