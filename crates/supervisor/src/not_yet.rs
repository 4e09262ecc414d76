//! What the language has and howdah does not do yet: said when a configuration is applied, lest it be ignored.
//!
//! Whoever builds one of these removes its line here. What concerns single requests is told by the router.

use howdah_config::Configuration;

/// # Errors
/// The first option that would do nothing, with its path.
pub fn refuse(configuration: &Configuration) -> Result<(), String> {
    let http = &configuration.settings.http;
    let mut others = Vec::new();
    let mut check = |does_something: bool, path: &str| {
        if does_something {
            others.push(path.to_owned());
        }
    };
    check(!http.compression.compressors.is_empty(), "settings/http/compression");
    match others.first() {
        Some(path) => Err(format!("{path}: howdah does not do this yet; remove it")),
        None => Ok(()),
    }
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
            (application(r#""isolation": {"rootfs": "/x"}, "stderr": "/x""#), None),
            (
                r#"{"settings": {"http": {"compression": {"compressors": [{"encoding": "gzip"}]}}}}"#.to_owned(),
                Some("settings/http/compression"),
            ),
        ];
        for (text, expected) in cases {
            let configuration = Configuration::parse(&text).unwrap();
            let expected = expected.map(|path| format!("{path}: howdah does not do this yet; remove it"));
            assert_eq!(refuse(&configuration).err(), expected, "{text}");
        }
    }
}
