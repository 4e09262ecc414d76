//! `warm_up`: the requests that a new generation of an application answers before it receives client requests.

use crate::application::php::target::Targets;
use crate::error::{Error, quoted};
use crate::matching::request::Scheme;
use crate::read::header_name::is_header_name;
use crate::read::node::{Node, Options};

pub(crate) const OPTIONS: Options =
    Options { known: &["uri", "target", "host", "scheme", "headers"], unsupported: &[] };

const DEFAULT_HOST: &str = "localhost";
/// The characters of a URI besides letters and digits (RFC 3986, 2.2 and 2.3), and the percent sign.
const URI_PUNCTUATION: &[u8] = b"-._~:/?[]@!$&'()*+,;=%";

/// A warm-up request, with the method GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// The target of the application; `None` for an application without named targets.
    pub target: Option<String>,
    /// The path with the query, in ASCII. It begins with a slash.
    pub uri: String,
    /// The header `Host`. Default: `localhost`.
    pub host: String,
    /// The scheme that PHP sees.
    pub scheme: Scheme,
    /// Other headers. A name is a token, a value has no control characters.
    pub headers: Vec<(String, String)>,
}

/// Reads all warm-up requests. `targets` are those of the application.
pub(crate) fn read(node: &Node<'_>, targets: &Targets) -> Result<Vec<WarmUp>, Error> {
    node.elements()?.map(|node| WarmUp::read(&node, targets)).collect()
}

// === impl WarmUp ===

impl WarmUp {
    fn read(node: &Node<'_>, targets: &Targets) -> Result<Self, Error> {
        if node.is_string() {
            if let Targets::Named(_) = targets {
                let uri = node.string()?;
                let advice = format!("write {{\"target\": \"NAME\", \"uri\": {}}}", quoted(&uri));
                return Err(node.error(format_args!("the application has targets; {advice}")));
            }
            let uri = read_uri(node)?;
            return Ok(Self {
                target: None,
                uri,
                host: DEFAULT_HOST.to_owned(),
                scheme: Scheme::Http,
                headers: Vec::new(),
            });
        }
        if !node.is_object() {
            return Err(node.expected("a string or an object"));
        }
        let object = node.object(&OPTIONS)?;
        let target = object.read("target", |node| read_target(node, targets))?;
        if let (None, Targets::Named(_)) = (&target, targets) {
            return Err(node.error("\"target\" is missing; add the name of one of the application's targets"));
        }
        Ok(Self {
            target,
            uri: read_uri(&object.require("uri", "a path, as in \"/\"")?)?,
            host: object.read("host", read_host)?.unwrap_or_else(|| DEFAULT_HOST.to_owned()),
            scheme: object.read("scheme", read_scheme)?.unwrap_or(Scheme::Http),
            headers: object.read("headers", read_headers)?.unwrap_or_default(),
        })
    }
}

