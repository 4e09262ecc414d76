//! An index of a route's steps, which finds the steps that may match a request without comparing each step.
//!
//! Users: tables of redirects after a relaunch, and one host for each customer, with hundreds of steps. Measured with
//! the last step matching: 50 steps take 0.03 to 0.05 µs instead of 0.4 (exact URIs), 0.6 (prefixes), 2 (regular
//! expressions) or 4.7 µs (three patterns a step); 500 steps take 0.04 to 0.07 µs instead of 4.5 to 50 µs. The rest of
//! a request takes about 10 µs. `bench/howdah-bench route_table` measures the effect on throughput.
//!
//! A step whose URI or host must equal, begin with or end with one of some literals is found by these literals; the
//! other steps are always candidates. The literals of a kind are sorted, and each has a link to the longest other
//! literal with which it begins. The literals with which a text begins are then found by a binary search for the
//! greatest literal that is not greater than the text, and by following the links from there, without any allocation.

use std::collections::{BTreeMap, HashMap};

use crate::matching::condition::Condition;
use crate::matching::pattern::Anchor;

/// Comparing fewer steps than this costs no more than a search in the index.
const WORTH_INDEXING: usize = 8;

/// The steps of a route by the literals of their conditions. Steps are named by their index; lists are ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RouteIndex {
    uri: Literals,
    host: Literals,
    always: Vec<usize>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Literals {
    starts: SortedLiterals,
    /// The ends of texts, reversed.
    ends: SortedLiterals,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct SortedLiterals(Vec<LiteralEntry>);

#[derive(Clone, Debug, Default, PartialEq)]
struct LiteralEntry {
    literal: Box<[u8]>,
    /// The steps for texts that equal the literal.
    whole: Vec<usize>,
    /// The steps for texts that begin with the literal.
    start: Vec<usize>,
    /// The index of the longest other literal with which this one begins.
    parent: Option<usize>,
}

// === impl RouteIndex ===

impl RouteIndex {
    pub fn new<'a>(conditions: impl ExactSizeIterator<Item = &'a Condition> + Clone) -> Self {
        if conditions.len() < WORTH_INDEXING {
            return Self { always: (0..conditions.len()).collect(), ..Self::default() };
        }
        // The number of steps with the same literal: a literal that many steps share does not distinguish them.
        let (mut uri_counts, mut host_counts) = (HashMap::new(), HashMap::new());
        for condition in conditions.clone() {
            condition
                .uri_anchors()
                .into_iter()
                .flatten()
                .for_each(|anchor| *uri_counts.entry(anchor).or_default() += 1);
            condition
                .host_anchors()
                .into_iter()
                .flatten()
                .for_each(|anchor| *host_counts.entry(anchor).or_default() += 1);
        }
        let worst = |anchors: &[Anchor<'_>], counts: &HashMap<Anchor<'_>, usize>| {
            anchors.iter().filter_map(|anchor| counts.get(anchor)).max().copied()
        };
        let (mut uri, mut host) = (Builder::default(), Builder::default());
        let mut always = Vec::new();
        for (step, condition) in conditions.enumerate() {
            match (condition.uri_anchors(), condition.host_anchors()) {
                (Some(uris), Some(hosts)) if worst(&hosts, &host_counts) < worst(&uris, &uri_counts) => {
                    host.add(step, &hosts);
                }
                (Some(uris), _) => uri.add(step, &uris),
                (None, Some(hosts)) => host.add(step, &hosts),
                (None, None) => always.push(step),
            }
        }
        Self { uri: uri.finish(), host: host.finish(), always }
    }

    /// Calls `visit` with lists of steps, which together contain all steps that may match the request.
    pub fn candidates<'t>(
        &self,
        uri: impl FnOnce() -> &'t str,
        host: impl FnOnce() -> &'t str,
        mut visit: impl FnMut(&[usize]),
    ) {
        if !self.uri.is_empty() {
            self.uri.find(uri().as_bytes(), &mut visit);
        }
        if !self.host.is_empty() {
            self.host.find(host().as_bytes(), &mut visit);
        }
        visit(&self.always);
    }
}

// === impl Literals ===

