//! Text with variables, which each request fills in: `/srv/$host$uri`, `/srv/${host}_static$uri`.
//!
//! The variables: `$uri` is the request's path, `$host` its host, `$dollar` a dollar sign.

use std::fmt;
use std::str::FromStr;

use crate::condition::RequestView;
use crate::error::{Error, did_you_mean, quoted};

const VARIABLES: [&str; 3] = ["uri", "host", "dollar"];

/// Variables of NGINX Unit that howdah does not have yet, and how those that have a name in them begin.
const NOT_YET: [&str; 9] = [
    "body_bytes_sent",
    "method",
    "remote_addr",
    "request_id",
    "request_line",
    "request_time",
    "request_uri",
    "status",
    "time_local",
];
const NOT_YET_PREFIXES: [&str; 4] = ["arg_", "cookie_", "header_", "response_header_"];

/// Text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: String,
    /// No two literals follow each other, and none is empty.
    parts: Vec<Part>,
    /// See [`Template::constant_prefix`]; in bytes of the first part.
    constant_prefix_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Uri,
    Host,
}

// === impl Template ===

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// A `$` that is not followed by the name of a variable.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|problem| Error::configuration(format!("{} {problem}", quoted(text))))
    }

    /// The text for one request. As a path, it does not leave [`constant_prefix`](Self::constant_prefix) unless the
    /// template itself has a `..` or the request's `uri` is not normalised:
    ///
    /// - a slash before `$uri` and the one with which the path begins become one;
    /// - a host that is empty, begins with a dot or has a slash cannot climb: each such dot or slash is a `_`, and
    ///   the empty host is `_` too, lest a path of one host be read as the name of another.
    pub fn render(&self, request: &RequestView<'_>) -> String {
        let mut text = String::with_capacity(self.source.len() + request.uri.len() + request.host.len());
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Uri if text.ends_with('/') => text.push_str(request.uri.strip_prefix('/').unwrap_or(request.uri)),
                Part::Uri => text.push_str(request.uri),
                Part::Host => push_host(&mut text, request.host),
            }
        }
        text
    }

    /// The longest folder that is the same for every request: it ends with a slash, or is followed by the one with
    /// which `$uri` begins. `/srv/shop` for `/srv/shop$uri`; `/srv/` for `/srv/$host$uri`, `/srv/a$host/x` and
    /// `/srv/x.html`; empty if the template begins with a variable.
    pub fn constant_prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(literal)) => &literal[..self.constant_prefix_bytes],
            _ => "",
        }
    }
}

