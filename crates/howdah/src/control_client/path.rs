//! Paths of the control API.

use howdah_config::DocumentPath;

/// A name as one segment of a path.
///
/// # Errors
/// The name is empty.
pub fn name_segment(name: &str) -> Result<String, String> {
    match DocumentPath::from_iter([name]).to_string() {
        empty if empty.is_empty() => Err("the name is empty; write the name of an object".to_owned()),
        segment => Ok(segment),
    }
}

/// Reads a path of the configuration as the user writes it: with or without escapes in its names.
///
/// # Errors
/// A wrong escape.
pub fn parse_config_path(path: &str) -> Result<DocumentPath, String> {
    DocumentPath::parse(path)
        .map_err(|rejection| format!("the path {path:?} is not valid: {}", rejection.detail.unwrap_or_default()))
}

/// The path in the API of a part of the configuration.
pub fn config_url(path: &DocumentPath) -> String {
    format!("/config/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_escaped_where_it_must_be() {
        for (typed, expected) in [
            ("", "/config/"),
            ("/", "/config/"),
            ("listeners/*:80", "/config/listeners/*:80"),
            ("listeners/[::1]:80", "/config/listeners/[::1]:80"),
            ("applications/my app", "/config/applications/my%20app"),
            ("applications/caf\u{e9}?#", "/config/applications/caf%C3%A9%3F%23"),
            ("listeners/unix:%2Frun%2fx", "/config/listeners/unix:%2Frun%2Fx"),
            ("applications/100%25/root", "/config/applications/100%25/root"),
        ] {
            let url = config_url(&parse_config_path(typed).unwrap());
            assert_eq!(url, expected);
            assert!(url.parse::<hyper::Uri>().is_ok(), "{url}");
        }
        assert!(parse_config_path("applications/100%").unwrap_err().contains("write %25 for a percent sign"));
    }
}
