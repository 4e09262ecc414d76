//! Documents and their edits, as in the requests of NGINX Unit's control API.

use howdah_config::{Configuration, Document, DocumentPath, Refusal};

const CONFIG: &str = r#"{
    "listeners": { "*:80": { "pass": "routes" }, "unix:/run/x.sock": { "pass": "applications/shop" } },
    "routes": [ { "action": { "return": 200 } }, { "action": { "return": 404 } } ],
    "applications": { "shop": { "type": "php", "root": "/srv/shop", "environment": { "50%": "x" } } }
}"#;

fn document() -> Document {
    Document::parse(CONFIG).expect("JSON")
}

fn path(text: &str) -> DocumentPath {
    DocumentPath::parse(text).expect(text)
}

fn value(json: &str) -> Document {
    Document::parse(json).expect(json)
}

fn get(document: &Document, at: &str) -> String {
    document.get(&path(at)).expect(at).compact()
}

fn refused(result: Result<Document, Refusal>) -> (u16, String, String) {
    let refusal = result.expect_err("a refusal");
    (refusal.status, refusal.error, refusal.detail.unwrap_or_default())
}

#[test]
fn a_value_is_found_by_its_path() {
    let cases = [
        ("/listeners/*:80/pass", r#""routes""#),
        ("/listeners/unix:%2Frun%2Fx.sock", r#"{"pass":"applications/shop"}"#),
        ("/listeners/%2a%3A80/", r#"{"pass":"routes"}"#),
        ("/routes/1/action/return", "404"),
        ("/routes//01", r#"{"action":{"return":404}}"#),
        ("/applications/shop/environment/50%25", r#""x""#),
    ];
    for (at, expected) in cases {
        assert_eq!(get(&document(), at), expected, "{at}");
    }
    assert_eq!(get(&document(), "/"), document().compact());
}

#[test]
fn a_path_that_does_not_exist_is_404() {
    let cases = [
        ("/upstreams", "the configuration has no member \"upstreams\""),
        ("/listener", "the configuration has no member \"listener\"; did you mean \"listeners\"?"),
        ("/applications/blog/root", "\"applications\" has no member \"blog\""),
        ("/routes/2", "\"routes\" is an array with the elements 0 to 1, not \"2\""),
        ("/routes/-1", "\"routes\" is an array with the elements 0 to 1, not \"-1\""),
        ("/routes/+1", "\"routes\" is an array with the elements 0 to 1, not \"+1\""),
        ("/routes/99999999999999999999999", "\"routes\" is an array with the elements 0 to 1"),
        ("/routes/0/action/return/x", "\"routes/0/action/return\" is a number, which has no member \"x\""),
        ("/listeners/unix:%2Frun%2Fx.sock/tls", "\"listeners/unix:%2Frun%2Fx.sock\" has no member \"tls\""),
    ];
    for (at, expected) in cases {
        for result in [document().get(&path(at)), document().delete(&path(at)), document().post(&path(at), value("1"))]
        {
            let (status, error, detail) = refused(result);
            assert_eq!((status, error.as_str()), (404, "Value doesn't exist."), "{at}");
            assert!(detail.starts_with(expected), "{at}: {detail}");
        }
    }
}

#[test]
fn put_replaces_in_place_and_adds_at_the_end() {
    let cases = [
        (
            "/listeners/*:80/pass",
            "1",
            "/listeners",
            r#"{"*:80":{"pass":1},"unix:/run/x.sock":{"pass":"applications/shop"}}"#,
        ),
        (
            "/listeners/*:81",
            "{}",
            "/listeners",
            r#"{"*:80":{"pass":"routes"},"unix:/run/x.sock":{"pass":"applications/shop"},"*:81":{}}"#,
        ),
        ("/listeners/unix:%2Fy", "{}", "/listeners/unix:%2Fy", "{}"),
        ("/routes/0", "null", "/routes", r#"[null,{"action":{"return":404}}]"#),
        ("/routes/2", "[ 3 ]", "/routes", r#"[{"action":{"return":200}},{"action":{"return":404}},[3]]"#),
        ("/routes/0/match", r#"{"uri": "/"}"#, "/routes/0", r#"{"action":{"return":200},"match":{"uri":"/"}}"#),
        ("/", r#"{"a": 1}"#, "/", r#"{"a":1}"#),
        ("", "[]", "/", "[]"),
    ];
    for (at, json, seen_at, expected) in cases {
        let edited = document().put(&path(at), value(json)).expect(at);
        assert_eq!(get(&edited, seen_at), expected, "{at}");
    }
}

#[test]
fn put_creates_the_objects_above_it() {
    let edited = document().put(&path("/upstreams/one/servers/x"), value("1")).expect("a document");
    assert_eq!(get(&edited, "/upstreams"), r#"{"one":{"servers":{"x":1}}}"#);
    let edited = document().put(&path("/routes/0/match/headers/A"), value("1")).expect("a document");
    assert_eq!(get(&edited, "/routes/0"), r#"{"action":{"return":200},"match":{"headers":{"A":1}}}"#);
}

#[test]
fn put_needs_a_parent_that_can_have_the_child() {
    for at in ["/routes/3", "/routes/x", "/routes/3/action", "/routes/0/action/return/x"] {
        let (status, error, _) = refused(document().put(&path(at), value("{}")));
        assert_eq!((status, error.as_str()), (404, "Value doesn't exist."), "{at}");
    }
    assert_eq!(
        refused(value("5").put(&path("/a"), value("1"))).2,
        "the configuration is a number, which has no member \"a\""
    );
}

#[test]
fn post_appends_to_arrays_only() {
    let edited = document().post(&path("/routes"), value(r#"{"action": {"return": 500}}"#)).expect("an array");
    assert_eq!(get(&edited, "/routes/2"), r#"{"action":{"return":500}}"#);
    let array = value("[[]]").post(&path("/0/"), value("1")).expect("an array");
    assert_eq!(array.compact(), "[[1]]");

    let cases = [
        ("/listeners", "POST adds to an array, but \"listeners\" is an object; PUT replaces it"),
        (
            "/routes/0/action/return",
            "POST adds to an array, but \"routes/0/action/return\" is a number; PUT replaces it",
        ),
        ("/", "POST adds to an array; PUT replaces the whole configuration"),
    ];
    for (at, expected) in cases {
        let refusal = (405, "Method isn't allowed.".to_owned(), expected.to_owned());
        assert_eq!(refused(document().post(&path(at), value("1"))), refusal, "{at}");
    }
    assert_eq!(value("[]").post(&path("/"), value("1")).map(|_| ()).map_err(|refusal| refusal.status), Err(405));
}

#[test]
fn delete_removes_members_and_elements() {
    let cases = [
        ("/listeners/*:80", "/listeners", r#"{"unix:/run/x.sock":{"pass":"applications/shop"}}"#),
        ("/routes/0", "/routes", r#"[{"action":{"return":404}}]"#),
        (
            "/applications",
            "/",
            r#"{"listeners":{"*:80":{"pass":"routes"},"unix:/run/x.sock":{"pass":"applications/shop"}},"routes":[{"action":{"return":200}},{"action":{"return":404}}]}"#,
        ),
        ("/", "/", "{}"),
    ];
    for (at, seen_at, expected) in cases {
        let edited = document().delete(&path(at)).expect(at);
        assert_eq!(get(&edited, seen_at), expected, "{at}");
    }
}

#[test]
fn the_initial_document_takes_a_configuration_member_by_member() {
    let initial = Document::initial();
    assert_eq!(initial.compact(), r#"{"listeners":{},"routes":[],"applications":{}}"#);
    let edited = initial
        .post(&path("/routes"), value(r#"{"action": {"return": 204}}"#))
        .and_then(|document| document.put(&path("/listeners/*:80"), value(r#"{"pass": "routes"}"#)))
        .expect("edits");
    assert_eq!(Configuration::of(&edited), Configuration::parse(&edited.compact()));
    assert_eq!(Configuration::of(&edited).expect("a configuration").listeners.len(), 1);
}

#[test]
fn several_documents_become_one_answer() {
    let all = Document::compose([("certificates", value("{}")), ("config", value("{\"routes\": []}"))]);
    assert_eq!(all.pretty(), "{\r\n\t\"certificates\": {},\r\n\t\"config\": {\r\n\t\t\"routes\": []\r\n\t}\r\n}\r\n");
}

#[test]
fn an_etag_changes_with_the_content_and_the_order_but_not_with_spaces_and_comments() {
    let etag = |json: &str| value(json).etag();
    assert_eq!(etag(r#"{"a": 1, "b": 2}"#), etag("// x\n{\"a\":1,/**/\"b\":2}"));
    assert_ne!(etag(r#"{"a": 1, "b": 2}"#), etag(r#"{"b": 2, "a": 1}"#));
    assert_ne!(etag(r#"{"a": 1}"#), etag(r#"{"a": "1"}"#));
}

#[test]
fn an_edit_cannot_exceed_the_limits_of_a_text() {
    let nested = |levels: usize| value(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    let deepest = path(&"/0".repeat(63));
    assert!(nested(64).put(&deepest, nested(64)).is_ok());
    let (status, error, detail) = refused(nested(64).put(&deepest, nested(65)));
    assert_eq!((status, error.as_str()), (400, "Invalid configuration."));
    assert_eq!(detail, "the configuration is nested too deeply; at most 127 levels are accepted");
    assert_eq!(refused(nested(64).post(&deepest, nested(64))).0, 400);

    let long = value(&format!("\"{}\"", "x".repeat(3 << 20)));
    let one = value("{}").put(&path("/a"), long.clone()).expect("3 MiB");
    assert_eq!(refused(one.put(&path("/b"), long)).0, 400);
    // Numbers grow when they are printed.
    assert!(Document::parse(&format!("[{}1e15]", "1e15,".repeat(800_000))).is_err());
}

#[test]
fn a_body_that_is_not_utf_8_is_rejected_with_its_location() {
    let error = Document::parse_bytes(b"{\"a\":\n \"\xff\"}").expect_err("not UTF-8");
    let location = error.location.expect("a location");
    assert_eq!((error.error.as_str(), location.offset, location.line, location.column), ("Invalid JSON.", 8, 2, 3));
    assert!(Document::parse_bytes("\u{feff}{} // ä".as_bytes()).is_ok());
    assert!(Document::parse_bytes(&vec![b'['; 10 << 20]).is_err());
}

#[test]
fn a_refusal_is_short_even_if_names_are_long() {
    let long = "x".repeat(1 << 20);
    let document = value(&format!(r#"{{"{long}": 1}}"#));
    for result in [
        document.post(&path(&long), value("1")),
        document.get(&path(&format!("{long}/y"))),
        document.delete(&path(&format!("{long}z"))),
    ] {
        assert!(result.expect_err("a refusal").to_json().len() < 1000);
    }
}
