//! The text of an exposition: Prometheus' format 0.0.4, or OpenMetrics 1.0.
//!
//! Native histograms exist in the protocol buffers of Prometheus only: both text formats have the classic buckets.

use crate::families::{Family, Kind, OPTIONAL_LABEL};
use crate::histogram::{BOUND_LABELS, BUCKETS};
use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};

/// The format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

/// The text so far.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
    /// The family whose samples are written, and whether it has one.
    family: Option<(&'static Family, bool)>,
    /// The families so far.
    written: BTreeSet<&'static str>,
}

/// The labels of a sample: names and values.
pub type Labels<'l> = &'l [(&'static str, &'l str)];

// === impl Format ===

impl Format {
    /// The format that a client asks for with `Accept`. Prometheus' own is the default.
    pub fn accepted(accept: &str) -> Format {
        match accept.split(',').any(|kind| kind.trim().starts_with("application/openmetrics-text")) {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    /// The `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

// === impl Exposition ===

impl Exposition {
    /// Without families.
    pub fn new(format: Format) -> Exposition {
        Exposition { format, text: String::new(), family: None, written: BTreeSet::new() }
    }

    /// The samples of this family follow. A family without samples is left out.
    pub fn family(&mut self, family: &'static Family) {
        let is_new = self.written.insert(family.name);
        debug_assert!(is_new, "the samples of {} stand together", family.name);
        self.family = Some((family, false));
    }

    /// A sample of a gauge, a counter or an information.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        let suffix = match self.begin().kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.line(suffix, labels, None, value);
    }

    /// A histogram: its buckets, then the sum in nanoseconds.
    pub fn histogram(&mut self, labels: Labels<'_>, words: &[u64]) {
        self.begin();
        let mut count = 0_u64;
        for (number, label) in words[..BUCKETS].iter().zip(BOUND_LABELS.into_iter().chain(["+Inf"])) {
            count = count.wrapping_add(*number);
            self.line("_bucket", labels, Some(label), count);
        }
        self.line("_sum", labels, None, Seconds(words[BUCKETS]));
        self.line("_count", labels, None, count);
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Writes the head of the family before its first sample.
    fn begin(&mut self) -> &'static Family {
        let (family, has_sample) = self.family.expect("samples follow their family");
        if has_sample {
            return family;
        }
        self.family = Some((family, true));
        let title = self.title(family);
        let kind = match (family.kind, self.format) {
            (Kind::Info, Format::Prometheus) => "gauge",
            (kind, _) => kind.name(),
        };
        let _ = writeln!(self.text, "# TYPE {title} {kind}");
        if self.format == Format::OpenMetrics
            && let Some(unit) = family.unit()
        {
            let _ = writeln!(self.text, "# UNIT {title} {unit}");
        }
        let _ = write!(self.text, "# HELP {title} ");
        escape(family.help, &mut self.text);
        self.text.push('\n');
        family
    }

    /// The name in the head. OpenMetrics has it without the suffix of its samples.
    fn title(&self, family: &Family) -> String {
        match (self.format, family.kind) {
            (Format::Prometheus, Kind::Counter | Kind::Info) => family.sample_name(),
            _ => family.name.to_owned(),
        }
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        let Some((family, _)) = self.family else { return };
        let is_used = |name: &str| name != OPTIONAL_LABEL || labels.iter().any(|(used, _)| *used == name);
        debug_assert!(
            labels.iter().map(|(name, _)| *name).eq(family.labels.iter().copied().filter(|name| is_used(name))),
            "{} has the labels {:?}",
            family.name,
            family.labels
        );
        self.text.push_str(family.name);
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
pub struct Seconds(pub u64);

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
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;

    fn exposition(format: Format) -> String {
        let mut exposition = Exposition::new(format);
        exposition.family(&families::BUILD);
        exposition.sample(&[("version", "1\"\\\n\u{1b}")], 1);
        exposition.family(&families::WORKERS);
        exposition.family(&families::CONNECTIONS_ACCEPTED);
        exposition.sample(&[], 7);
        exposition.family(&families::PHP_TIME);
        let mut words = [0; BUCKETS + 1];
        (words[0], words[14], words[BUCKETS]) = (2, 1, 1_500_000_000);
        exposition.histogram(&[("application", "a"), ("route", "r"), ("responder", "application")], &words);
        exposition.finish()
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

    #[test]
    fn the_client_chooses_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for accept in ["", "*/*", "text/plain;version=0.0.4", "application/json"] {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
        }
    }
}
