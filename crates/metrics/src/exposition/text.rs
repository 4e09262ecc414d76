//! The texts: Prometheus' format 0.0.4, or OpenMetrics 1.0. Both have the classic buckets of histograms only.

use crate::exposition::sample::{Labels, Number, plain};
use crate::families::{Family, Kind};
use crate::histogram;
use std::fmt::{Display, Write as _};

/// The text so far.
#[derive(Debug)]
pub struct Text {
    is_openmetrics: bool,
    text: String,
}

// === impl Text ===

impl Text {
    /// Without families.
    pub fn new(is_openmetrics: bool) -> Text {
        Text { is_openmetrics, text: String::new() }
    }

    /// The head of a family: a sample follows.
    pub fn begin(&mut self, family: &Family) {
        let title = self.title(family);
        let kind = match family.kind {
            Kind::Info if !self.is_openmetrics => "gauge",
            kind => kind.name(),
        };
        let _ = writeln!(self.text, "# TYPE {title} {kind}");
        if self.is_openmetrics
            && let Some(unit) = family.unit()
        {
            let _ = writeln!(self.text, "# UNIT {title} {unit}");
        }
        let _ = write!(self.text, "# HELP {title} ");
        escape(family.help, &mut self.text);
        self.text.push('\n');
    }

    /// A sample.
    pub fn sample(&mut self, family: &Family, labels: Labels<'_>, value: impl Number) {
        self.line((family.name, family.kind.suffix()), labels, None, value);
    }

    /// A histogram.
    pub fn histogram(&mut self, family: &Family, labels: Labels<'_>, words: &[u64]) {
        for (label, count) in histogram::classic(words) {
            self.line((family.name, "_bucket"), labels, Some(label), count);
        }
        self.line((family.name, "_sum"), labels, None, Seconds(histogram::sum(words)));
        self.line((family.name, "_count"), labels, None, histogram::count(words));
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.is_openmetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// The name in the head. OpenMetrics has it without the suffix of its samples.
    fn title(&self, family: &Family) -> String {
        match family.kind {
            Kind::Counter | Kind::Info if !self.is_openmetrics => family.sample_name(),
            _ => family.name.to_owned(),
        }
    }

    fn line(&mut self, (name, suffix): (&str, &str), labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            self.text.push(separator);
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(value, &mut self.text);
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// Nanoseconds, as seconds without rounding.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Both formats have these escapes. Other control characters of a name in the configuration could confuse a terminal.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(plain(c)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::exposition::{Exposition, Format};
    use crate::families;
    use crate::histogram::{self, BUCKETS};
    use std::time::Duration;

    fn exposition(format: Format) -> String {
        let mut exposition = Exposition::new(format);
        exposition.family(&families::BUILD);
        exposition.sample(&[("version", "1\"\\\n\u{1b}")], 1);
        exposition.family(&families::WORKERS);
        exposition.family(&families::CONNECTIONS_ACCEPTED);
        exposition.sample(&[], 7_u64);
        exposition.family(&families::PHP_TIME);
        let mut words = [0; BUCKETS + 1];
        words[histogram::bucket(Duration::from_micros(500)).0] = 2;
        words[histogram::bucket(Duration::from_secs(11)).0] = 1;
        words[BUCKETS] = 1_500_000_000;
        exposition.histogram(&[("application", "a"), ("route", "r"), ("responder", "application")], &words);
        String::from_utf8(exposition.finish()).expect("a text")
    }

    #[test]
    fn prometheus_has_names_with_suffixes_and_no_end() {
        let text = exposition(Format::Prometheus);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "# TYPE howdah_build_info gauge");
        assert_eq!(lines[2], "howdah_build_info{version=\"1\\\"\\\\\\n\u{fffd}\"} 1");
        assert_eq!(lines[3], "# TYPE howdah_connections_accepted_total counter");
        assert_eq!(lines[5], "howdah_connections_accepted_total 7");
        assert!(!text.contains("howdah_workers"), "no samples");
        let php = r#"{application="a",route="r",responder="application""#;
        assert!(text.contains(&format!("howdah_request_php_seconds_bucket{php},le=\"0.0005\"}} 2\n")), "{text}");
        assert!(text.contains(&format!("howdah_request_php_seconds_bucket{php},le=\"+Inf\"}} 3\n")), "{text}");
        assert!(text.ends_with(&format!(
            "howdah_request_php_seconds_sum{php}}} 1.500000000\nhowdah_request_php_seconds_count{php}}} 3\n"
        )));
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let text = exposition(Format::OpenMetrics);
        assert!(text.starts_with("# TYPE howdah_build info\n"), "{text}");
        assert!(text.contains("# TYPE howdah_connections_accepted counter\n"));
        assert!(text.contains("# UNIT howdah_request_php_seconds seconds\n"));
        assert!(text.ends_with("# EOF\n"));
    }
}
