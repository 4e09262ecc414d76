//! Figures and differences in words, the same in the report, in the verdict and on the terminal.

use crate::results::{LoadDescription, LoadKind, Metric, Objective, Results};

/// A stack's name for people.
pub fn label<'a>(results: &'a Results, name: &'a str) -> &'a str {
    results.stack(name).map_or(name, |stack| &stack.label)
}

/// A count with separators: `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure with three significant digits or more: `0.021`, `5.27`, `61.3`, `171`, `11,050`.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    match size {
        _ if size < 0.000_5 => "0".to_owned(),
        _ if size < 1.0 => format!("{value:.3}"),
        _ if size < 9.995 => format!("{value:.2}"),
        _ if size < 99.95 => format!("{value:.1}"),
        _ if value < 0.0 => format!("-{}", count(size.round() as u64)),
        _ => count(size.round() as u64),
    }
}

/// A share in percent, without the unit. It is 100 only if nothing is missing, and 0 only if there is nothing.
pub fn percent(share: f64) -> String {
    if share <= 0.0 || !share.is_finite() {
        return "0".to_owned();
    }
    if share >= 1.0 {
        return "100".to_owned();
    }
    let digits = (2..=6).find(|digits| {
        let rounded = format!("{:.*}", digits, share * 100.0);
        rounded != format!("{:.*}", digits, 100.0) && rounded != format!("{:.*}", digits, 0.0)
    });
    match digits {
        Some(digits) => {
            let text = format!("{:.*}", digits, share * 100.0);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        None if share > 0.5 => "99.999999".to_owned(),
        None => "0.000001".to_owned(),
    }
}

/// Bytes in MiB, without the unit.
pub fn mebibytes(bytes: f64) -> String {
    figure(bytes / 1_048_576.0)
}

/// A duration: `5 s`, `2 min 30 s`, `1 h 5 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 60.0 && seconds.fract() != 0.0 => format!("{} s", figure(seconds)),
        0..60 => format!("{whole} s"),
        60..3600 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A metric's name: `requests per second`, `p99`.
pub fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::RequestsPerSecond => "requests per second",
        Metric::RequestsPerCpuSecond => "requests per CPU second",
        Metric::RightShare => "HTTP OK",
        Metric::LatencyMean => "mean time",
        Metric::LatencyP50 => "p50",
        Metric::LatencyP80 => "p80",
        Metric::LatencyP90 => "p90",
        Metric::LatencyP95 => "p95",
        Metric::LatencyP99 => "p99",
        Metric::LatencyP999 => "p99.9",
        Metric::CpuPercent => "CPU",
        Metric::PssBytes => "memory",
    }
}

/// A metric's value with its unit: `312 requests/s`, `5.27 ms`.
pub fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::RequestsPerSecond => format!("{} requests/s", figure(value)),
        Metric::RequestsPerCpuSecond => format!("{} requests per CPU second", figure(value)),
        Metric::RightShare => format!("{} %", percent(value)),
        Metric::CpuPercent => format!("{} % of a core", figure(value)),
        Metric::PssBytes => format!("{} MiB", mebibytes(value)),
        _ => format!("{} ms", figure(value)),
    }
}

/// A difference of a metric in words: `45 % more`, `2.31 times`, `31 % lower`. `ratio` is the metric's value divided by
/// the other's; for shares, the difference.
pub fn difference(metric: Metric, ratio: f64) -> String {
    if metric.is_share() {
        let direction = if ratio < 0.0 { "less" } else { "more" };
        return format!("{} percentage points {direction}", percent(ratio.abs()));
    }
    let (more, less) = match metric {
        Metric::RequestsPerSecond | Metric::RequestsPerCpuSecond => ("more", "fewer"),
        Metric::CpuPercent | Metric::PssBytes => ("more", "less"),
        _ => ("higher", "lower"),
    };
    match ratio {
        _ if ratio >= 2.0 => format!("{} times", figure(ratio)),
        _ if ratio >= 1.0 => format!("{} % {more}", share_of_one(ratio - 1.0)),
        _ => format!("{} % {less}", share_of_one(1.0 - ratio)),
    }
}

/// A difference from another stack in words: `45 % more than nginx`, `2.31 times as many as nginx`.
pub fn difference_from(metric: Metric, ratio: f64, other: &str) -> String {
    let as_many = match metric {
        Metric::RequestsPerSecond | Metric::RequestsPerCpuSecond => "as many",
        Metric::CpuPercent | Metric::PssBytes => "as much",
        _ => "as high",
    };
    match ratio >= 2.0 && !metric.is_share() {
        true => format!("{} {as_many} as {other}", difference(metric, ratio)),
        false => format!("{} than {other}", difference(metric, ratio)),
    }
}

/// A difference as a signed number for tables: `+45 %`, `−31 %`, `×2.31`, `−0.2 pp`.
pub fn signed(metric: Metric, ratio: f64) -> String {
    if metric.is_share() {
        let sign = if ratio < 0.0 { "−" } else { "+" };
        return format!("{sign}{} pp", percent(ratio.abs()));
    }
    match ratio {
        _ if ratio >= 2.0 => format!("×{}", figure(ratio)),
        _ if ratio >= 1.0 => format!("+{} %", share_of_one(ratio - 1.0)),
        _ => format!("−{} %", share_of_one(1.0 - ratio)),
    }
}

