//! The times of requests: a schedule in the notation of load testers. Pure.
//!
//! `line(1, 1000, 60s) const(1000, 540s)` begins with 1 request per second, ends its first minute with 1,000, and stays
//! there for nine minutes. `step(100, 500, 100, 30s)` is 100, 200, … 500 requests per second for 30 s each, `once(50)` is 50
//! requests at the same time, `pause(5s)` none for 5 s. Rates in percent (`const(60%, 30s)`) are those of a capacity that is
//! measured before the race: [`Schedule::at_capacity`] makes them requests per second.

use super::duration;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The highest rate that can be written, in requests per second.
const MAX_RATE: f64 = 1e6;
/// The highest number of requests of a schedule.
const MAX_REQUESTS: f64 = 1e9;
/// The highest number of steps of `step`.
const MAX_STEPS: f64 = 10_000.0;

/// A schedule: its parts follow each other without a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// As it was written.
    text: String,
    parts: Vec<Part>,
    /// Whether rates are percents of a capacity.
    is_relative: bool,
}

/// Requests at a rate that stays, rises or falls evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// From a rate to another, in requests per second.
    Line {
        /// The rate at the start.
        from: f64,
        /// The rate at the end.
        to: f64,
        /// The time between them.
        length: Duration,
    },
    /// This number of requests at the same time.
    Once(u64),
}

// === impl Schedule ===

impl Schedule {
    /// A constant rate.
    pub fn constant(rate: f64, length: Duration) -> Schedule {
        let text = format!("const({rate}, {})", duration::format(length));
        Schedule { text, parts: vec![Part::Line { from: rate, to: rate, length }], is_relative: false }
    }

    /// Whether its rates are percents of a capacity, and so unknown.
    pub fn is_relative(&self) -> bool {
        self.is_relative
    }

    /// The schedule at this capacity, in requests per second. One without percents stays.
    pub fn at_capacity(&self, capacity: f64) -> Schedule {
        if !self.is_relative {
            return self.clone();
        }
        let rate = |percent: f64| (percent / 100.0 * capacity).round();
        let absolute = |part: &Part| match *part {
            Part::Line { from, to, length } => Part::Line { from: rate(from), to: rate(to), length },
            once @ Part::Once(_) => once,
        };
        Schedule::of_parts(self.parts.iter().map(absolute).collect(), false)
    }

    fn of_parts(parts: Vec<Part>, is_relative: bool) -> Schedule {
        let unit = if is_relative { "%" } else { "" };
        let text: Vec<_> = parts.iter().map(|part| part.describe(unit)).collect();
        Schedule { text: text.join(" "), parts, is_relative }
    }

    /// The parts, `step` as several.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The number of requests.
    pub fn requests(&self) -> u64 {
        self.parts.iter().map(Part::requests).sum()
    }

    /// The time from the start to the end of the last part.
    pub fn length(&self) -> Duration {
        self.parts.iter().map(Part::length).sum()
    }

    /// The highest rate, in requests per second.
    pub fn peak_rate(&self) -> f64 {
        let peaks = self.parts.iter().map(|part| match part {
            Part::Line { from, to, .. } => from.max(*to),
            Part::Once(requests) => *requests as f64,
        });
        peaks.fold(0.0, f64::max)
    }

    /// The times of all requests in their order, since the start.
    pub fn moments(&self) -> impl Iterator<Item = Duration> + use<> {
        let starts = self.parts.clone().into_iter().scan(Duration::ZERO, |start, part| {
            let this = *start;
            *start += part.length();
            Some((this, part))
        });
        starts.flat_map(|(start, part)| (0..part.requests()).map(move |number| start + part.moment(number)))
    }

