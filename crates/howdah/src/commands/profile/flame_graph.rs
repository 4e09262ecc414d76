//! The flame graph of a profile: an SVG for a browser.

use crate::commands::profile::samples::Samples;
use crate::terminal::plain::plain;
use inferno::flamegraph;
use std::collections::BTreeMap;

/// The flame graph of the samples.
///
/// # Errors
/// inferno cannot draw it.
pub fn draw(samples: &Samples, title: &str) -> Result<Vec<u8>, String> {
    let mut folded: BTreeMap<String, usize> = BTreeMap::new();
    for sample in samples.all() {
        // A semicolon separates the frames of a folded stack.
        let labels: Vec<_> = sample.iter().map(|index| samples.frames[*index].label().replace(';', ":")).collect();
        *folded.entry(labels.join(";")).or_default() += 1;
    }
    let lines: Vec<_> = folded.iter().map(|(stack, count)| format!("{stack} {count}")).collect();
    let mut options = flamegraph::Options::default();
    options.title = plain(title);
    options.deterministic = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| format!("cannot draw the flame graph: {error}"))?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::profile::samples::tests::SAMPLES;

    #[test]
    fn the_graph_has_the_functions() {
        let svg = String::from_utf8(draw(&Samples::read(SAMPLES), "<shop>").unwrap()).unwrap();
        assert!(svg.contains("{main} a.php (3 samples, 100.00%)") && svg.contains("A:b::c"), "{svg}");
    }
}
