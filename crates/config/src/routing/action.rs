//! `action`: what is done with a request.

use std::borrow::Cow;

use crate::address::{Endpoint, parse_endpoint};
use crate::error::{Error, quoted};
use crate::read::node::{Node, Object, Options};
use crate::read::percent;
use crate::read::scope::Scope;
use crate::routing::basic_auth::BasicAuth;
use crate::routing::connection_limit::ConnectionLimit;
use crate::routing::early_hints;
use crate::routing::pass::Pass;
use crate::routing::proxy::settings::{self, ProxySettings};
use crate::routing::proxy::tls::{NEEDS_SERVER_NAME, ProxyTls};
use crate::routing::rate_limit::RateLimit;
use crate::routing::response_headers::{self, HeaderChange};
use crate::routing::share::Share;
use crate::template::text::Template;
use crate::template::variable::Variables;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "pass",
        "share",
        "proxy",
        "return",
        "rewrite",
        "response_headers",
        "early_hints",
        "index",
        "types",
        "chroot",
        "follow_symlinks",
        "traverse_mounts",
        "fallback",
        "location",
        "rate_limit",
        "connection_limit",
        "basic_auth",
        "forwarded_headers",
        "connect_timeout",
        "response_timeout",
        "tls",
    ],
    unsupported: &[],
};

/// Options of every kind of action.
const COMPANIONS: &[&str] = &["rewrite", "response_headers", "rate_limit", "connection_limit", "basic_auth"];

/// An action has exactly one of these options, which is its kind. Each kind has further options.
const KINDS: [(&str, &[&str]); 4] = [
    ("pass", &[]),
    ("share", &["index", "types", "chroot", "follow_symlinks", "traverse_mounts", "fallback"]),
    ("proxy", &settings::NAMES),
    ("return", &["location"]),
];

/// The kinds whose response may take a while: hints help the client in the meantime.
const KINDS_THAT_WAIT: [&str; 2] = ["pass", "proxy"];

/// The port of an `https://` address that has none.
const HTTPS_PORT: u16 = 443;

/// An action: what is done with a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// `rewrite`: the new path of the request, percent-encoded, for this action and all that follow. It may lack the
    /// slash at its beginning.
    pub rewrite: Option<Template>,
    /// The kind, carried out after the rewrite.
    pub kind: ActionKind,
    /// `response_headers`: the changes to the headers of the response, in this order. Each name appears once.
    pub response_headers: Vec<HeaderChange>,
    /// `early_hints`: values of `Link` headers that the client gets at once, and with the response.
    pub early_hints: Vec<String>,
    /// `rate_limit`: how many requests each client may send to this action.
    pub rate_limit: Option<RateLimit>,
    /// `connection_limit`: how many requests of each client this action answers at the same time.
    pub connection_limit: Option<ConnectionLimit>,
    /// `basic_auth`: the users that may use this action, after they have given a password.
    pub basic_auth: Option<BasicAuth>,
}

/// The kind of an action: what answers a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionKind {
    /// The request goes on to a route, an application or an upstream.
    Pass(Pass),
    /// A file.
    Share {
        /// Where the file is.
        share: Share,
        /// `fallback`: what is done if no file is found. Without it, the answer is 404.
        fallback: Option<Box<Action>>,
    },
    /// An HTTP server, and how requests are forwarded to it.
    Proxy(Endpoint, ProxySettings),
    /// A status, with a short page if the status is an error.
    Return {
        /// From 200 to 999.
        status: u16,
        /// The `Location` header.
        location: Option<RedirectTarget>,
    },
}

/// A `Location` header with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectTarget(Template);

// === impl Action ===

