//! An exposition: Prometheus' text 0.0.4, OpenMetrics 1.0, or Prometheus' protocol buffers.
//!
//! - [`format`]: which of them a client asks for
//! - [`sample`]: labels and values
//! - [`text`]: the two texts
//! - [`protobuf`]: the protocol buffers, which alone have native histograms; [`messages`]: their messages

pub mod format;
pub mod messages;
pub mod protobuf;
pub mod sample;
mod text;

pub use howdah_protocol::messages::exporter::Format;

use crate::families::{Family, Kind, OPTIONAL_LABEL};
use protobuf::Protobuf;
use sample::{Labels, Number};
use std::collections::BTreeSet;
use text::Text;

/// The families so far.
#[derive(Debug)]
pub struct Exposition {
    output: Output,
    /// The family whose samples are written, and whether it has one.
    family: Option<(&'static Family, bool)>,
    /// The families so far.
    written: BTreeSet<&'static str>,
}

#[derive(Debug)]
enum Output {
    Text(Text),
    Protobuf(Protobuf),
}

// === impl Exposition ===

impl Exposition {
    /// Without families.
    pub fn new(format: Format) -> Exposition {
        let output = match format {
            Format::Prometheus | Format::OpenMetrics => Output::Text(Text::new(format == Format::OpenMetrics)),
            Format::Protobuf => Output::Protobuf(Protobuf::default()),
        };
        Exposition { output, family: None, written: BTreeSet::new() }
    }

    /// The samples of this family follow. A family without samples is left out.
    pub fn family(&mut self, family: &'static Family) {
        let is_new = self.written.insert(family.name);
        debug_assert!(is_new, "the samples of {} stand together", family.name);
        self.family = Some((family, false));
    }

    /// A sample of a gauge, a counter or an information.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Number) {
        let family = self.begin(labels);
        debug_assert!(family.kind != Kind::Histogram, "{} is a histogram", family.name);
        match &mut self.output {
            Output::Text(text) => text.sample(family, labels, value),
            Output::Protobuf(protobuf) => protobuf.sample(family, labels, value.nearest()),
        }
    }

    /// A histogram: its words, as the router counts them.
    pub fn histogram(&mut self, labels: Labels<'_>, words: &[u64]) {
        let family = self.begin(labels);
        match &mut self.output {
            Output::Text(text) => text.histogram(family, labels, words),
            Output::Protobuf(protobuf) => protobuf.histogram(labels, words),
        }
    }

    /// All of it.
    pub fn finish(self) -> Vec<u8> {
        match self.output {
            Output::Text(text) => text.finish().into_bytes(),
            Output::Protobuf(protobuf) => protobuf.finish(),
        }
    }

    /// Writes the head of the family before its first sample.
    fn begin(&mut self, labels: Labels<'_>) -> &'static Family {
        let (family, has_sample) = self.family.expect("samples follow their family");
        let is_used = |name: &str| name != OPTIONAL_LABEL || labels.iter().any(|(used, _)| *used == name);
        debug_assert!(
            labels.iter().map(|(name, _)| *name).eq(family.labels.iter().copied().filter(|name| is_used(name))),
            "{} has the labels {:?}",
            family.name,
            family.labels
        );
        if !has_sample {
            self.family = Some((family, true));
            match &mut self.output {
                Output::Text(text) => text.begin(family),
                Output::Protobuf(protobuf) => protobuf.begin(family),
            }
        }
        family
    }
}
