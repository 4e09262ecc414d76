//! Which steps of a route may be for a request, without asking each of them.
//!
//! A step whose URI or host must be, begin with or end with one of some literals is found by these literals; the
//! others are asked each time. The literals of a kind are sorted, and each knows the longest other one with which it
//! begins. All literals with which a text begins are then the greatest one that is not greater than the text, and
//! those with which that one begins: a binary search and a short walk, without any allocation.

use std::collections::{BTreeMap, HashMap};

use crate::matching::condition::Condition;
use crate::matching::pattern::Anchor;

/// Asking so few steps costs no more than looking them up.
const WORTH_INDEXING: usize = 8;

/// The steps of a route by what their requests have in common. Steps are named by their places, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RouteIndex {
    uri: Literals,
    host: Literals,
    always: Vec<usize>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Literals {
    starts: Sorted,
    /// The ends of texts, from back to front.
    ends: Sorted,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Sorted(Vec<Entry>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    literal: Box<[u8]>,
    /// The steps for texts that are the literal.
    whole: Vec<usize>,
    /// The steps for texts that begin with the literal.
    start: Vec<usize>,
    /// The longest other literal with which this one begins.
    parent: Option<usize>,
}

// === impl RouteIndex ===

impl RouteIndex {
    pub fn new<'a>(conditions: impl ExactSizeIterator<Item = &'a Condition> + Clone) -> Self {
        if conditions.len() < WORTH_INDEXING {
            return Self { always: (0..conditions.len()).collect(), ..Self::default() };
        }
        // How many steps are found by the same literal: what many have in common does not tell them apart.
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

    /// Calls `visit` with lists of steps that have among them all that may be for a request.
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

// === impl Sorted ===

impl Sorted {
    /// Calls `visit` with the steps of each literal that the text is or with which it begins.
    fn find<'t, I: Iterator<Item = &'t u8>>(&self, len: usize, text: impl Fn() -> I, visit: &mut impl FnMut(&[usize])) {
        let not_greater = self.0.partition_point(|entry| entry.literal.iter().le(text()));
        let mut place = not_greater.checked_sub(1);
        let mut begins = false;
        while let Some(entry) = place.map(|place| &self.0[place]) {
            // What begins with a literal begins with that one's parent, too.
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
            place = entry.parent;
        }
    }
}

/// The literals while they are collected.
#[derive(Default)]
struct Builder {
    starts: BTreeMap<Box<[u8]>, Entry>,
    ends: BTreeMap<Box<[u8]>, Entry>,
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
            // Two patterns of a step may begin alike.
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        }
    }

    fn finish(self) -> Literals {
        Literals { starts: sorted(self.starts), ends: sorted(self.ends) }
    }
}

fn sorted(literals: BTreeMap<Box<[u8]>, Entry>) -> Sorted {
    let mut entries: Vec<Entry> = Vec::with_capacity(literals.len());
    for (literal, entry) in literals {
        // The one before begins with every literal with which this one begins, or is one of them.
        let mut parent = entries.len().checked_sub(1);
        while let Some(place) = parent.filter(|place| !literal.starts_with(&entries[*place].literal)) {
            parent = entries[place].parent;
        }
        entries.push(Entry { literal, parent, ..entry });
    }
    Sorted(entries)
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
    fn literals_are_found_by_how_a_text_begins_and_ends() {
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
