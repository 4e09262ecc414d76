//! The schema is a JSON Schema, accepts valid configurations only, and agrees with the parser and
//! docs/configuration.md.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::tables::{Schema, object, string};
use crate::{Configuration, Document, SCHEMA, json};

/// Configurations as operators write them, with comments.
const EXAMPLES: &str = include_str!("../../examples/configurations.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("schema.json is JSON")
}

fn examples() -> Vec<(String, Value)> {
    let examples = Document::parse(EXAMPLES).expect("JSON").compact();
    let examples: serde_json::Map<String, Value> = serde_json::from_str(&examples).expect("an object");
    examples.into_iter().collect()
}

#[test]
fn the_schema_is_a_json_schema() {
    if let Err(error) = jsonschema::draft202012::meta::validate(&schema()) {
        panic!("{error} at {}", error.instance_path());
    }
}

#[test]
fn every_example_validates() {
    let validator = jsonschema::draft202012::new(&schema()).expect("a schema");
    for (name, example) in examples() {
        let errors: Vec<String> =
            validator.iter_errors(&example).map(|error| format!("{error} at {}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn every_example_is_read() {
    for (name, example) in examples() {
        if let Err(error) = Configuration::parse(&example.to_string()) {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn the_examples_use_every_option() {
    let text = EXAMPLES;
    for table in Schema::new().objects() {
        for (name, option) in object(&table["properties"]) {
            let rejected = object(option).contains_key("not") && !object(option).contains_key("type");
            assert!(rejected || text.contains(&format!("\"{name}\"")), "{}: {name}", string(&table["title"]));
        }
    }
}

#[test]
fn an_invalid_configuration_does_not_validate() {
    let validator = jsonschema::draft202012::new(&schema()).expect("a schema");
    let listener = |json: &str| format!(r#"{{"listeners": {{"*:80": {json}}}}}"#);
    let action = |json: &str| format!(r#"{{"routes": [{{"action": {json}}}]}}"#);
    let application = |json: &str| format!(r#"{{"applications": {{"a": {json}}}}}"#);
    let http = |json: &str| format!(r#"{{"settings": {{"http": {json}}}}}"#);
    let cases = [
        r#"{"listener": {}}"#.to_owned(),
        r#"{"listeners": {"80": {"pass": "routes"}}}"#.to_owned(),
        listener("{}"),
        listener(r#"{"application": "x"}"#),
        listener(r#"{"pass": "routes", "backlog": -2}"#),
        listener(r#"{"pass": "routes", "forwarded": {"source": "unix"}}"#),
        listener(r#"{"pass": "routes", "tls": {"certificate": []}}"#),
        listener(r#"{"pass": "routes", "tls": {"certificate": "x", "session": {"tickets": "short"}}}"#),
        listener(r#"{"pass": "route"}"#),
        listener(r#"{"pass": "routes", "protocol": "h2"}"#),
        listener(r#"{"pass": "routes", "allowed_clients": ["10.0.0.1"]}"#),
        listener(r#"{"pass": "routes", "protocol": "fastcgi", "http2": true, "allowed_clients": ["10.0.0.1"]}"#),
        r#"{"routes": [{}]}"#.to_owned(),
        r#"{"routes": [{"match": {"scheme": "ftp"}, "action": {"return": 200}}]}"#.to_owned(),
        r#"{"routes": [{"match": {"uri": [1]}, "action": {"return": 200}}]}"#.to_owned(),
        action("{}"),
        action(r#"{"pass": "routes", "return": 200}"#),
        action(r#"{"return": 199}"#),
        action(r#"{"return": 200, "index": "x"}"#),
        action(r#"{"pass": "routes", "location": "/"}"#),
        action(r#"{"share": "www$uri"}"#),
        action(r#"{"share": []}"#),
        action(r#"{"proxy": "ftp://127.0.0.1:80"}"#),
        action(r#"{"proxy": "https://x", "tls": {"server_name": ""}}"#),
        r#"{"upstreams": {"u": {"servers": {}, "fail_timeout": 5}}}"#.to_owned(),
        r#"{"upstreams": {"u": {"servers": {}, "health_check": {"path": "x"}}}}"#.to_owned(),
        r#"{"upstreams": {"u": {"servers": {}, "health_check": {"status": []}}}}"#.to_owned(),
        action(r#"{"pass": "routes", "response_headers": {"a b": "x"}}"#),
        action(r#"{"pass": "routes", "response_headers": {"content-length": "1"}}"#),
        action(r#"{"return": 200, "connection_limit": 0}"#),
        action(r#"{"return": 200, "basic_auth": {"users": {}}}"#),
        action(r#"{"return": 200, "basic_auth": {"realm": "x"}}"#),
        action(r#"{"return": 200, "basic_auth": {"realm": "x", "users": {"a:b": "x"}}}"#),
        application(r#"{"type": "python 3", "root": "/"}"#),
        application(r#"{"type": "php"}"#),
        application(r#"{"type": "http"}"#),
        application(r#"{"type": "http", "command": []}"#),
        application(r#"{"type": "http", "command": "x", "root": "/"}"#),
        application(r#"{"type": "http", "command": "x", "address": "listen_fds"}"#),
        application(r#"{"type": "http", "command": "x", "processes": "auto"}"#),
        application(r#"{"type": "roadrunner"}"#),
        application(r#"{"type": "roadrunner", "command": "x", "stdout": "/x"}"#),
        application(r#"{"type": "roadrunner", "command": "x", "processes": "auto"}"#),
        application(r#"{"type": "fastcgi", "root": "/"}"#),
        application(r#"{"type": "fastcgi", "address": "unix:/x"}"#),
        application(r#"{"type": "fastcgi", "address": "/x", "root": "/"}"#),
        application(r#"{"type": "fastcgi", "address": [], "root": "/"}"#),
        application(r#"{"type": "fastcgi", "address": "unix:/x", "root": "/", "targets": {"a": {"root": "/"}}}"#),
        application(r#"{"type": "fastcgi", "address": "unix:/x", "root": "/", "limits": {"memory": 0}}"#),
        application(r#"{"type": "fastcgi", "address": "unix:/x", "root": "/", "parameters": {"SCRIPT_NAME": ""}}"#),
        application(r#"{"type": "fastcgi", "address": "unix:/x", "root": "/", "processes": 1}"#),
        application(r#"{"type": "php", "root": "/", "targets": {"a": {"root": "/"}}}"#),
        application(r#"{"type": "php", "index": "x.php", "targets": {"a": {"root": "/"}}}"#),
        application(r#"{"type": "php", "root": "/", "script": "a.php", "front_controller": "a.php"}"#),
        application(r#"{"type": "php", "root": "/", "worker": {"script": "w.php"}, "index": "a.php"}"#),
        application(r#"{"type": "php", "root": "/", "worker": []}"#),
        application(r#"{"type": "php", "root": "/", "worker": [{"script": "w.php"}], "script": "a.php"}"#),
        application(r#"{"type": "php", "root": "/", "worker": [{"script": "w.php", "preboot": true}]}"#),
        application(r#"{"type": "php", "root": "/", "send_file": {"a": "/x"}}"#),
        application(r#"{"type": "php", "root": "/", "processes": 0}"#),
        application(r#"{"type": "php", "root": "/", "processes": {"auto": {}, "max": 3}}"#),
        application(r#"{"type": "php", "root": "/", "limits": {"shm": 1}}"#),
        application(r#"{"type": "php", "root": "/", "environment": {"A=B": "x"}}"#),
        application(r#"{"type": "php", "root": "/", "isolation": {"uidmap": [{"container": 0}]}}"#),
        http(r#"{"idle_timeout": 0}"#),
        http(r#"{"compression": {"compressors": {"encoding": "lzma"}}}"#),
        http(r#"{"compression": {"compressors": [{"encoding": "br", "level": 12}]}}"#),
        http(r#"{"static": {"mime_types": {"text": ".x"}}}"#),
        r#"{"settings": {"js_module": "x"}}"#.to_owned(),
        r#"{"access_log": {"format": "x"}}"#.to_owned(),
        r#"{"access_log": {"path": "-", "skip": {}}}"#.to_owned(),
        r#"{"access_log": {"path": "-", "skip": {"status": "4xx"}}}"#.to_owned(),
        r#"{"access_log": {"path": "/x", "format": "`${host}`"}}"#.to_owned(),
    ];
    for case in cases {
        assert!(!validator.is_valid(&serde_json::from_str(&case).expect(&case)), "{case}");
        assert!(Configuration::parse(&case).is_err(), "{case}");
    }
}

#[test]
fn every_option_is_described_and_compared_to_unit() {
    for table in Schema::new().objects() {
        for (name, option) in object(&table["properties"]) {
            let option_path = format!("{}: {name}", string(&table["title"]));
            let option = object(option);
            let description = string(option.get("description").unwrap_or_else(|| panic!("{option_path}: description")));
            assert!(!description.is_empty() && !description.ends_with('.'), "{option_path}: a table has no full stops");
            match option.get("x-unit").unwrap_or_else(|| panic!("{option_path}: x-unit")) {
                json::JsonValue::String(word) => assert!(["works", "ours"].contains(&word.as_str()), "{option_path}"),
                detail => {
                    let (word, detail) = object(detail).first().expect("one word");
                    assert!(["differs", "rejected"].contains(&word.as_str()), "{option_path}");
                    assert!(!string(detail).is_empty(), "{option_path}");
                    let nothing_is_valid = option.get("not").is_some_and(|not| object(not).is_empty());
                    assert_eq!(word == "rejected", nothing_is_valid, "{option_path}");
                }
            }
        }
    }
}

#[test]
fn the_schema_and_the_parser_have_the_same_options() {
    let parsers = [
        ("configuration", crate::configuration::OPTIONS),
        ("listener", crate::listener::OPTIONS),
        ("listener: socket", crate::listener::unix_socket::OPTIONS),
        ("listener: http3", crate::listener::http3::OPTIONS),
        ("listener: forwarded", crate::listener::forwarded::OPTIONS),
        ("listener: client_ip", crate::listener::forwarded::CLIENT_IP_OPTIONS),
        ("listener: tls", crate::tls::OPTIONS),
        ("listener: tls: session", crate::tls::SESSION_OPTIONS),
        ("listener: tls: hsts", crate::tls::hsts::OPTIONS),
        ("listener: tls: acme", crate::tls::acme::OPTIONS),
        ("listener: tls: acme: authorities", crate::tls::acme::AUTHORITY_OPTIONS),
        ("listener: tls: acme: authorities: external_account", crate::tls::acme::EXTERNAL_ACCOUNT_OPTIONS),
        ("listener: tls: acme: dns", crate::tls::acme::DNS_OPTIONS),
        ("listener: tls: acme: on_demand", crate::tls::acme::ON_DEMAND_OPTIONS),
        ("step", crate::routing::step::OPTIONS),
        ("step: match", crate::matching::condition::OPTIONS),
        ("step: action", crate::routing::action::OPTIONS),
        ("step: action: rate_limit", crate::routing::rate_limit::OPTIONS),
        ("step: action: basic_auth", crate::routing::basic_auth::OPTIONS),
        ("upstream", crate::routing::proxy::upstream::OPTIONS),
        ("upstream: server", crate::routing::proxy::upstream::SERVER_OPTIONS),
        ("upstream: health_check", crate::routing::proxy::health_check::OPTIONS),
        ("upstream: tls", crate::routing::proxy::tls::OPTIONS),
        ("application", crate::application::php::OPTIONS),
        ("HTTP application", crate::application::program::http::OPTIONS),
        ("RoadRunner application", crate::application::program::roadrunner::OPTIONS),
        ("FastCGI application", crate::application::fastcgi::OPTIONS),
        ("FastCGI application: target", crate::application::fastcgi::target::OPTIONS),
        ("FastCGI application: limits", crate::application::fastcgi::limits::OPTIONS),
        ("program: isolation", crate::application::program::ISOLATION_OPTIONS),
        ("application: target", crate::application::php::target::OPTIONS),
        ("application: worker", crate::application::php::worker_mode::OPTIONS),
        ("application: worker: script of several", crate::application::php::worker_scripts::OPTIONS),
        ("application: options", crate::application::php::options::OPTIONS),
        ("application: limits", crate::application::limits::OPTIONS),
        ("application: warm_up", crate::application::php::warm_up::OPTIONS),
        ("application: processes", crate::application::php::processes::OPTIONS),
        ("application: processes: auto", crate::application::php::processes::AUTO_OPTIONS),
        ("application: slow_log", crate::application::php::slow_log::OPTIONS),
        ("application: isolation", crate::application::isolation::OPTIONS),
        ("application: isolation: namespaces", crate::application::isolation::NAMESPACE_OPTIONS),
        ("application: isolation: uidmap and gidmap", crate::application::isolation::MAP_OPTIONS),
        ("application: isolation: automount", crate::application::isolation::AUTOMOUNT_OPTIONS),
        ("application: isolation: cgroup", crate::application::isolation::CGROUP_OPTIONS),
        ("settings", crate::settings::OPTIONS),
        ("settings: http", crate::settings::http::OPTIONS),
        ("settings: http: http2", crate::settings::http::HTTP2_OPTIONS),
        ("settings: http: static", crate::settings::http::STATIC_OPTIONS),
        ("settings: http: compression", crate::settings::compression::OPTIONS),
        ("settings: http: compression: compressors", crate::settings::compression::COMPRESSOR_OPTIONS),
        ("settings: http: request_id", crate::settings::request_id::OPTIONS),
        ("settings: metrics", crate::settings::metrics::OPTIONS),
        ("settings: telemetry", crate::settings::telemetry::OPTIONS),
        ("access_log", crate::settings::access_log::OPTIONS),
        ("access_log: skip", crate::settings::log_skip::OPTIONS),
    ];
    for table in Schema::new().objects() {
        let title = string(&table["title"]);
        // OpenSSL's commands, whose case is ignored, are not in a list of options.
        if title == "listener: tls: conf_commands" {
            continue;
        }
        let parser = parsers.iter().find(|(parser, _)| *parser == title);
        let (_, parser) = parser.unwrap_or_else(|| panic!("the parser has {title}"));
        let of_schema = |rejected: bool| -> BTreeSet<&str> {
            let is_rejected =
                |option: &json::JsonValue| object(option).get("not").is_some_and(|not| object(not).is_empty());
            let options = object(&table["properties"]).iter().filter(|(_, option)| is_rejected(option) == rejected);
            options.map(|(name, _)| name.as_str()).collect()
        };
        assert_eq!(of_schema(false), parser.known.iter().copied().collect(), "{title}");
        assert_eq!(of_schema(true), parser.unsupported.iter().map(|(name, _)| *name).collect(), "{title}: rejected");
    }
}

#[test]
fn a_default_is_valid() {
    let root = schema();
    for (name, definition) in root["$defs"].as_object().expect("$defs") {
        let Some(options) = definition.get("properties").and_then(Value::as_object) else { continue };
        for (option, _) in options.iter().filter(|(_, option)| option.get("default").is_some()) {
            let option_path = format!("#/$defs/{name}/properties/{option}");
            let schema = serde_json::json!({ "$defs": root["$defs"], "$ref": option_path });
            let validator = jsonschema::draft202012::new(&schema).expect("a schema");
            assert!(validator.is_valid(&options[option]["default"]), "{option_path}");
        }
    }
}

#[test]
fn the_tables_of_the_documentation_match_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).expect("docs/configuration.md");
    let rewritten = Schema::new().rewrite(&page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(&path, rewritten).expect("docs/configuration.md can be written");
    }
    let differs = page.lines().zip(rewritten.lines()).find(|(old, new)| old != new);
    assert!(
        page == rewritten,
        "docs/configuration.md differs from crates/config/schema.json; run UPDATE_DOCS=1 cargo test -p howdah-config \
         tables_of_the_documentation, review the difference and commit it. The first one: {differs:#?}"
    );
}