impl Action {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let mut kinds = KINDS.iter().filter(|(kind, _)| object.get(kind).is_some());
        let (Some((kind, companions)), None) = (kinds.next(), kinds.next()) else {
            let advice = "an action has exactly one of \"pass\", \"share\", \"proxy\" and \"return\"; write one";
            return Err(node.error(advice));
        };
        let strays = OPTIONS.known.iter().filter(|key| *key != kind);
        let mut strays = strays.filter(|key| {
            let is_hint = **key == "early_hints" && KINDS_THAT_WAIT.contains(kind);
            !companions.contains(key) && !COMPANIONS.contains(key) && !is_hint
        });
        if let Some(stray) = strays.find_map(|key| object.get(key)) {
            return Err(stray.error(format_args!("this option cannot be combined with {kind:?}; remove it")));
        }
        Ok(Self {
            rewrite: object.read("rewrite", read_rewrite)?,
            kind: ActionKind::read(&object, scope)?,
            response_headers: object.read("response_headers", response_headers::read_all)?.unwrap_or_default(),
            early_hints: object.read("early_hints", early_hints::read)?.unwrap_or_default(),
            rate_limit: object.read("rate_limit", |node| RateLimit::read(node, scope))?,
            connection_limit: object.read("connection_limit", |node| ConnectionLimit::read(node, scope))?,
            basic_auth: object.read("basic_auth", BasicAuth::read)?,
        })
    }
}

/// The action, its `fallback`, the fallback of that, and so on.
pub(crate) fn with_fallbacks(action: &Action) -> impl Iterator<Item = &Action> {
    std::iter::successors(Some(action), |action| match &action.kind {
        ActionKind::Share { fallback, .. } => fallback.as_deref(),
        _ => None,
    })
}

/// Reads a path without control characters. A slash that it lacks at its beginning is added for each request.
fn read_rewrite(node: &Node<'_>) -> Result<Template, Error> {
    let text = node.string()?;
    if text.chars().any(char::is_control) {
        return Err(node.error(format_args!("{} has a control character; remove it", quoted(&text))));
    }
    Template::read(node)
}

// === impl ActionKind ===

impl ActionKind {
    /// Reads an object that has the option of exactly one kind.
    fn read(object: &Object<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        if let Some(pass) = object.get("pass") {
            return Pass::read(&pass, scope).map(Self::Pass);
        }
        if let Some(proxy) = object.get("proxy") {
            return read_proxy(&proxy, object, scope);
        }
        if let Some(status) = object.get("return") {
            return Ok(Self::Return {
                status: status.integer(200..=999, "(an HTTP status)")?,
                location: object.read("location", RedirectTarget::read)?,
            });
        }
        Ok(Self::Share {
            share: Share::read(object, scope)?,
            fallback: object.read("fallback", |node| Action::read(node, scope))?.map(Box::new),
        })
    }
}

/// Reads the address of a server, and the options beside it.
fn read_proxy(node: &Node<'_>, object: &Object<'_>, scope: &Scope<'_>) -> Result<ActionKind, Error> {
    let text = node.nonempty_string()?;
    let mut settings = ProxySettings::read(object, scope)?;
    if let Some(address) = text.strip_prefix("http://") {
        if let Some(tls) = object.get("tls") {
            return Err(tls.error("TLS needs an address that begins with https://; correct \"proxy\""));
        }
        return Ok(ActionKind::Proxy(parse_endpoint(address).map_err(|problem| node.error(problem))?, settings));
    }
    let Some(address) = text.strip_prefix("https://") else {
        return Err(node.error(format_args!(
            "{} is not an address of an HTTP server; \
             write one such as \"http://127.0.0.1:8080\", \"https://example.com\" or \"http://unix:/path\"",
            quoted(&text)
        )));
    };
    let with_default_port = || parse_endpoint(&format!("{address}:{HTTPS_PORT}"));
    let endpoint = parse_endpoint(address);
    let endpoint = match address.starts_with("unix:") {
        true => endpoint,
        false => endpoint.or_else(|problem| with_default_port().map_err(|_| problem)),
    };
    let endpoint = endpoint.map_err(|problem| node.error(problem))?;
    let tls = settings.tls.get_or_insert_with(ProxyTls::default);
    if endpoint.host().is_none() && tls.server_name.is_none() {
        return Err(node.error(NEEDS_SERVER_NAME));
    }
    Ok(ActionKind::Proxy(endpoint, settings))
}

// === impl RedirectTarget ===