    /// The same rates in shorter parts; `once` stays.
    pub fn shortened(&self, factor: f64) -> Schedule {
        let shorter = |part: &Part| match *part {
            Part::Line { from, to, length } => Part::Line { from, to, length: length.mul_f64(factor) },
            once @ Part::Once(_) => once,
        };
        Schedule::of_parts(self.parts.iter().map(shorter).collect(), self.is_relative)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let (mut parts, mut units) = (Vec::new(), BTreeSet::new());
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (part, after) =
                rest.split_once(')').ok_or_else(|| format!("{rest:?}: the closing parenthesis is missing"))?;
            parts.extend(parse_part(part.trim(), &mut units)?);
            rest = after.trim_start_matches([',', ' ', '\t', '\n']);
        }
        let is_relative = units.contains(&true);
        if units.contains(&false) && is_relative {
            return Err(format!("{text:?}: write all rates in percent of the capacity, or none"));
        }
        let schedule = Schedule { text: text.split_whitespace().collect::<Vec<_>>().join(" "), parts, is_relative };
        let requests: f64 = schedule.parts.iter().map(|part| part.requests() as f64).sum();
        match requests {
            0.0 => Err(format!("{text:?} is a schedule without a request")),
            _ if requests > MAX_REQUESTS => Err(format!("{text:?} has more than {MAX_REQUESTS} requests")),
            _ => Ok(schedule),
        }
    }
}

// === impl Part ===

impl Part {
    fn requests(&self) -> u64 {
        match self {
            Part::Line { from, to, length } => ((from + to) / 2.0 * length.as_secs_f64()).round() as u64,
            Part::Once(requests) => *requests,
        }
    }

    fn length(&self) -> Duration {
        match self {
            Part::Line { length, .. } => *length,
            Part::Once(_) => Duration::ZERO,
        }
    }

    /// The time of a request since the part's start: the solution t of from·t + (to − from)·t²/(2·length) = number.
    fn moment(&self, number: u64) -> Duration {
        let Part::Line { from, to, length } = *self else { return Duration::ZERO };
        let number = number as f64;
        let slope = (to - from) / length.as_secs_f64();
        let seconds = if slope.abs() < 1e-9 {
            number / from
        } else {
            // Without the difference of nearly equal numbers that the usual formula has.
            2.0 * number / (from + (from * from + 2.0 * slope * number).max(0.0).sqrt())
        };
        Duration::try_from_secs_f64(seconds).unwrap_or_default().min(length)
    }

    /// As it is written. `unit` is that of rates.
    fn describe(&self, unit: &str) -> String {
        match self {
            Part::Line { from, to, length } if from == to => {
                format!("const({from}{unit}, {})", duration::format(*length))
            }
            Part::Line { from, to, length } => format!("line({from}{unit}, {to}{unit}, {})", duration::format(*length)),
            Part::Once(requests) => format!("once({requests})"),
        }
    }
}