impl FromStr for Template {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl fmt::Display for Template {
    /// As in the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

/// The template, or what is wrong with the text, said of the text.
pub(crate) fn parse(text: &str) -> Result<Template, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        let (name, after) = split_name(after)?;
        let variable = match name {
            "dollar" => {
                literal.push('$');
                None
            }
            "uri" => Some(Part::Uri),
            "host" => Some(Part::Host),
            other => return Err(unknown(other)),
        };
        if let Some(variable) = variable {
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(variable);
        }
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(Template { constant_prefix_bytes: constant_prefix_bytes(&parts), source: text.to_owned(), parts })
}

/// The variable's name with which the text begins (`name` or `{name}`), and what follows.
fn split_name(text: &str) -> Result<(&str, &str), String> {
    if let Some(text) = text.strip_prefix('{') {
        return text.split_once('}').ok_or_else(|| "has a \"${\" without a \"}\"; add it".to_owned());
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    match text.split_at(end) {
        ("", _) => Err("has a \"$\" without the name of a variable; write ${dollar} for a dollar sign".into()),
        name_and_rest => Ok(name_and_rest),
    }
}

fn unknown(name: &str) -> String {
    if NOT_YET.contains(&name) || NOT_YET_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return format!("has the variable {}, which howdah does not support yet; use $uri or $host", quoted(name));
    }
    if let Some(variable) = VARIABLES.iter().find(|variable| name.starts_with(**variable)) {
        let rest = &name[variable.len()..];
        return format!("has no variable {} to fill in; did you mean ${{{variable}}}{rest}?", quoted(name));
    }
    let similar = did_you_mean(name, VARIABLES);
    let similar = if similar.is_empty() { "; use $uri or $host" } else { &similar };
    format!("has no variable {} to fill in{similar}", quoted(name))
}

fn constant_prefix_bytes(parts: &[Part]) -> usize {
    match parts {
        [Part::Literal(literal), Part::Uri, ..] => literal.len(),
        [Part::Literal(literal), ..] => literal.rfind('/').map_or(0, |slash| slash + 1),
        _ => 0,
    }
}

fn push_host(text: &mut String, host: &str) {
    if host.is_empty() || host.starts_with('.') {
        text.push('_');
    }
    text.extend(host.trim_start_matches('.').chars().map(|c| if matches!(c, '/' | '\0') { '_' } else { c }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, host: &str, uri: &str) -> String {
        Template::parse(template).expect(template).render(&RequestView { method: "GET", host, uri })
    }

    #[test]
    fn variables_are_filled_in() {
        let cases = [
            ("/srv/shop$uri", "/srv/shop/a b"),
            ("/srv/shop/$uri", "/srv/shop/a b"),
            ("/srv/${uri}.html", "/srv/a b.html"),
            ("/srv/$host$uri", "/srv/x.org/a b"),
            ("/srv/${host}_x${uri}", "/srv/x.org_x/a b"),
            ("/srv/$host/$uri", "/srv/x.org/a b"),
            ("/srv/${dollar}uri", "/srv/$uri"),
            ("/srv/x.html", "/srv/x.html"),
            ("", ""),
        ];
        for (template, expected) in cases {
            assert_eq!(render(template, "x.org", "/a b"), expected, "{template}");
            assert_eq!(Template::parse(template).expect(template).to_string(), template);
        }
    }

    #[test]
    fn a_host_never_climbs() {
        let cases = [
            ("", "/srv/_/x"),
            (".", "/srv/_/x"),
            ("..", "/srv/_/x"),
            ("../etc", "/srv/__etc/x"),
            ("a/../b", "/srv/a_.._b/x"),
            ("a..b.", "/srv/a..b./x"),
        ];
        for (host, expected) in cases {
            assert_eq!(render("/srv/$host$uri", host, "/x"), expected, "{host}");
        }
        assert_eq!(render("/srv/.$host$uri", ".", "/x"), "/srv/._/x");
    }

    #[test]
    fn the_constant_prefix_is_a_folder() {
        let cases = [
            ("/srv/shop$uri", "/srv/shop"),
            ("/srv/shop/$uri", "/srv/shop/"),
            ("/srv/shop/${uri}.html", "/srv/shop/"),
            ("/srv/$host$uri", "/srv/"),
            ("/srv/a$host$uri", "/srv/"),
            ("/srv/${dollar}x$uri", "/srv/$x"),
            ("/srv/x.html", "/srv/"),
            ("/srv/x/", "/srv/x/"),
            ("/$uri", "/"),
            ("$uri", ""),
        ];
        for (template, expected) in cases {
            assert_eq!(Template::parse(template).expect(template).constant_prefix(), expected, "{template}");
        }
    }

    #[test]
    fn a_wrong_variable_is_named() {
        let cases = [
            ("/$", "has a \"$\" without the name of a variable; write ${dollar} for a dollar sign"),
            ("/$/x", "has a \"$\" without the name of a variable"),
            ("/${uri", "has a \"${\" without a \"}\"; add it"),
            ("/${}", "has no variable \"\" to fill in; use $uri or $host"),
            ("/$url", "has no variable \"url\" to fill in; did you mean \"uri\"?"),
            ("/$host_name", "has no variable \"host_name\" to fill in; did you mean ${host}_name?"),
            ("/$arg_x", "has the variable \"arg_x\", which howdah does not support yet; use $uri or $host"),
            ("/$request_uri", "has the variable \"request_uri\", which howdah does not support yet"),
        ];
        for (template, expected) in cases {
            let error = Template::parse(template).expect_err(template).to_string();
            assert!(error.contains(expected), "{template}: {error}");
        }
    }
}
