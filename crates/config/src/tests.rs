//! The configuration as a whole, and actions, which need destinations.

use super::*;

/// The example of the operators' guide, in full.
const EXAMPLE: &str = r#"
{
  // Where requests come in.
  "listeners": { "*:8080": { "pass": "routes" }, "[::1]:8081": {"pass": "applications/shop/front"} },
  "routes": [
    { "match": { "uri": ["*.php", "*.php/*"], "host": "*.example.com", "method": "GET" }, "action": { "pass": "applications/shop/front" } },
    { "match": { "uri": "/old" }, "action": { "return": 301, "location": "/neu ä" } },
    { "action": { "share": ["/srv/shop$uri", "/srv/common/$uri"], "index": ["index.html", "index.htm"], "follow_symlinks": true,
                  "fallback": { "pass": "applications/shop/front" } } }
  ],
  "applications": { "shop": {
      "type": "php 8.2",
      "targets": { "front": { "root": "/srv/shop", "front_controller": "index.php" } },
      "options": { "file": "/etc/php.ini", "admin": { "memory_limit": "256M" }, "user": { "display_errors": "0" } },
      "processes": 2, "environment": { "K": "V" }, "working_directory": "/srv/shop", "user": "www-data", "group": "www-data" } },
  "settings": { "listen_threads": 2, "http": { "max_body_size": 8388608 } },
  "access_log": "/var/log/x.log"
}"#;

fn error(text: &str) -> String {
    let error = Configuration::parse(text).expect_err(text);
    assert_eq!(error.error, "Invalid configuration.");
    assert_eq!(error.location, None);
    error.to_string()
}