impl RedirectTarget {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let text = node.any_string()?;
        let template = Template::parse(&text).map_err(|problem| node.error(problem.detail))?;
        // A constant is encoded once, here. Its dollar signs are escaped, or they would begin variables.
        let Some(constant) = template.as_constant() else {
            return Ok(Self(template));
        };
        let encoded = percent::encode_uri(constant).replace('$', "${dollar}");
        Ok(Self(Template::parse(&encoded)?))
    }

    /// The header's value for one request: visible ASCII only. It may be empty.
    pub fn render<V: Variables + ?Sized>(&self, variables: &V) -> Cow<'_, str> {
        match self.0.as_constant() {
            Some(constant) => Cow::Borrowed(constant),
            None => Cow::Owned(percent::encode_uri(&self.0.render(variables)).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use crate::matching::test_request::TestRequest;
    use crate::read::destination::Destination;

    fn action(json: &str) -> Result<Action, String> {
        let text = format!(r#"{{"routes": {{"r": [{{"action": {json}}}], "s": []}}}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        Ok(configuration.routes.find(Some("r")).expect("route").steps()[0].action.clone())
    }

    #[test]
    fn an_action_is_one_of_its_kinds() {
        let endpoint = |text: &str| text.parse::<Endpoint>().expect(text);
        let cases = [
            (r#"{"pass": "routes/s"}"#, ActionKind::Pass(Pass::To(Destination::Routes(Some("s".into()))))),
            (r#"{"pass": "routes/$host"}"#, ActionKind::Pass(Pass::Computed("routes/$host".parse().expect("pass")))),
            (r#"{"return": 404}"#, ActionKind::Return { status: 404, location: None }),
            (
                r#"{"proxy": "http://127.0.0.1:8080"}"#,
                ActionKind::Proxy(endpoint("127.0.0.1:8080"), ProxySettings::default()),
            ),
            (r#"{"proxy": "http://[::1]:80"}"#, ActionKind::Proxy(endpoint("[::1]:80"), ProxySettings::default())),
            (
                r#"{"proxy": "http://backend.internal:8080"}"#,
                ActionKind::Proxy(endpoint("backend.internal:8080"), ProxySettings::default()),
            ),
            (
                r#"{"proxy": "http://unix:/run/x"}"#,
                ActionKind::Proxy(endpoint("unix:/run/x"), ProxySettings::default()),
            ),
        ];
        for (json, expected) in cases {
            let expected = Action {
                rewrite: None,
                kind: expected,
                response_headers: Vec::new(),
                early_hints: Vec::new(),
                rate_limit: None,
                connection_limit: None,
                basic_auth: None,
            };
            assert_eq!(action(json), Ok(expected), "{json}");
        }
    }

    #[test]
    fn a_location_is_encoded_for_the_header() {
        let request = TestRequest { host: "x.org", uri: "/a b", ..TestRequest::default() };
        let request = request.with_query("bad=%0d%0aSet-Cookie:1&dollar=$");
        let cases = [
            ("https://x.org/?a=b%20c", "https://x.org/?a=b%20c"),
            ("/neu ä", "/neu%20%C3%A4"),
            ("/a${dollar}b", "/a$b"),
            ("https://$host$uri", "https://x.org/a%20b"),
            ("/$arg_bad", "/%0D%0ASet-Cookie:1"),
            ("$arg_none", ""),
            ("", ""),
            (r"/a\r\nb: c", "/a%0D%0Ab:%20c"),
            (r"/a\u0000b", "/a%00b"),
        ];
        for (location, expected) in cases {
            let action = action(&format!(r#"{{"return": 301, "location": "{location}"}}"#)).expect(location);
            let ActionKind::Return { status: 301, location: Some(target) } = action.kind else { panic!("{location}") };
            assert_eq!(target.render(&request), expected, "{location}");
        }
    }

    #[test]
    fn every_kind_has_rewrite_and_response_headers() {
        for kind in
            [r#""pass": "routes/s""#, r#""share": "/x$uri""#, r#""proxy": "http://127.0.0.1:1""#, r#""return": 200"#]
        {
            let json =
                format!(r#"{{{kind}, "rewrite": "/new$uri", "response_headers": {{"X-A": "$host", "ETag": null}}}}"#);
            let action = action(&json).expect(kind);
            assert_eq!(action.rewrite, Some("/new$uri".parse().expect("template")));
            let names: Vec<_> = action.response_headers.iter().map(|change| change.name.as_str()).collect();
            assert_eq!(names, ["x-a", "etag"]);
        }
    }

    #[test]
    fn a_share_may_have_a_fallback() {
        for (json, expected) in [
            (r#"{"share": "/x$uri"}"#, None),
            (
                r#"{"share": "/x$uri", "fallback": {"return": 404}}"#,
                Some(ActionKind::Return { status: 404, location: None }),
            ),
        ] {
            let ActionKind::Share { fallback, .. } = action(json).expect(json).kind else { panic!("{json}") };
            assert_eq!(fallback.map(|action| action.kind), expected, "{json}");
        }
    }

    #[test]
    fn an_invalid_action_is_rejected() {
        let one = "an action has exactly one of \"pass\", \"share\", \"proxy\" and \"return\"; write one";
        let cases = [
            ("{}", format!(": {one}")),
            (r#"{"pass": "routes/s", "return": 200}"#, format!(": {one}")),
            (r#"{"index": "x"}"#, format!(": {one}")),
            (
                r#"{"pass": "routes/s", "fallback": {"return": 200}}"#,
                "/fallback: this option cannot be combined with \"pass\"; remove it".into(),
            ),
            (
                r#"{"proxy": "http://127.0.0.1:1", "location": "/"}"#,
                "/location: this option cannot be combined with \"proxy\"; remove it".into(),
            ),
            (r#"{"shared": "/x"}"#, "/shared: there is no such option; did you mean \"share\"?".into()),
            (
                r#"{"share": "/x$uri", "fallback": {"share": "/y$uri", "fallback": {"pass": "routes/t"}}}"#,
                "/fallback/fallback/pass: \"routes/t\" names a route that does not exist; did you mean \"r\"?".into(),
            ),
            (r#"{"return": 100}"#, "/return: 100 is out of range; write 200 to 999 (an HTTP status)".into()),
            (
                r#"{"return": 301, "location": "/$url"}"#,
                "/location: \"/$url\" has the unknown variable \"url\"; did you mean \"uri\"?".into(),
            ),
            (
                r#"{"proxy": "127.0.0.1:80"}"#,
                "/proxy: \"127.0.0.1:80\" is not an address of an HTTP server; \
                 write one such as \"http://127.0.0.1:8080\", \"https://example.com\" or \"http://unix:/path\""
                    .into(),
            ),
            (
                r#"{"proxy": "http://127.0.0.1:80", "tls": {}}"#,
                "/tls: TLS needs an address that begins with https://; correct \"proxy\"".into(),
            ),
            (
                r#"{"proxy": "https://unix:/run/x"}"#,
                "/proxy: a certificate cannot be verified for a Unix socket; \
                 add its name: \"tls\": {\"server_name\": \"example.com\"}"
                    .into(),
            ),
            (
                r#"{"proxy": "http://localhost:80/"}"#,
                "/proxy: \"localhost:80/\" is not an address to connect to; an address has no path; write only localhost:80"
                    .into(),
            ),
            (
                r#"{"return": 200, "rewrite": "/a\tb"}"#,
                r#"/rewrite: "/a\tb" has a control character; remove it"#.into(),
            ),
            (
                r#"{"return": 200, "rewrite": null}"#,
                "/rewrite: expected a string, found null; remove the option to get its default".into(),
            ),
            (
                r#"{"return": 200, "early_hints": "</a>; rel=preload"}"#,
                "/early_hints: this option cannot be combined with \"return\"; remove it".into(),
            ),
            (
                r#"{"proxy": "http://127.0.0.1:80", "early_hints": ["/a.css"]}"#,
                "/early_hints/0: \"/a.css\" is not the value of a \"Link\" header; write one such as \
                 \"</app.css>; rel=preload; as=style\""
                    .into(),
            ),
            (
                r#"{"return": 200, "response_headers": {"X": 1}}"#,
                "/response_headers/X: expected a string; write \"1\", with quotes".into(),
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(action(json), Err(format!("routes/r/0/action{expected}")), "{json}");
        }
    }
}
