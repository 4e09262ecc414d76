//! The secrets of a configuration, which are not shown: the keys of session tickets, and of accounts at certificate
//! authorities.
//!
//! A text with the key's fingerprint stands in the place of each key, so that keys can be distinguished, moved and
//! removed without being seen. When a client sends such a text back, it means the key with this fingerprint, wherever
//! that was. A text that matches no key of the active configuration stays, and is rejected when it is read.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::json::JsonValue;

/// The beginning of each text that stands for a key.
const HIDDEN: &str = "(hidden key";
/// The part of a key's hash that is shown, in bytes. Keys are random, so their hash reveals nothing.
const FINGERPRINT_BYTES: usize = 8;

/// Replaces each key by a text with its fingerprint.
pub(crate) fn hide_keys(root: &mut JsonValue) {
    each_key(root, &mut |key| *key = hidden(key));
}

/// Replaces each text with a fingerprint by the key of `known` that has this fingerprint.
pub(crate) fn restore_keys(root: &mut JsonValue, known: &JsonValue) {
    let mut keys = BTreeMap::new();
    each_key(&mut known.clone(), &mut |key| drop(keys.insert(hidden(key), key.clone())));
    each_key(root, &mut |key| {
        if let Some(known) = keys.get(key) {
            known.clone_into(key);
        }
    });
}

/// Removes the certificate authorities of all listeners, with the keys of accounts.
pub(crate) fn remove_authorities(root: &mut JsonValue) {
    let Some(JsonValue::Object(listeners)) = member(root, "listeners") else { return };
    for listener in listeners.values_mut() {
        if let Some(JsonValue::Object(acme)) = member(listener, "tls").and_then(|tls| member(tls, "acme")) {
            acme.shift_remove("authorities");
        }
    }
}

/// Whether the text stands for a key.
pub(crate) fn is_hidden(text: &str) -> bool {
    text.starts_with(HIDDEN)
}

/// The text that stands for the key.
fn hidden(key: &str) -> String {
    let hash = Sha256::digest(key);
    let fingerprint: String = hash.iter().take(FINGERPRINT_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{HIDDEN} {fingerprint})")
}

/// Visits the keys below `listeners/NAME/tls`: `session/tickets`, one or an array of them, and `hmac_key` of the
/// external account of each authority.
fn each_key(root: &mut JsonValue, visit: &mut dyn FnMut(&mut String)) {
    let Some(JsonValue::Object(listeners)) = member(root, "listeners") else { return };
    for listener in listeners.values_mut() {
        let Some(tls) = member(listener, "tls") else { continue };
        let tickets = member(tls, "session").and_then(|session| member(session, "tickets"));
        tickets.into_iter().for_each(|tickets| each_element(tickets, &mut |key| visit_text(key, visit)));
        let authorities = member(tls, "acme").and_then(|acme| member(acme, "authorities"));
        authorities.into_iter().for_each(|authorities| {
            each_element(authorities, &mut |authority| {
                let account = member(authority, "external_account");
                let key = account.and_then(|account| member(account, "hmac_key"));
                key.into_iter().for_each(|key| visit_text(key, visit));
            });
        });
    }
}

/// Visits the elements of an array, or the value itself.
fn each_element(value: &mut JsonValue, visit: &mut dyn FnMut(&mut JsonValue)) {
    match value {
        JsonValue::Array(elements) => elements.iter_mut().for_each(visit),
        value => visit(value),
    }
}

fn visit_text(value: &mut JsonValue, visit: &mut dyn FnMut(&mut String)) {
    if let JsonValue::String(text) = value {
        visit(text);
    }
}

fn member<'v>(value: &'v mut JsonValue, name: &str) -> Option<&'v mut JsonValue> {
    match value {
        JsonValue::Object(members) => members.get_mut(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

    const ABC: &str = "(hidden key ba7816bf8f01cfea)";
    const DEF: &str = "(hidden key cb8379ac2098aa16)";

    fn document(tickets: &str) -> Document {
        listener("*:1", tickets)
    }

    fn listener(name: &str, tickets: &str) -> Document {
        let text = format!(
            r#"{{"listeners": {{"{name}": {{"tls": {{"session": {{"tickets": {tickets}}}}}}}, "*:2": {{}}}}}}"#
        );
        Document::parse(&text).unwrap()
    }

    #[test]
    fn keys_are_hidden_and_restored() {
        for (tickets, hidden) in [
            (r#""abc""#, format!(r#""{ABC}""#)),
            (r#"["abc","def"]"#, format!(r#"["{ABC}","{DEF}"]"#)),
            ("true", "true".to_owned()),
            ("[7,null]", "[7,null]".to_owned()),
        ] {
            let whole = document(tickets);
            assert_eq!(whole.hide_keys().compact(), document(&hidden).compact());
            assert_eq!(whole.hide_keys().with_keys_of(&whole).compact(), whole.compact());
        }
    }

    #[test]
    fn keys_of_external_accounts_are_hidden_and_restored() {
        let with = |key: &str| {
            let authority = format!(r#"{{"external_account": {{"key_id": "x", "hmac_key": "{key}"}}}}"#);
            let listener = |authorities: &str| format!(r#"{{"tls": {{"acme": {{"authorities": {authorities}}}}}}}"#);
            let (one, many) = (listener(&authority), listener(&format!("[{{}}, {authority}]")));
            Document::parse(&format!(r#"{{"listeners": {{"*:1": {one}, "*:2": {many}}}}}"#)).unwrap()
        };
        assert_eq!(with("abc").hide_keys().compact(), with(ABC).compact());
        assert_eq!(with(ABC).with_keys_of(&with("abc")).compact(), with("abc").compact());
    }

    #[test]
    fn a_hidden_key_may_be_moved() {
        let before = document(r#"["abc", "def"]"#);
        for (sent, expected) in [
            (document(&format!(r#"["{DEF}", "new"]"#)), document(r#"["def", "new"]"#)),
            (document(&format!(r#"["{DEF}", "{ABC}"]"#)), document(r#"["def", "abc"]"#)),
            (document(&format!(r#""{DEF}""#)), document(r#""def""#)),
            (listener("*:3", &format!(r#"["{ABC}"]"#)), listener("*:3", r#"["abc"]"#)),
        ] {
            assert_eq!(sent.with_keys_of(&before).compact(), expected.compact());
        }
    }

    #[test]
    fn a_text_that_stands_for_no_known_key_stays() {
        let before = document(r#"["abc"]"#);
        for text in [DEF, "(hidden key)", "(hidden key x)"] {
            let sent = document(&format!(r#"["{text}"]"#));
            assert_eq!(sent.with_keys_of(&before).compact(), sent.compact());
            assert!(is_hidden(text));
        }
    }

    #[test]
    fn a_router_gets_no_keys_of_accounts() {
        let text = r#"{"listeners": {"*:443": {"pass": "routes", "tls": {
            "acme": {"domains": ["a.example"], "authorities": [{"external_account": {"key_id": "x", "hmac_key": "abc"}}]},
            "session": {"tickets": "def"}}}, "*:80": {"pass": "routes"}}, "routes": []}"#;
        let sent = Document::parse(text).expect("JSON").for_router().compact();
        assert!(!sent.contains("abc") && sent.contains("a.example") && sent.contains("def"), "{sent}");
    }
}
