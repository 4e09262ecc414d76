//! The flame graph of a profile: an SVG for a browser.
//!
//! It has a rectangle for each function of each stack. inferno leaves out those that are too narrow to see; if there are too many nevertheless,
//! the narrowest of them are left out, too, and the result has their share.

use crate::commands::profile::samples::Samples;
use crate::terminal::plain::plain;
use inferno::flamegraph;
use std::collections::BTreeMap;

/// A flame graph.
#[derive(Debug)]
pub struct FlameGraph {
    /// The SVG.
    pub svg: Vec<u8>,
    /// If the graph had too many rectangles: the smallest share of the samples that a rectangle stands for, in percent.
    pub smallest_share: Option<f64>,
}

/// The most rectangles of a graph. Each takes some 300 bytes.
const MAX_RECTANGLES: usize = 100_000;

/// The flame graph of the samples.
///
/// # Errors
/// inferno cannot draw it.
pub fn draw(samples: &Samples, title: &str) -> Result<FlameGraph, String> {
    let mut folded: BTreeMap<String, usize> = BTreeMap::new();
    for sample in samples.all() {
        // A semicolon separates the frames of a folded stack.
        let labels: Vec<_> = sample.iter().map(|index| samples.frames[*index].label().replace(';', ":")).collect();
        *folded.entry(labels.join(";")).or_default() += 1;
    }
    let mut lines: Vec<_> = folded.iter().map(|(stack, count)| format!("{stack} {count}")).collect();
    // As inferno sorts them: its rectangles are counted below.
    lines.sort_unstable();
    let mut options = flamegraph::Options::default();
    options.title = plain(title);
    options.deterministic = true;
    let smallest_share = smallest_share(&lines, samples.count(), options.min_width);
    options.min_width = smallest_share.unwrap_or(options.min_width);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| format!("cannot draw the flame graph: {error}"))?;
    Ok(FlameGraph { svg, smallest_share })
}

// === impl FlameGraph ===

impl FlameGraph {
    /// A sentence if functions are left out; empty otherwise.
    pub fn shortage(&self) -> String {
        let describe =
            |share| format!("The flame graph leaves out functions with less than {share:.2} % of the samples.\n");
        self.smallest_share.map(describe).unwrap_or_default()
    }
}

/// The share of the samples, in percent, that a rectangle must have so that there are not too many of them; `None` if inferno's least share
/// suffices. The lines are sorted, each with a stack and the number of its samples.
fn smallest_share(lines: &[String], total: usize, least_share: f64) -> Option<f64> {
    let share = |samples: usize| 100.0 * samples as f64 / total as f64;
    let rectangles = rectangles(lines);
    let mut count = 0;
    for (samples, number) in rectangles.iter().rev().filter(|(samples, _)| share(**samples) >= least_share) {
        count += number;
        if count > MAX_RECTANGLES {
            // Between this width and the next one: a rounding error must not let these in.
            return Some(share(*samples) + share(1) / 2.0);
        }
    }
    None
}

/// The number of rectangles of each width. A width is a number of samples.
fn rectangles(lines: &[String]) -> BTreeMap<usize, usize> {
    let mut rectangles = BTreeMap::new();
    // The functions of the last line, each with the number of samples before its rectangle.
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut before = 0;
    let mut close = |open: &mut Vec<(&str, usize)>, depth: usize, before: usize| {
        open.drain(depth..).for_each(|(_, start)| *rectangles.entry(before - start).or_default() += 1);
    };
    for line in lines {
        let (stack, count) = line.rsplit_once(' ').unwrap_or((line, "0"));
        let functions: Vec<_> = stack.split(';').collect();
        let common = open.iter().zip(&functions).take_while(|((former, _), function)| former == *function).count();
        close(&mut open, common, before);
        open.extend(functions[common..].iter().map(|function| (*function, before)));
        before += count.parse().unwrap_or(0);
    }
    close(&mut open, 0, before);
    rectangles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::profile::samples::tests::{SAMPLES, deep_samples};

    #[test]
    fn the_graph_has_the_functions() {
        let graph = draw(&Samples::read(SAMPLES), "<shop>").unwrap();
        assert_eq!(graph.shortage(), "");
        let svg = String::from_utf8(graph.svg).unwrap();
        assert!(svg.contains("{main} a.php (3 samples, 100.00%)") && svg.contains("A:b::c"), "{svg}");
    }

    #[test]
    fn rectangles_are_counted_as_inferno_draws_them() {
        let samples = Samples::read(SAMPLES);
        let svg = String::from_utf8(draw(&samples, "").unwrap().svg).unwrap();
        let lines = ["m;A 1", "m;s 1", "m;s;n 1"].map(str::to_owned);
        assert_eq!(rectangles(&lines), BTreeMap::from([(1, 2), (2, 1), (3, 1)]));
        // One for all of them is inferno's own.
        assert_eq!(svg.matches("<title>").count(), 1 + 4);
    }

    #[test]
    fn the_graph_is_bounded() {
        let mut bytes = deep_samples(MAX_RECTANGLES / 1000 + 1);
        bytes.extend_from_slice(b"7\x1fa\x1fb\n7\x1fc\x1fb\n");
        let graph = draw(&Samples::read(&bytes), "").unwrap();
        let svg = String::from_utf8(graph.svg.clone()).unwrap();
        assert_eq!(svg.matches("<title>").count(), 2, "all of them, and b");
        assert!(svg.contains("b (2 samples, 1.94%)"));
        assert_eq!(graph.shortage(), "The flame graph leaves out functions with less than 1.46 % of the samples.\n");
    }
}
