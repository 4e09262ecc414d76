//! What of a configuration is not shown: the keys of session tickets.
//!
//! In their place stands [`HIDDEN`]. Whoever sends that back means the key that was there, at the same path.

use crate::document::Document;
use crate::json::Value;

/// What stands in place of a key.
pub const HIDDEN: &str = "(hidden key)";

// === impl Document ===

impl Document {
    /// The document with its keys hidden.
    #[must_use]
    pub fn hide_keys(&self) -> Self {
        let mut root = self.root().clone();
        each_key(&mut root, &mut |_, _, key| HIDDEN.clone_into(key));
        Self::of_root(root)
    }

    /// The document with the keys of another one where it has hidden ones at the same paths.
    #[must_use]
    pub fn with_keys_of(&self, other: &Self) -> Self {
        let mut known = Vec::new();
        each_key(&mut other.root().clone(), &mut |listener, index, key| {
            known.push((listener.to_owned(), index, key.clone()));
        });
        let mut root = self.root().clone();
        each_key(&mut root, &mut |listener, index, key| {
            let before = known.iter().find(|(at, n, _)| at == listener && *n == index);
            if let Some((_, _, before)) = before.filter(|_| key == HIDDEN) {
                before.clone_into(key);
            }
        });
        Self::of_root(root)
    }
}

/// Visits `listeners/NAME/tls/session/tickets`: one key, or an array of them.
fn each_key(root: &mut Value, visit: &mut dyn FnMut(&str, usize, &mut String)) {
    let Some(Value::Object(listeners)) = member(root, "listeners") else { return };
    for (name, listener) in listeners.iter_mut() {
        let session = member(listener, "tls").and_then(|tls| member(tls, "session"));
        match session.and_then(|session| member(session, "tickets")) {
            Some(Value::String(key)) => visit(name, 0, key),
            Some(Value::Array(keys)) => {
                for (index, key) in keys.iter_mut().enumerate() {
                    if let Value::String(key) = key {
                        visit(name, index, key);
                    }
                }
            }
            _ => {}
        }
    }
}

fn member<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(members) => members.get_mut(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(tickets: &str) -> Document {
        let text =
            format!(r#"{{"listeners": {{"*:1": {{"tls": {{"session": {{"tickets": {tickets}}}}}}}, "*:2": {{}}}}}}"#);
        Document::parse(&text).unwrap()
    }

    #[test]
    fn keys_are_hidden_and_come_back() {
        for (tickets, hidden) in [
            (r#""abc""#, r#""(hidden key)""#),
            (r#"["abc","def"]"#, r#"["(hidden key)","(hidden key)"]"#),
            ("true", "true"),
            ("[7,null]", "[7,null]"),
        ] {
            let whole = document(tickets);
            assert_eq!(whole.hide_keys().compact(), document(hidden).compact());
            assert_eq!(whole.hide_keys().with_keys_of(&whole).compact(), whole.compact());
        }
    }

    #[test]
    fn a_hidden_key_without_one_before_stays_and_a_new_one_is_taken() {
        let before = document(r#"["abc"]"#);
        let sent = document(r#"["(hidden key)", "(hidden key)", "new"]"#);
        assert_eq!(sent.with_keys_of(&before).compact(), document(r#"["abc", "(hidden key)", "new"]"#).compact());
    }
}