/// The interval of a difference: `+38 % to +52 %`.
pub fn interval(metric: Metric, (low, high): (f64, f64)) -> String {
    format!("{} to {}", signed(metric, low), signed(metric, high))
}

/// A load's objective: `p99 up to 200 ms, and up to 0.1 % failed requests`.
pub fn objective(objective: Option<Objective>) -> String {
    match objective {
        Some(objective) => format!(
            "p{} up to {} ms, and up to {} % failed requests",
            objective.percentile,
            figure(objective.milliseconds),
            percent(objective.error_share)
        ),
        None => "99 % right answers".to_owned(),
    }
}

/// When a load's requests are sent, in a phrase.
pub fn load_kind(load: &LoadDescription) -> String {
    match &load.kind {
        LoadKind::Open { schedule, planned, .. } => {
            format!("open loop: {schedule}, {} requests", count(*planned))
        }
        LoadKind::Closed { connections, duration_seconds, requests } => {
            let end = match (duration_seconds, requests) {
                (Some(seconds), Some(requests)) => {
                    format!("for {} or {} requests", duration(*seconds), count(*requests))
                }
                (Some(seconds), None) => format!("for {}", duration(*seconds)),
                (None, Some(requests)) => format!("for {} requests", count(*requests)),
                (None, None) => "without an end".to_owned(),
            };
            format!("closed loop: {} clients, {end}", count(u64::from(*connections)))
        }
    }
}

/// A list in a sentence: `a`, `a and b`, `a, b and c`; `a, x; b, y; and c` if a part has a comma.
pub fn list<T: AsRef<str>>(parts: &[T]) -> String {
    let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
    let has_comma = parts.iter().any(|part| part.contains(", "));
    match parts.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [one, other] => format!("{one} and {other}"),
        [first @ .., last] if has_comma => format!("{}; and {last}", first.join("; ")),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A number with its noun: `1 round`, `3 rounds`.
pub fn plural(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

/// A command line that a shell reads back as these words.
pub fn command_line(words: &[String]) -> String {
    let is_plain = |word: &String| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte))
    };
    let quote = |word: &String| {
        if is_plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A share of one as percent with two significant digits or whole percents: `0.45`, `4.5`, `45`.
fn share_of_one(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent < 0.005 => "0".to_owned(),
        _ if percent < 0.995 => format!("{percent:.2}"),
        _ if percent < 9.95 => format!("{percent:.1}"),
        _ => format!("{percent:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0001, "0"),
            (0.0213, "0.021"),
            (5.274, "5.27"),
            (9.996, "10.0"),
            (61.34, "61.3"),
            (99.96, "100"),
            (171.4, "171"),
            (11_050.2, "11,050"),
            (-1234.0, "-1,234"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
    }

    #[test]
    fn a_share_is_100_percent_only_without_a_single_failure() {
        for (share, text) in [
            (1.0, "100"),
            (449_996.0 / 450_000.0, "99.999"),
            (0.999_999_99, "99.999999"),
            (0.80667, "80.67"),
            (0.5, "50"),
            (0.000_001, "0.0001"),
            (0.0, "0"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn differences_have_a_direction() {
        let rate = Metric::RequestsPerSecond;
        assert_eq!(difference(rate, 1.45), "45 % more");
        assert_eq!(difference(rate, 2.314), "2.31 times");
        assert_eq!(difference(Metric::LatencyP99, 0.69), "31 % lower");
        assert_eq!(difference_from(rate, 2.314, "nginx"), "2.31 times as many as nginx");
        assert_eq!(difference_from(rate, 0.9, "nginx"), "10 % fewer than nginx");
        assert_eq!(difference(Metric::RightShare, -0.002), "0.2 percentage points less");
        assert_eq!(interval(rate, (0.98, 1.045)), "−2.0 % to +4.5 %");
        assert_eq!(signed(Metric::RightShare, 0.01), "+1 pp");
        assert_eq!(signed(rate, 1.0), "+0 %");
    }

    #[test]
    fn durations_and_lists_are_phrases() {
        assert_eq!(
            [5.0, 2.5, 60.0, 150.0, 3900.0].map(duration),
            ["5 s", "2.50 s", "1 min", "2 min 30 s", "1 h 5 min"]
        );
        assert_eq!((list(&["a"]), list(&["a", "b", "c"])), ("a".to_owned(), "a, b and c".to_owned()));
        assert_eq!(list(&["a, x", "b", "c"]), "a, x; b; and c");
        assert_eq!((plural(1, "round"), plural(3, "round")), ("1 round".to_owned(), "3 rounds".to_owned()));
    }

    #[test]
    fn a_command_line_is_safe_to_paste() {
        let words = ["php", "-d", "a=b c", "", "it's", "$(reboot)"].map(str::to_owned);
        assert_eq!(command_line(&words), r"php -d 'a=b c' '' 'it'\''s' '$(reboot)'");
    }
}
