//! `tls` of the action `proxy`, and of `upstreams`: how a server is authenticated, and how howdah authenticates to it.

use std::net::IpAddr;

use crate::address::is_host_name;
use crate::error::{Error, quoted};
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::tls::names::{read_authority, read_certificate};

pub(crate) const OPTIONS: Options =
    Options { known: &["ca", "server_name", "client_certificate", "verify"], unsupported: &[] };

/// The error about a server without a host.
pub(crate) const NEEDS_SERVER_NAME: &str =
    "a certificate cannot be verified for a Unix socket; add its name: \"tls\": {\"server_name\": \"example.com\"}";

/// TLS to a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProxyTls {
    /// The name of the stored certificates that the server's certificate must lead to; `None`: those of the system.
    pub ca: Option<String>,
    /// The name in the server's certificate, which is also sent to the server (SNI): a host name or an IP address.
    /// `None`: the host of the server's address.
    pub server_name: Option<String>,
    /// The name of the stored certificate, with its key, by which howdah authenticates to the server.
    pub client_certificate: Option<String>,
    /// Whether the server's certificate is verified. Default: true.
    pub verify: bool,
}

// === impl ProxyTls ===

impl Default for ProxyTls {
    fn default() -> Self {
        Self { ca: None, server_name: None, client_certificate: None, verify: true }
    }
}

impl ProxyTls {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let verify = object.read("verify", |node| {
            let verify = node.boolean()?;
            if !verify {
                scope.warn(node, "the server is not authenticated: another machine can read and change requests");
            }
            Ok(verify)
        })?;
        let ca = object.get("ca");
        if let Some(ca) = ca.as_ref().filter(|_| verify == Some(false)) {
            return Err(ca.error("with \"verify\": false, nothing is verified; remove one of the two"));
        }
        Ok(Self {
            ca: ca.map(|node| read_authority(&node, scope)).transpose()?,
            server_name: object.read("server_name", read_server_name)?,
            client_certificate: object.read("client_certificate", |node| read_certificate(node, scope))?,
            verify: verify.unwrap_or(true),
        })
    }

    /// The names of the stored certificates that it uses.
    pub fn certificates(&self) -> impl Iterator<Item = &str> {
        [&self.ca, &self.client_certificate].into_iter().flatten().map(String::as_str)
    }
}

/// A name as certificates have it: without a port.
fn read_server_name(node: &Node<'_>) -> Result<String, Error> {
    let name = node.nonempty_string()?;
    match name.parse::<IpAddr>().is_ok() || is_host_name(&name) {
        true => Ok(name.to_ascii_lowercase()),
        false => Err(node.error(format_args!(
            "{} is not a name of a server; write a host name or an IP address, without a port",
            quoted(&name)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActionKind, CertificateNames, Configuration, Context, Endpoint};

    /// The server, its TLS and the warnings.
    fn action(json: &str) -> Result<(Endpoint, Option<ProxyTls>, Vec<String>), String> {
        let names = |name: &str| [name.to_owned()].into();
        let names = CertificateNames { with_key: names("gateway"), authorities: names("internal") };
        let text = format!(r#"{{"routes": [{{"action": {json}}}]}}"#);
        let configuration = Configuration::parse_in(&text, Context { certificates: Some(&names) });
        let configuration = configuration.map_err(|error| error.to_string())?;
        let kind = &configuration.routes.find(None).expect("routes").steps()[0].action.kind;
        let ActionKind::Proxy(endpoint, settings) = kind else { panic!("{kind:?}") };
        Ok((endpoint.clone(), settings.tls.clone(), configuration.warnings))
    }

    #[test]
    fn https_has_a_port_and_verifies_by_default() {
        for (address, endpoint, tls) in [
            ("https://api.example", "api.example:443", Some(ProxyTls::default())),
            ("https://api.example:8443", "api.example:8443", Some(ProxyTls::default())),
            ("https://10.0.0.1", "10.0.0.1:443", Some(ProxyTls::default())),
            ("https://[::1]", "[::1]:443", Some(ProxyTls::default())),
            ("http://10.0.0.1:80", "10.0.0.1:80", None),
        ] {
            let read = action(&format!(r#"{{"proxy": "{address}"}}"#));
            assert_eq!(read, Ok((endpoint.parse().expect("endpoint"), tls, Vec::new())), "{address}");
        }
    }

    #[test]
    fn every_option_is_read() {
        let json = r#"{"proxy": "https://unix:/run/x",
            "tls": {"ca": "internal", "server_name": "API.example", "client_certificate": "gateway"}}"#;
        let expected = ProxyTls {
            ca: Some("internal".into()),
            server_name: Some("api.example".into()),
            client_certificate: Some("gateway".into()),
            verify: true,
        };
        let (_, tls, warnings) = action(json).expect("action");
        assert_eq!((tls.as_ref(), warnings), (Some(&expected), Vec::new()));
        assert_eq!(expected.certificates().collect::<Vec<_>>(), ["internal", "gateway"]);
        let (_, tls, warnings) = action(r#"{"proxy": "https://x", "tls": {"verify": false}}"#).expect("action");
        assert!(!tls.expect("TLS").verify);
        let expected = "routes/0/action/tls/verify: the server is not authenticated";
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (json, expected) in [
            (r#""ca": "intern""#, "/ca: there is no certificate \"intern\"; did you mean \"internal\"?"),
            (r#""ca": "internal", "verify": false"#, "/ca: with \"verify\": false, nothing is verified; remove one"),
            (
                r#""client_certificate": "internal""#,
                "/client_certificate: \"internal\" was uploaded without a private key; upload it again",
            ),
            (r#""server_name": "x:443""#, "/server_name: \"x:443\" is not a name of a server"),
            (r#""name": "x""#, "/name: there is no such option"),
        ] {
            let error = action(&format!(r#"{{"proxy": "https://x", "tls": {{{json}}}}}"#)).expect_err(json);
            assert!(error.starts_with(&format!("routes/0/action/tls{expected}")), "{error}");
        }
    }

    #[test]
    fn an_upstream_has_the_same_options() {
        let parse = |servers: &str, tls: &str| {
            let text = format!(r#"{{"upstreams": {{"u": {{"servers": {servers}, "tls": {tls}}}}}}}"#);
            Configuration::parse(&text).map_err(|error| error.to_string())
        };
        let configuration = parse(r#"{"10.0.0.1:443": {}}"#, "{}").expect("configuration");
        assert_eq!(configuration.upstreams["u"].proxy.tls, Some(ProxyTls::default()));
        let error = parse(r#"{"unix:/x": {}}"#, "{}").expect_err("no name");
        assert_eq!(error, format!("upstreams/u: {NEEDS_SERVER_NAME}"));
        assert!(parse(r#"{"unix:/x": {}}"#, r#"{"server_name": "x"}"#).is_ok());
    }
}
