//! The difference of two configurations, by path.

use crate::commands::dashboard::history::record::Change;
use howdah_config::DocumentPath;
use howdah_supervisor::plain_text::beginning;
use serde_json::Value;

/// How many changes are kept.
const MAX_CHANGES: usize = 50;
/// How many bytes of a value are kept.
const MAX_VALUE: usize = 300;

/// The changes, in the order of their paths.
pub fn between(before: &Value, after: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(&mut Vec::new(), Some(before), Some(after), &mut changes);
    changes
}

fn compare<'v>(path: &mut Vec<String>, before: Option<&'v Value>, after: Option<&'v Value>, changes: &mut Vec<Change>) {
    if before == after || changes.len() >= MAX_CHANGES {
        return;
    }
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
            for name in names {
                path.push(name.clone());
                compare(path, old.get(name), new.get(name), changes);
                path.pop();
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                path.push(index.to_string());
                compare(path, Some(old), Some(new), changes);
                path.pop();
            }
        }
        _ => changes.push(Change {
            path: DocumentPath::from_iter(path.iter().map(String::as_str)).to_string(),
            before: before.map(shown),
            after: after.map(shown),
        }),
    }
}

fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > MAX_VALUE {
        text.truncate(beginning(&text, MAX_VALUE).len());
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_are_found_by_path() {
        let before = json!({ "a": { "x": 1, "y": [1, 2], "z": "same" }, "old/name": true, "list": [{ "k": 1 }, 2] });
        let after = json!({ "a": { "x": 2, "y": [1], "z": "same" }, "list": [{ "k": 3 }, 2], "new": {} });
        let found: Vec<_> = between(&before, &after)
            .into_iter()
            .map(|change| (change.path, change.before.unwrap_or_default(), change.after.unwrap_or_default()))
            .collect();
        let expected = [
            ("a/x", "1", "2"),
            ("a/y", "[1,2]", "[1]"),
            ("list/0/k", "1", "3"),
            ("new", "", "{}"),
            ("old%2Fname", "true", ""),
        ];
        let mut found = found;
        found.sort();
        assert_eq!(found, expected.map(|(path, before, after)| (path.to_owned(), before.to_owned(), after.to_owned())));
        assert!(between(&before, &before).is_empty());
    }

    #[test]
    fn their_number_and_length_are_bounded() {
        let many: Value = (0..1000)
            .map(|number| (number.to_string(), json!("ü".repeat(1000))))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let changes = between(&json!({}), &many);
        assert_eq!(changes.len(), MAX_CHANGES);
        assert!(changes.iter().all(|change| change.after.as_ref().unwrap().len() <= MAX_VALUE + 3));
    }
}