/// `units` gets whether the rates are in percent.
fn parse_part(text: &str, units: &mut BTreeSet<bool>) -> Result<Vec<Part>, String> {
    let mut rate = |text: &str| {
        units.insert(text.ends_with('%'));
        rate(text.trim_end_matches('%').trim_end())
    };
    let (name, arguments) = text.split_once('(').ok_or_else(|| unknown(text))?;
    let arguments: Vec<_> = arguments.split(',').map(str::trim).collect();
    Ok(match (name.trim(), arguments.as_slice()) {
        ("line", [from, to, length]) => vec![Part::Line { from: rate(from)?, to: rate(to)?, length: time(length)? }],
        ("const", [at, length]) => {
            let rate = rate(at)?;
            vec![Part::Line { from: rate, to: rate, length: time(length)? }]
        }
        ("step", [from, to, by, length]) => {
            let (from, to, by, length) = (rate(from)?, rate(to)?, rate(by)?, time(length)?);
            let steps = ((to - from).abs() / by).floor();
            if !steps.is_finite() || steps > MAX_STEPS {
                return Err(format!("{text:?}) has more than {MAX_STEPS} steps"));
            }
            let by = if to < from { -by } else { by };
            (0..=steps as u64)
                .map(|step| from + by * step as f64)
                .map(|rate| Part::Line { from: rate, to: rate, length })
                .collect()
        }
        ("once", [requests]) => {
            vec![Part::Once(requests.parse().map_err(|_| format!("{requests:?} is not a number of requests"))?)]
        }
        ("pause", [length]) => vec![Part::Line { from: 0.0, to: 0.0, length: time(length)? }],
        _ => return Err(unknown(text)),
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok();
    rate.filter(|rate| (0.0..=MAX_RATE).contains(rate))
        .ok_or_else(|| format!("{text:?} is not a rate; a rate is a number of requests per second, up to {MAX_RATE}"))
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .and_then(|time| if time.is_zero() { Err(format!("{text:?} is no time at all")) } else { Ok(time) })
}

fn unknown(text: &str) -> String {
    format!(
        "{text:?} is not a part of a schedule; the parts are line(from, to, time), const(rate, time), \
         step(from, to, by, time), once(requests) and pause(time)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(text: &str) -> Vec<u128> {
        text.parse::<Schedule>().unwrap().moments().map(|moment| moment.as_millis()).collect()
    }

    #[test]
    fn parts_follow_each_other_without_a_gap() {
        assert_eq!(moments("const(2, 1s) const(4, 500ms)"), [0, 500, 1000, 1250]);
        assert_eq!(moments("once(2) pause(1s) once(1)"), [0, 0, 1000]);
        assert_eq!(moments("step(1, 3, 1, 1s)"), [0, 1000, 1500, 2000, 2333, 2666]);
        assert_eq!(moments("step(2, 1, 1, 1s)"), [0, 500, 1000]);
    }

    #[test]
    fn a_line_has_the_number_of_requests_that_load_testers_expect() {
        // The counts of the fifth comparison of docs/lab.md.
        for (text, requests) in [
            ("line(1, 100, 60s) const(100, 540s)", 57_030),
            ("line(1, 500, 60s) const(500, 540s)", 285_030),
            ("line(1, 1000, 60s) const(1000, 60s)", 90_030),
            ("line(1, 10000, 30s) const(10000, 30s)", 450_015),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.requests(), requests, "{text}");
            assert_eq!(schedule.moments().count() as u64, requests, "{text}");
        }
    }

    #[test]
    fn a_line_rises_evenly() {
        let moments = moments("line(0, 100, 10s)");
        let by_second: Vec<_> =
            (0..10).map(|second| moments.iter().filter(|moment| **moment / 1000 == second).count()).collect();
        for (second, count) in by_second.iter().enumerate() {
            assert!(count.abs_diff(second * 10 + 5) <= 1, "{by_second:?}");
        }
        assert!(moments.is_sorted());
    }

    #[test]
    fn a_shortened_schedule_has_the_same_rates() {
        let schedule = "line(1, 1000, 60s) const(1000, 540s) once(5)".parse::<Schedule>().unwrap().shortened(0.1);
        assert_eq!(schedule.to_string(), "line(1, 1000, 6s) const(1000, 54s) once(5)");
        assert_eq!(schedule.to_string().parse::<Schedule>().unwrap().parts(), schedule.parts());
        assert_eq!(schedule.peak_rate(), 1000.0);
    }

    #[test]
    fn rates_in_percent_are_those_of_a_capacity() {
        let schedule: Schedule = "line(50%, 300 %, 6s) once(5) const(50%, 6s)".parse().unwrap();
        assert!(schedule.is_relative());
        assert_eq!(schedule.at_capacity(412.0).to_string(), "line(206, 1236, 6s) once(5) const(206, 6s)");
        assert_eq!(schedule.shortened(0.5).to_string(), "line(50%, 300%, 3s) once(5) const(50%, 3s)");
        let absolute: Schedule = "const(10, 1s) pause(1s)".parse().unwrap();
        assert_eq!(absolute.at_capacity(412.0), absolute);
    }

    #[test]
    fn other_texts_are_rejected_with_a_reason() {
        for (text, reason) in [
            ("line(1, 5)", "line(from, to, time)"),
            ("cosnt(1, 5s)", "const(rate, time)"),
            ("const(1, 5s", "parenthesis"),
            ("const(x, 5s)", "not a rate"),
            ("const(-1, 5s)", "not a rate"),
            ("const(1, 5 apples)", "not a time"),
            ("const(0, 5s)", "without a request"),
            ("", "without a request"),
            ("step(1, 5, 0, 1s)", "steps"),
            ("once(1e3)", "number of requests"),
            ("const(1000000, 5h)", "more than"),
            ("const(50%, 1s) const(5, 1s)", "all rates in percent"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
