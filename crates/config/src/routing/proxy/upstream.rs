//! `upstreams`: groups of servers that share requests.

use std::collections::BTreeMap;

use crate::address::{Endpoint, parse_endpoint};
use crate::error::{Error, quoted};
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::routing::proxy::failures::FailureLimit;
use crate::routing::proxy::health_check::HealthCheck;
use crate::routing::proxy::settings::ProxySettings;
use crate::routing::proxy::tls::NEEDS_SERVER_NAME;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "servers",
        "forwarded_headers",
        "connect_timeout",
        "response_timeout",
        "tls",
        "max_fails",
        "fail_timeout",
        "health_check",
    ],
    unsupported: &[],
};
pub(crate) const SERVER_OPTIONS: Options = Options { known: &["weight", "drain"], unsupported: &[] };

const MAX_WEIGHT: f64 = 1_000_000.0;

/// Servers that share requests in proportion to their weights. An upstream without a server whose weight is above 0 has
/// been drained: its requests are answered 502.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// In the order of the text. Each endpoint appears once.
    pub servers: Vec<UpstreamServer>,
    /// How requests are forwarded to them.
    pub proxy: ProxySettings,
    /// When a server counts as down.
    pub failure_limit: FailureLimit,
    /// How howdah itself checks the servers; `None`: it does not.
    pub health_check: Option<HealthCheck>,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamServer {
    /// The address.
    pub endpoint: Endpoint,
    /// The server's share of the requests relative to the other servers, 0 to 1,000,000. Default: 1. With 0, it gets no
    /// requests; so it is while the server drains.
    pub weight: f64,
}

pub(crate) fn read_all(node: &Node<'_>, scope: &Scope<'_>) -> Result<BTreeMap<String, Upstream>, Error> {
    node.named()?.map(|(name, node)| Ok((name.to_owned(), Upstream::read(&node, scope)?))).collect()
}

// === impl Upstream ===

impl Upstream {
    fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let servers = object.require("servers", "\"servers\": {\"127.0.0.1:8080\": {}}")?;
        let mut keys = BTreeMap::new();
        let mut all: Vec<UpstreamServer> = Vec::new();
        for (key, node) in servers.named()? {
            let endpoint = parse_endpoint(key).map_err(|problem| node.error(problem))?;
            if let Some(other) = keys.insert(endpoint.clone(), key) {
                return Err(node.error(format_args!("this is the same address as {}; remove one", quoted(other))));
            }
            let options = node.object(&SERVER_OPTIONS)?;
            let weight = options.read("weight", |node| node.number(0.0..=MAX_WEIGHT, ""))?.unwrap_or(1.0);
            let drains = options.read("drain", |node| node.boolean())?.unwrap_or_default();
            all.push(UpstreamServer { endpoint, weight: if drains { 0.0 } else { weight } });
        }
        if all.iter().all(|server| server.weight == 0.0) {
            scope.warn(&servers, "all servers drain or have the weight 0: requests are answered 502");
        }
        let proxy = ProxySettings::read(&object, scope)?;
        let needs_name = proxy.tls.as_ref().is_some_and(|tls| tls.server_name.is_none());
        if needs_name && all.iter().any(|server| server.endpoint.host().is_none()) {
            return Err(node.error(NEEDS_SERVER_NAME));
        }
        Ok(Self {
            servers: all,
            proxy,
            failure_limit: FailureLimit::read(&object)?,
            health_check: object.read("health_check", HealthCheck::read)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Configuration;

    fn parse(upstream: &str) -> Result<Vec<(String, f64)>, String> {
        let parsed = Configuration::parse(&format!(r#"{{"upstreams": {{"u": {upstream}}}}}"#));
        let configuration = parsed.map_err(|error| error.to_string())?;
        let servers = configuration.upstreams["u"].servers.iter();
        Ok(servers.map(|server| (server.endpoint.to_string(), server.weight)).collect())
    }

    #[test]
    fn servers_keep_their_order_and_weight() {
        let json = r#"{"servers": {"unix:/x": {"weight": 0.5}, "backend:9": {"drain": false}, "10.0.0.1:8": {"weight": 0},
            "10.0.0.1:9": {"weight": 7, "drain": true}}}"#;
        let expected = [("unix:/x", 0.5), ("backend:9", 1.0), ("10.0.0.1:8", 0.0), ("10.0.0.1:9", 0.0)];
        assert_eq!(parse(json), Ok(expected.map(|(endpoint, weight)| (endpoint.to_owned(), weight)).to_vec()));
    }

    #[test]
    fn a_drained_upstream_is_accepted_with_a_warning() {
        for json in [
            r#"{"servers": {}}"#,
            r#"{"servers": {"127.0.0.1:1": {"weight": 0}}}"#,
            r#"{"servers": {"127.0.0.1:1": {"drain": true}}}"#,
        ] {
            let configuration = Configuration::parse(&format!(r#"{{"upstreams": {{"u": {json}}}}}"#)).expect(json);
            let expected = "upstreams/u/servers: all servers drain or have the weight 0: requests are answered 502";
            assert_eq!(configuration.warnings, [expected], "{json}");
        }
    }

    #[test]
    fn an_invalid_upstream_is_rejected() {
        let cases = [
            ("{}", ": \"servers\" is missing; add \"servers\": {\"127.0.0.1:8080\": {}}"),
            (
                r#"{"servers": {"127.0.0.1:1": {"weight": 1000001}}}"#,
                "/servers/127.0.0.1:1/weight: 1000001 is out of range; write 0 to 1000000",
            ),
            (
                r#"{"servers": {"127.0.0.1:1": {"weight": -0.1}}}"#,
                "/servers/127.0.0.1:1/weight: -0.1 is out of range; write 0 to 1000000",
            ),
            (
                r#"{"servers": {"127.0.0.1:1": {"weight": "1"}}}"#,
                "/servers/127.0.0.1:1/weight: expected a number (write 0 to 1000000), found the string \"1\"",
            ),
            (
                r#"{"servers": {"127.0.0.1:1": {"drain": 1}}}"#,
                "/servers/127.0.0.1:1/drain: expected true or false, found the number 1",
            ),
            (
                r#"{"servers": {"localhost": {}}}"#,
                "/servers/localhost: \"localhost\" is not an address to connect to; add a port: localhost:80",
            ),
            (
                r#"{"servers": {"[::1]:1": {}, "[0::1]:1": {}}}"#,
                "/servers/[0::1]:1: this is the same address as \"[::1]:1\"; remove one",
            ),
            (
                r#"{"servers": {"127.0.0.1:1": {"max": 1}}}"#,
                "/servers/127.0.0.1:1/max: there is no such option; remove it",
            ),
            (r#"{"server": {}}"#, "/server: there is no such option; did you mean \"servers\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("upstreams/u{expected}")), "{json}");
        }
    }
}