fn action(json: &str) -> Result<Action, String> {
    let text = format!(r#"{{"routes": {{"r": [{{"action": {json}}}], "s": []}}}}"#);
    let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
    Ok(configuration.routes.steps(Some("r")).expect("route")[0].action.clone())
}

fn share(paths: &[&str]) -> Share {
    Share {
        paths: paths.iter().map(|path| Template::parse(path).expect(path)).collect(),
        index: vec!["index.html".to_owned()],
        follow_symlinks: None,
        chroot: None,
        fallback: None,
    }
}

#[test]
fn a_whole_configuration_is_read() {
    let configuration = Configuration::parse(EXAMPLE).expect("configuration");
    let front = Pass::Application { name: "shop".into(), target: Some("front".into()) };
    let addresses: Vec<String> = configuration.listeners.iter().map(|listener| listener.address.to_string()).collect();
    assert_eq!(addresses, ["*:8080", "[::1]:8081"]);
    assert_eq!(configuration.listeners[0].pass, Pass::Routes(None));
    assert_eq!(configuration.listeners[1].pass, front);

    let steps = configuration.routes.steps(None).expect("routes");
    assert_eq!(steps[0].action, Action::Pass(front.clone()));
    assert_eq!(steps[1].action, Action::Return { status: 301, location: Some("/neu%20%C3%A4".into()) });
    let expected = Share {
        index: vec!["index.html".into(), "index.htm".into()],
        follow_symlinks: Some(true),
        fallback: Some(Box::new(Action::Pass(front))),
        ..share(&["/srv/shop$uri", "/srv/common/$uri"])
    };
    assert_eq!(steps[2].action, Action::Share(expected));

    let decides = |host, uri| {
        let request = RequestView { method: "GET", host, uri };
        steps.iter().position(|step| step.condition.matches(&request))
    };
    assert_eq!(decides("www.example.com", "/x.php"), Some(0));
    assert_eq!(decides("www.example.org", "/x.php"), Some(2));
    assert_eq!(decides("", "/old"), Some(1));
    assert_eq!(configuration.access_log, Some(AccessLog::Path("/var/log/x.log".into())));
}

#[test]
fn an_empty_configuration_is_the_default() {
    assert_eq!(Configuration::parse("{}"), Ok(Configuration::default()));
}

#[test]
fn an_unknown_part_is_refused() {
    let cases = [
        ("[]", "expected an object, found an array"),
        (r#"{"listener": {}}"#, "listener: there is no such option; did you mean \"listeners\"?"),
        (r#"{"frobnicate": {}}"#, "frobnicate: there is no such option; remove it"),
        (r#"{"upstreams": {}}"#, "upstreams: howdah does not support this option of NGINX Unit yet; remove it"),
        (
            r#"{"certificates": {}, "config": {}, "status": {}}"#,
            "this is everything that NGINX Unit's control API holds; give only the value of \"config\"",
        ),
        (r#"{"listeners": null}"#, "listeners: expected an object, found null; remove the option to have its default"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected);
    }
}

#[test]
fn an_error_is_one_line_of_bounded_length() {
    let long = "x\\n".repeat(100_000);
    for text in [
        format!(r#"{{"{long}": 1}}"#),
        format!(r#"{{"listeners": {{"*:80": {{"pass": "{long}"}}}}}}"#),
        format!(r#"{{"applications": {{"{long}": {{}}}}}}"#),
        format!(r#"{{"applications": {{"a": {{"type": "{long}"}}}}}}"#),
        format!(r#"{{"routes": [{{"action": {{"share": "/$"}}, "{long}": 1}}]}}"#),
        format!(r#"{{"routes": [{{"action": {{"share": "/${{{long}}}"}}}}]}}"#),
        format!(r#"{{"routes": [{{"match": {{"uri": "{long}"}}, "action": {{"share": "/x"}}}}]}}"#),
    ] {
        let error = error(&text);
        assert!(error.len() < 1000 && !error.contains('\n'), "{error}");
    }
}

#[test]
fn an_action_is_read() {
    let chroot = Share { chroot: Some("/srv".into()), ..share(&["/srv/shop$uri", "/$host$uri"]) };
    let never = Share { follow_symlinks: Some(false), index: Vec::new(), ..share(&["/srv$uri"]) };
    let cases = [
        (r#"{"pass": "routes/s"}"#, Action::Pass(Pass::Routes(Some("s".into())))),
        (r#"{"return": 404}"#, Action::Return { status: 404, location: None }),
        (
            r#"{"return": 302, "location": "https://x.org/?a=b%20c"}"#,
            Action::Return { status: 302, location: Some("https://x.org/?a=b%20c".into()) },
        ),
        (r#"{"share": "/srv$uri"}"#, Action::Share(share(&["/srv$uri"]))),
        (r#"{"share": "/srv$uri", "follow_symlinks": false, "index": []}"#, Action::Share(never)),
        (r#"{"share": ["/srv/shop$uri", "/$host$uri"], "chroot": "/srv/"}"#, Action::Share(chroot)),
    ];
    for (json, expected) in cases {
        assert_eq!(action(json), Ok(expected), "{json}");
    }
}

#[test]
fn a_wrong_action_is_refused() {
    let one = "an action has exactly one of \"pass\", \"share\" and \"return\"; write one";
    let not_yet = "howdah does not support this option of NGINX Unit yet; remove it";
    let cases = [
        ("{}", format!(": {one}")),
        (r#"{"pass": "routes/s", "return": 200}"#, format!(": {one}")),
        (r#"{"index": "x"}"#, format!(": {one}")),
        (r#"{"proxy": "http://127.0.0.1:80"}"#, format!("/proxy: {not_yet}")),
        (r#"{"return": 200, "rewrite": "/x"}"#, format!("/rewrite: {not_yet}")),
        (r#"{"pass": "routes/s", "response_headers": {}}"#, format!("/response_headers: {not_yet}")),
        (r#"{"share": "/x$uri", "types": "image/*"}"#, format!("/types: {not_yet}")),
        (
            r#"{"pass": "routes/s", "fallback": {"return": 200}}"#,
            "/fallback: this option does not go together with \"pass\"; remove it".into(),
        ),
        (r#"{"shared": "/x"}"#, "/shared: there is no such option; did you mean \"share\"?".into()),
        (r#"{"return": 100}"#, "/return: 100 is out of range; write 200 to 999 (an HTTP status)".into()),
        (
            r#"{"return": 301, "location": "/a\r\nb: c"}"#,
            r#"/location: "/a\r\nb: c" has a control character; remove it"#.into(),
        ),
        (
            r#"{"return": 301, "location": "https://$host/"}"#,
            "/location: \"https://$host/\" has a variable, which howdah does not support in \"location\" yet; \
             write %24 for a dollar sign"
                .into(),
        ),
        (r#"{"share": []}"#, "/share: the array is empty; add a path, as in \"/srv/shop$uri\"".into()),
        (r#"{"share": "srv$uri"}"#, "/share: \"srv$uri\" is not an absolute path; begin it with \"/\"".into()),
        (r#"{"share": ["/x", "$uri"]}"#, "/share/1: \"$uri\" is not an absolute path; begin it with \"/\"".into()),
        (r#"{"share": "/$url"}"#, "/share: \"/$url\" has no variable \"url\" to fill in; did you mean \"uri\"?".into()),
        (
            r#"{"share": "/x$uri", "index": "../a"}"#,
            "/index: \"../a\" must be a file below the folder, without \"..\"".into(),
        ),
        (
            r#"{"share": "/srv/a$uri", "chroot": "/srv/b"}"#,
            "/share: \"/srv/a$uri\" is outside of \"chroot\", which is \"/srv/b\"; change one of them".into(),
        ),
        (
            r#"{"share": "/srv/b/../a$uri", "chroot": "/srv/b"}"#,
            "/share: \"/srv/b/../a$uri\" has a \"..\", which does not go together with \"chroot\"; \
             write the path without it"
                .into(),
        ),
        (
            r#"{"share": "/srv$uri", "chroot": "/srv/$host"}"#,
            "/chroot: howdah does not support variables in \"chroot\" yet; write a fixed path".into(),
        ),
        (
            r#"{"share": "/x$uri", "fallback": {"share": "/y$uri", "fallback": {"pass": "routes/t"}}}"#,
            "/fallback/fallback/pass: \"routes/t\" names a route that does not exist; did you mean \"r\"?".into(),
        ),
    ];
    for (json, expected) in cases {
        assert_eq!(action(json), Err(format!("routes/r/0/action{expected}")), "{json}");
    }
}

#[test]
fn a_huge_configuration_is_read_or_refused_quickly() {
    let start = std::time::Instant::now();
    let key = "k".repeat(1 << 20);
    let environment: Vec<String> = (0..100_000).map(|i| format!(r#""{i}":"""#)).collect();
    let text = format!(
        r#"{{"applications":{{"{key}":{{"type":"php","root":"/x","environment":{{{}}}}}}}}}"#,
        environment.join(",")
    );
    assert_eq!(Configuration::parse(&text).map(|configuration| configuration.applications.len()), Ok(1));
    assert!(Configuration::parse(&"[".repeat(4 << 20)).is_err());
    assert!(Configuration::parse(&format!("[{}0]", "0,".repeat((2 << 20) - 2))).is_err());
    let fallbacks =
        format!(r#"{{"routes":[{{"action":{}{}}}]}}"#, r#"{"share":"/x","fallback":"#.repeat(200), "}".repeat(200));
    assert!(Configuration::parse(&fallbacks).is_err());
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
}
