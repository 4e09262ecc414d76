//! Properties of every edit of every document.

use std::collections::BTreeMap;

use howdah_config::{Document, DocumentPath};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

/// Arbitrary JSON, with slashes, escapes and control characters in names and texts.
fn json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name().prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..6).prop_map(object),
        ]
    })
}

fn object(members: BTreeMap<String, Value>) -> Value {
    Value::Object(members.into_iter().collect())
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,3}", "[0-9]{1,2}", "[/%. ~*:\\\\\"]{1,4}", "[ä✓\u{1}\u{7f}\n\t]{1,3}"]
}

/// The path of an arbitrary value in the document.
fn some_path(value: &Value, choices: &[Index]) -> Vec<String> {
    let mut names = Vec::new();
    let mut value = value;
    for choice in choices {
        let (name, child) = match value {
            Value::Array(elements) if !elements.is_empty() => {
                let index = choice.index(elements.len());
                (index.to_string(), &elements[index])
            }
            Value::Object(members) if !members.is_empty() => {
                let (name, child) = members.iter().nth(choice.index(members.len())).expect("a member");
                (name.clone(), child)
            }
            _ => break,
        };
        names.push(name);
        value = child;
    }
    names
}

fn choices() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..5)
}

fn document(value: &Value) -> Document {
    Document::parse(&value.to_string()).expect("JSON")
}

fn path(names: &[String]) -> DocumentPath {
    // Through its text form, as in a request.
    DocumentPath::parse(&names.iter().collect::<DocumentPath>().to_string()).expect("a path")
}

fn at<'v>(value: &'v Value, names: &[String]) -> &'v Value {
    names.iter().fold(value, |value, name| match value {
        Value::Array(elements) => &elements[name.parse::<usize>().expect("an index")],
        other => &other[name],
    })
}

proptest! {
    #[test]
    fn a_printed_document_parses_to_the_same_document(value in json()) {
        let document = document(&value);
        for text in [document.compact(), document.pretty()] {
            let again = Document::parse(&text).expect("JSON");
            prop_assert_eq!(again.compact(), document.compact());
            prop_assert_eq!(again.etag(), document.etag());
            prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value.clone());
        }
    }

    #[test]
    fn a_displayed_path_parses_to_the_same_path(names in prop::collection::vec(name(), 0..6)) {
        let path: DocumentPath = names.iter().collect();
        prop_assert_eq!(DocumentPath::parse(&path.to_string()).expect("a path"), path.clone());
        prop_assert!(path.to_string().bytes().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn every_value_has_a_path(value in json(), choices in choices()) {
        let names = some_path(&value, &choices);
        let found = document(&value).get(&path(&names)).expect("a value");
        prop_assert_eq!(found.compact(), document(at(&value, &names)).compact());
    }

    #[test]
    fn get_after_put_gives_the_value(value in json(), choices in choices(), new in json(), child in prop::option::of(name())) {
        let mut names = some_path(&value, &choices);
        names.extend(child);
        let before = document(&value);
        match before.put(&path(&names), document(&new)) {
            Ok(after) => {
                prop_assert_eq!(after.get(&path(&names)).expect("the value").compact(), document(&new).compact());
                prop_assert_eq!(Document::parse(&after.compact()).expect("JSON").compact(), after.compact());
            }
            Err(refusal) => {
                prop_assert_eq!(refusal.status, 404);
                prop_assert!(before.get(&path(&names)).is_err());
            }
        }
        prop_assert_eq!(before.compact(), document(&value).compact());
    }

    #[test]
    fn restoring_the_old_value_undoes_a_put(value in json(), choices in choices(), new in json()) {
        let before = document(&value);
        let path = path(&some_path(&value, &choices));
        let old = before.get(&path).expect("a value");
        let after = before.put(&path, document(&new)).and_then(|changed| changed.put(&path, old)).expect("edits");
        prop_assert_eq!(after.compact(), before.compact());
    }

    #[test]
    fn post_adds_one_element_at_the_end(value in json(), choices in choices(), new in json()) {
        let names = some_path(&value, &choices);
        let after = document(&value).post(&path(&names), document(&new));
        match at(&value, &names) {
            Value::Array(elements) if !names.is_empty() => {
                let expected = Value::from_iter(elements.iter().chain([&new]).cloned());
                let after = after.expect("an array").get(&path(&names)).expect("a value");
                prop_assert_eq!(after.compact(), document(&expected).compact());
            }
            _ => prop_assert_eq!(after.map(|_| ()).map_err(|refusal| refusal.status), Err(405)),
        }
    }

    #[test]
    fn delete_removes_only_one_value(value in json(), choices in choices()) {
        let names = some_path(&value, &choices);
        let after = document(&value).delete(&path(&names)).expect("a value");
        let mut expected = value.clone();
        match names.split_last() {
            None => expected = Value::Object(Default::default()),
            Some((last, parents)) => {
                let parent = parents.iter().fold(&mut expected, |value, name| match value {
                    Value::Array(elements) => &mut elements[name.parse::<usize>().expect("an index")],
                    other => &mut other[name],
                });
                match parent {
                    Value::Array(elements) => drop(elements.remove(last.parse().expect("an index"))),
                    Value::Object(members) => drop(members.remove(last)),
                    _ => unreachable!("a parent has children"),
                }
            }
        }
        prop_assert_eq!(after.compact(), document(&expected).compact());
    }
}
