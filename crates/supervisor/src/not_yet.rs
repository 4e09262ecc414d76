//! What the language has and howdah does not do yet: said when a configuration is applied, lest it be ignored.
//!
//! Whoever builds one of these removes its line here. What concerns single requests is told by the router.

use howdah_config::{Application, Configuration, Isolation};

/// # Errors
/// The first option that would do nothing, with its path.
pub fn refuse(configuration: &Configuration) -> Result<(), String> {
    let mut applications =
        configuration.applications.iter().flat_map(|(name, application)| of_application(name, application));
    match applications.next() {
        Some(path) => Err(format!("{path}: howdah does not do this yet; remove it")),
        None => Ok(()),
    }
}

fn of_application(name: &str, application: &Application) -> Vec<String> {
    let options = [
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
            (application(r#""isolation": {"rootfs": "/x"}"#), Some("applications/x/isolation")),
        ];
        for (text, expected) in cases {
            let configuration = Configuration::parse(&text).unwrap();
            let expected = expected.map(|path| format!("{path}: howdah does not do this yet; remove it"));
            assert_eq!(refuse(&configuration).err(), expected, "{text}");
        }
    }
}