fn read_uri(node: &Node<'_>) -> Result<String, Error> {
    let uri = node.string()?;
    if !uri.starts_with('/') {
        return Err(node.error(format_args!("{} is not a path; begin it with \"/\"", quoted(&uri))));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c.is_ascii() && URI_PUNCTUATION.contains(&(c as u8));
    if let Some(wrong) = uri.chars().find(|c| !is_allowed(*c)) {
        let encoded: String = wrong.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")).collect();
        return Err(node.error(format_args!("{} has a {wrong:?}; write {encoded} instead", quoted(&uri))));
    }
    Ok(uri)
}

fn read_target(node: &Node<'_>, targets: &Targets) -> Result<String, Error> {
    let name = node.string()?;
    match targets {
        Targets::Named(targets) if targets.contains_key(&name) => Ok(name),
        Targets::Named(targets) => {
            let known: Vec<_> = targets.keys().map(|name| quoted(name)).collect();
            Err(node.error(format_args!(
                "the application has no target {}; write one of {}",
                quoted(&name),
                known.join(", ")
            )))
        }
        Targets::Single(_) => Err(node.error("the application has no targets; remove it")),
    }
}

fn read_host(node: &Node<'_>) -> Result<String, Error> {
    let host = node.nonempty_string()?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    if !host.chars().all(is_allowed) {
        return Err(node.error(format_args!("{} is not a host; write one such as \"www.example.com\"", quoted(&host))));
    }
    Ok(host)
}

fn read_scheme(node: &Node<'_>) -> Result<Scheme, Error> {
    let scheme = node.string()?;
    match scheme.as_str() {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        _ => Err(node.error(format_args!("{} is not a scheme; write \"http\" or \"https\"", quoted(&scheme)))),
    }
}

fn read_headers(node: &Node<'_>) -> Result<Vec<(String, String)>, Error> {
    let read = |(name, node): (&str, Node<'_>)| {
        if !is_header_name(name) {
            return Err(node.error(format_args!(
                "{} is not the name of a header; write one such as \"User-Agent\"",
                quoted(name)
            )));
        }
        if name.eq_ignore_ascii_case("host") {
            return Err(node.error("this header has an option of its own; write it as \"host\""));
        }
        let value = node.string()?;
        if value.chars().any(char::is_control) {
            return Err(node.error("the value has a control character; remove it"));
        }
        Ok((name.to_owned(), value))
    };
    node.named()?.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    const SINGLE: &str = r#""root": "/srv""#;
    const NAMED: &str = r#""targets": {"front": {"root": "/srv"}, "admin": {"root": "/srv"}}"#;

    fn parse(targets: &str, warm_up: &str) -> Result<Vec<WarmUp>, String> {
        let text = format!(r#"{{"applications": {{"x": {{"type": "php", {targets}, "warm_up": {warm_up}}}}}}}"#);
        let mut configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        let application = configuration.applications.remove("x").expect("application");
        Ok(application.as_php().expect("a PHP application").warm_up.clone())
    }

    #[test]
    fn a_string_is_a_uri_and_an_object_has_more_options() {
        let plain = WarmUp {
            target: None,
            uri: "/a?b=c%20d".into(),
            host: "localhost".into(),
            scheme: Scheme::Http,
            headers: Vec::new(),
        };
        assert_eq!(parse(SINGLE, "[]"), Ok(Vec::new()));
        assert_eq!(parse(SINGLE, r#"["/a?b=c%20d"]"#), Ok(vec![plain.clone()]));
        assert_eq!(parse(SINGLE, r#"[{"uri": "/a?b=c%20d"}]"#), Ok(vec![plain.clone()]));
        let all =
            r#"[{"target": "admin", "uri": "/", "host": "[::1]:80", "scheme": "https", "headers": {"X-A": "ä"}}]"#;
        let expected = WarmUp {
            target: Some("admin".into()),
            uri: "/".into(),
            host: "[::1]:80".into(),
            scheme: Scheme::Https,
            headers: vec![("X-A".into(), "ä".into())],
        };
        assert_eq!(parse(NAMED, all), Ok(vec![expected]));
    }

    #[test]
    fn an_error_names_the_request() {
        let cases = [
            (SINGLE, "5", ": expected an array, found the number 5"),
            (SINGLE, "[5]", "/0: expected a string or an object, found the number 5"),
            (SINGLE, r#"["a"]"#, "/0: \"a\" is not a path; begin it with \"/\""),
            (SINGLE, r#"["/a b"]"#, "/0: \"/a b\" has a ' '; write %20 instead"),
            (SINGLE, r#"["/ä"]"#, "/0: \"/ä\" has a 'ä'; write %C3%A4 instead"),
            (SINGLE, r##"["/a#b"]"##, "/0: \"/a#b\" has a '#'; write %23 instead"),
            (SINGLE, "[{}]", "/0: \"uri\" is missing; add a path, as in \"/\""),
            (SINGLE, r#"[{"uri": "/", "target": "a"}]"#, "/0/target: the application has no targets; remove it"),
            (
                SINGLE,
                r#"[{"uri": "/", "host": "a b"}]"#,
                "/0/host: \"a b\" is not a host; write one such as \"www.example.com\"",
            ),
            (
                SINGLE,
                r#"[{"uri": "/", "scheme": "h2"}]"#,
                "/0/scheme: \"h2\" is not a scheme; write \"http\" or \"https\"",
            ),
            (
                SINGLE,
                r#"[{"uri": "/", "headers": {"A B": ""}}]"#,
                "/0/headers/A B: \"A B\" is not the name of a header; write one such as \"User-Agent\"",
            ),
            (
                SINGLE,
                r#"[{"uri": "/", "headers": {"Host": "x"}}]"#,
                "/0/headers/Host: this header has an option of its own; write it as \"host\"",
            ),
            (
                SINGLE,
                r#"[{"uri": "/", "headers": {"A": "x\r\ny"}}]"#,
                "/0/headers/A: the value has a control character; remove it",
            ),
            (SINGLE, r#"[{"url": "/"}]"#, "/0/url: there is no such option; did you mean \"uri\"?"),
            (NAMED, r#"["/"]"#, "/0: the application has targets; write {\"target\": \"NAME\", \"uri\": \"/\"}"),
            (NAMED, r#"[{"uri": "/"}]"#, "/0: \"target\" is missing; add the name of one of the application's targets"),
            (
                NAMED,
                r#"[{"uri": "/", "target": "a"}]"#,
                "/0/target: the application has no target \"a\"; write one of \"admin\", \"front\"",
            ),
        ];
        for (targets, warm_up, expected) in cases {
            assert_eq!(parse(targets, warm_up), Err(format!("applications/x/warm_up{expected}")), "{warm_up}");
        }
    }
}
