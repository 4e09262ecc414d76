//! What the language has and howdah does not do yet: said when a configuration is applied, lest it be ignored.
//!
//! Whoever builds one of these removes its line here. What concerns single requests is told by the router.

use howdah_config::{Application, Configuration, Isolation, Limits, Listener, LogFormat, Processes};

/// # Errors
/// The first option that would do nothing, with its path.
pub fn refuse(configuration: &Configuration) -> Result<(), String> {
    let listeners = configuration.listeners.iter().flat_map(of_listener);
    let applications =
        configuration.applications.iter().flat_map(|(name, application)| of_application(name, application));
    let http = &configuration.settings.http;
    let mut others = Vec::new();
    let mut check = |does_something: bool, path: &str| {
        if does_something {
            others.push(path.to_owned());
        }
    };
    check(http.log_route, "settings/http/log_route");
    if let Some(log) = &configuration.access_log {
        check(log.format != LogFormat::combined(), "access_log/format");
        check(log.condition.is_some(), "access_log/if");
    }
    match listeners.chain(applications).chain(others).next() {
        Some(path) => Err(format!("{path}: howdah does not do this yet; remove it")),
        None => Ok(()),
    }
}

fn of_listener(listener: &Listener) -> Vec<String> {
    let options = [
        ("tls", listener.tls.is_some()),
        ("forwarded", listener.forwarded.is_some()),
        ("backlog", listener.backlog.is_some()),
    ];
    let address = listener.address.to_string().replace('/', "%2F");
    let used = options.into_iter().filter(|(_, is_used)| *is_used);
    used.map(|(option, _)| format!("listeners/{address}/{option}")).collect()
}

fn of_application(name: &str, application: &Application) -> Vec<String> {
    let options = [
        ("processes", matches!(application.processes, Processes::Dynamic { .. })),
        ("limits", application.limits != Limits::default()),
        ("isolation", application.isolation != Isolation::default()),
        ("stdout", application.stdout.is_some()),
        ("stderr", application.stderr.is_some()),
    ];
    let used = options.into_iter().filter(|(_, is_used)| *is_used);
    used.map(|(option, _)| format!("applications/{name}/{option}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_would_do_nothing_is_named() {
        let application =
            |options: &str| format!(r#"{{"applications": {{"x": {{"type": "php", "root": "/srv", {options}}}}}}}"#);
        let cases = [
            (r#"{"routes": [], "listeners": {"*:1": {"pass": "routes"}}, "access_log": "-"}"#.to_owned(), None),
            (application(r#""processes": 3"#), None),
            (application(r#""processes": {"max": 3}"#), Some("applications/x/processes")),
            (application(r#""isolation": {"rootfs": "/x"}"#), Some("applications/x/isolation")),
            (
                r#"{"routes": [], "listeners": {"unix:/x": {"pass": "routes", "tls": {"certificate": "x"}}}}"#
                    .to_owned(),
                Some("listeners/unix:%2Fx/tls"),
            ),
            (r#"{"access_log": {"path": "-", "if": "$uri"}}"#.to_owned(), Some("access_log/if")),
        ];
        for (text, expected) in cases {
            let configuration = Configuration::parse(&text).unwrap();
            let expected = expected.map(|path| format!("{path}: howdah does not do this yet; remove it"));
            assert_eq!(refuse(&configuration).err(), expected, "{text}");
        }
    }
}
