//! The fields of forms and the uploaded files, with names as in PHP: `a[b][]` is an element of a list in an array.
//!
//! As in PHP, the last value of a name wins, and `[]` is the next index. A name with a bracket that is not closed has no
//! levels. Fields with more than [`MAX_LEVELS`] levels are dropped, as in RoadRunner. The fields keep their order.
//!
//! An array takes several hundred bytes of memory, and two bytes of a name: the number of arrays is limited.

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

/// The most levels of a name.
pub const MAX_LEVELS: usize = 127;
/// The most arrays in all levels of a tree.
pub const MAX_ARRAYS: usize = 20_000;

/// An array, by name or index.
#[derive(Clone, Debug)]
pub struct Tree<L> {
    entries: IndexMap<String, Node<L>>,
    /// The index of the next `[]`.
    next: u64,
    /// Whether all keys came from `[]`.
    is_list: bool,
    /// How many arrays were made in all levels. Only the root counts.
    arrays: usize,
}

/// A field has more than [`MAX_ARRAYS`] arrays, together with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyArrays;

#[derive(Clone, Debug)]
enum Node<L> {
    Leaf(L),
    Array(Tree<L>),
}

// === impl Tree ===

impl<L> Tree<L> {
    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Inserts a value.
    ///
    /// # Errors
    /// When its name has too many arrays.
    pub fn insert(&mut self, name: &str, leaf: L) -> Result<(), TooManyArrays> {
        let keys = keys(name);
        if keys.len() > MAX_LEVELS {
            return Ok(());
        }
        let Some((last, arrays)) = keys.split_last() else { return Ok(()) };
        let mut made = self.arrays;
        let mut tree = &mut *self;
        for key in arrays {
            let key = tree.key(key);
            let mut array = || {
                made += 1;
                Node::Array(Tree::default())
            };
            let node = tree.entries.entry(key).or_insert_with(&mut array);
            if let Node::Leaf(_) = node {
                *node = array();
            }
            if made > MAX_ARRAYS {
                return Err(TooManyArrays);
            }
            tree = match node {
                Node::Array(array) => array,
                Node::Leaf(_) => unreachable!("it was replaced"),
            };
        }
        let key = tree.key(last);
        tree.entries.insert(key, Node::Leaf(leaf));
        self.arrays = made;
        Ok(())
    }

    /// The key that a part of a name stands for.
    fn key(&mut self, part: &str) -> String {
        if part.is_empty() {
            self.next += 1;
            return (self.next - 1).to_string();
        }
        self.is_list = false;
        // PHP counts on after the largest index.
        if let Ok(index) = part.parse::<u32>() {
            self.next = self.next.max(u64::from(index) + 1);
        }
        part.to_owned()
    }
}

impl<L> Default for Tree<L> {
    fn default() -> Tree<L> {
        Tree { entries: IndexMap::new(), next: 0, is_list: true, arrays: 0 }
    }
}

impl<L: Serialize> Serialize for Tree<L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.is_list {
            true => serializer.collect_seq(self.entries.values()),
            false => serializer.collect_map(&self.entries),
        }
    }
}

impl<L: Serialize> Serialize for Node<L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Leaf(leaf) => leaf.serialize(serializer),
            Node::Array(array) => array.serialize(serializer),
        }
    }
}

/// The parts of a name: `a[b][]` is `a`, `b` and an empty one. A name that is empty has none.
fn keys(name: &str) -> Vec<&str> {
    let Some((first, mut rest)) = name.split_once('[').filter(|(first, _)| !first.is_empty()) else {
        return if name.is_empty() { Vec::new() } else { vec![name] };
    };
    let mut keys = vec![first];
    loop {
        let Some((key, after)) = rest.split_once(']') else {
            // The bracket is a part of the name.
            return if keys.len() == 1 { vec![name] } else { keys };
        };
        keys.push(key);
        // PHP ignores text after a bracket. One more level than allowed is enough to drop the field.
        match after.strip_prefix('[') {
            Some(next) if keys.len() <= MAX_LEVELS => rest = next,
            _ => return keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(fields: &[(&str, &str)]) -> String {
        // A form is an object, also without fields.
        let mut tree = Tree::default();
        fields.iter().for_each(|(name, value)| tree.insert(name, *value).expect("few arrays"));
        serde_json::to_string(&tree).expect("JSON")
    }

    #[test]
    fn names_are_expanded_as_in_php() {
        let cases: [(&[(&str, &str)], &str); 11] = [
            (
                &[("a", "1"), ("b[x]", "2"), ("b[y][]", "3"), ("b[y][]", "4")],
                r#"{"a":"1","b":{"x":"2","y":["3","4"]}}"#,
            ),
            (&[("z", "1"), ("a", "2"), ("z", "3")], r#"{"z":"3","a":"2"}"#),
            (&[("a[]", "1"), ("a[x]", "2"), ("a[]", "3")], r#"{"a":{"0":"1","x":"2","1":"3"}}"#),
            (&[("a[5]", "1"), ("a[]", "2")], r#"{"a":{"5":"1","6":"2"}}"#),
            (&[("a[][b]", "1"), ("a[][b]", "2")], r#"{"a":[{"b":"1"},{"b":"2"}]}"#),
            (&[("a", "1"), ("a[b]", "2")], r#"{"a":{"b":"2"}}"#),
            (&[("a[b]", "1"), ("a", "2")], r#"{"a":"2"}"#),
            (&[("a[b", "1"), ("[c]", "2"), ("d]", "3")], r#"{"a[b":"1","[c]":"2","d]":"3"}"#),
            (&[("a[b]c", "1"), ("a[b][d", "2")], r#"{"a":{"b":"2"}}"#),
            (&[("", "1"), ("é", "2")], r#"{"é":"2"}"#),
            (&[("a[4294967296]", "1"), ("a[]", "2")], r#"{"a":{"4294967296":"1","0":"2"}}"#),
        ];
        for (fields, expected) in cases {
            assert_eq!(json(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_field_with_too_many_levels_is_dropped() {
        let name = |levels: usize| format!("a{}", "[b]".repeat(levels - 1));
        assert_ne!(json(&[(&name(MAX_LEVELS), "1")]), "[]");
        assert_eq!(json(&[(&name(MAX_LEVELS + 1), "1")]), "[]");
        assert_eq!(json(&[(&"[".repeat(1_000_000), "1"), (&name(1_000_000), "1")]).len(), 1_000_008);
    }

    #[test]
    fn the_arrays_of_all_levels_are_limited() {
        let mut tree = Tree::default();
        let name = format!("a{}", "[]".repeat(100));
        for _ in 0..MAX_ARRAYS / 100 {
            tree.insert(&name, ()).expect("room");
        }
        // The first one made `a`, and all others an array less.
        (0..MAX_ARRAYS / 100 - 1).for_each(|_| tree.insert("a[][]", ()).expect("room"));
        tree.insert("a[0][0]", ()).expect("it makes no array");
        assert_eq!(tree.insert("a[][]", ()), Err(TooManyArrays));
    }
}