impl Literals {
    fn is_empty(&self) -> bool {
        self.starts.0.is_empty() && self.ends.0.is_empty()
    }

    fn find(&self, text: &[u8], visit: &mut impl FnMut(&[usize])) {
        self.starts.find(text.len(), || text.iter(), visit);
        self.ends.find(text.len(), || text.iter().rev(), visit);
    }
}

// === impl SortedLiterals ===

impl SortedLiterals {
    /// Calls `visit` with the steps of each literal that the text equals or begins with.
    fn find<'t, I: Iterator<Item = &'t u8>>(&self, len: usize, text: impl Fn() -> I, visit: &mut impl FnMut(&[usize])) {
        let not_greater = self.0.partition_point(|entry| entry.literal.iter().le(text()));
        let mut index = not_greater.checked_sub(1);
        let mut begins = false;
        while let Some(entry) = index.map(|index| &self.0[index]) {
            // A text that begins with a literal also begins with the parent of that literal.
            begins =
                begins || (entry.literal.len() <= len && entry.literal.iter().eq(text().take(entry.literal.len())));
            if begins {
                if entry.literal.len() == len && !entry.whole.is_empty() {
                    visit(&entry.whole);
                }
                if !entry.start.is_empty() {
                    visit(&entry.start);
                }
            }
            index = entry.parent;
        }
    }
}

/// Collects the literals.
#[derive(Default)]
struct Builder {
    starts: BTreeMap<Box<[u8]>, LiteralEntry>,
    ends: BTreeMap<Box<[u8]>, LiteralEntry>,
}

// === impl Builder ===

impl Builder {
    fn add(&mut self, step: usize, anchors: &[Anchor<'_>]) {
        for anchor in anchors {
            let steps = match anchor {
                Anchor::Whole(text) => &mut self.starts.entry((*text).into()).or_default().whole,
                Anchor::Start(text) => &mut self.starts.entry((*text).into()).or_default().start,
                Anchor::End(text) => &mut self.ends.entry(text.iter().rev().copied().collect()).or_default().start,
            };
            // Two patterns of a step may have the same literal.
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        }
    }

    fn finish(self) -> Literals {
        Literals { starts: sorted(self.starts), ends: sorted(self.ends) }
    }
}

fn sorted(literals: BTreeMap<Box<[u8]>, LiteralEntry>) -> SortedLiterals {
    let mut entries: Vec<LiteralEntry> = Vec::with_capacity(literals.len());
    for (literal, entry) in literals {
        // The literals with which this one begins are the one before and that one's parents, as far as they match.
        let mut parent = entries.len().checked_sub(1);
        while let Some(index) = parent.filter(|index| !literal.starts_with(&entries[*index].literal)) {
            parent = entries[index].parent;
        }
        entries.push(LiteralEntry { literal, parent, ..entry });
    }
    SortedLiterals(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(anchors: &[Anchor<'_>], text: &str) -> Vec<usize> {
        let mut builder = Builder::default();
        anchors.iter().enumerate().for_each(|(step, anchor)| builder.add(step, &[*anchor]));
        let mut found = Vec::new();
        builder.finish().find(text.as_bytes(), &mut |steps| found.extend_from_slice(steps));
        found.sort_unstable();
        found
    }

    #[test]
    fn literals_are_found_by_the_beginning_and_the_end_of_a_text() {
        let anchors = [
            Anchor::Start(b"/"),
            Anchor::Start(b"/a"),
            Anchor::Whole(b"/a"),
            Anchor::Start(b"/a/b"),
            Anchor::Whole(b"/a/c"),
            Anchor::End(b".php"),
            Anchor::End(b"x.php"),
            Anchor::Whole(b""),
        ];
        let cases: [(&str, &[usize]); 9] = [
            ("", &[7]),
            ("/", &[0]),
            ("/a", &[0, 1, 2]),
            ("/a/", &[0, 1]),
            ("/a/bb", &[0, 1, 3]),
            ("/a/c", &[0, 1, 4]),
            ("/a/zz", &[0, 1]),
            ("/b/x.php", &[0, 5, 6]),
            ("~.php", &[5]),
        ];
        for (text, expected) in cases {
            assert_eq!(found(&anchors, text), expected, "{text}");
        }
    }
}
