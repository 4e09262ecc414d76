//! `listeners`: the sockets that accept requests, and where each passes them.

pub(crate) mod fastcgi;
pub(crate) mod forwarded;
pub(crate) mod http3;
pub(crate) mod redirect;
pub(crate) mod unix_socket;

use std::collections::HashMap;

use crate::address::{self, Address};
use crate::error::{Error, quoted};
use crate::listener::fastcgi::FastCgiListener;
use crate::listener::forwarded::Forwarded;
use crate::listener::http3::Http3;
use crate::listener::redirect::HttpsRedirect;
use crate::listener::unix_socket::UnixSocketAccess;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::routing::pass::Pass;
use crate::tls::Tls;
use crate::tls::acme::Acme;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "pass",
        "redirect",
        "tls",
        "http2",
        "http3",
        "forwarded",
        "client_ip",
        "backlog",
        "socket",
        "protocol",
        "allowed_clients",
    ],
    unsupported: &[("application", "write \"pass\": \"applications/NAME\" instead")],
};

/// The kernel's limit.
const MAX_BACKLOG: i64 = i32::MAX as i64;

/// A socket that accepts requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address on which it listens.
    pub address: Address,
    /// Where its requests go; with a redirect, only those that prove to a certificate authority whose server this is.
    /// `None` only with a redirect.
    pub pass: Option<Pass>,
    /// Sends its clients to HTTPS.
    pub redirect: Option<HttpsRedirect>,
    /// TLS; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// Whether clients may use HTTP/2: with TLS, those that offer it in the handshake (the default); without TLS, those
    /// that begin with it.
    pub http2: bool,
    /// HTTP/3, over UDP on the same address. Only with TLS 1.3. `None` (the default): no.
    pub http3: Option<Http3>,
    /// FastCGI instead of HTTP: web servers connect, and howdah runs their scripts.
    pub fastcgi: Option<FastCgiListener>,
    /// The proxies whose headers about the client are trusted; `None`: no proxies.
    pub forwarded: Option<Forwarded>,
    /// The number of connections that may wait to be accepted; `None`: as many as the system allows.
    pub backlog: Option<u32>,
    /// The access to the file of a Unix socket.
    pub socket: UnixSocketAccess,
}

/// Reads the listeners, in the order of the text. No two have the same address.
pub(crate) fn read_all(node: &Node<'_>, scope: &Scope<'_>) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::new();
    let mut keys = HashMap::new();
    for (key, node) in node.named()? {
        let address = address::parse(key).map_err(|problem| node.error(problem))?;
        if let Some(other) = keys.insert(address.clone(), key) {
            return Err(node.error(format_args!("this is the same address as {}; remove one", quoted(other))));
        }
        let object = node.object(&OPTIONS)?;
        let socket = object.read("socket", |node| UnixSocketAccess::read(node, &address))?.unwrap_or_default();
        let fastcgi = FastCgiListener::read(&object, &node, &address)?;
        let redirect = object.read("redirect", HttpsRedirect::read)?;
        let pass = object.read("pass", |node| Pass::read(node, scope))?;
        if redirect.is_none() && pass.is_none() {
            object.require("pass", "where its requests go, as in \"pass\": \"routes\"")?;
        }
        if let Some(node) = object.get("redirect").filter(|_| object.get("tls").is_some()) {
            return Err(node.error("this listener has HTTPS already; remove \"redirect\" or \"tls\""));
        }
        let tls = object.read("tls", |node| Tls::read(node, scope))?;
        let http3 = object.read("http3", |node| Http3::read(node, &address, tls.as_ref()))?.flatten();
        if let Some(acme) = tls.as_ref().and_then(|tls| tls.acme.as_ref())
            && let Some(problem) = other_issuance(acme, &listeners)
        {
            let acme = object.get("tls").and_then(|tls| tls.member("acme").map(|acme| acme.error(&problem)));
            return Err(acme.unwrap_or_else(|| node.error(&problem)));
        }
        listeners.push(Listener {
            address,
            pass,
            redirect,
            http2: object.read("http2", Node::boolean)?.unwrap_or(tls.is_some()),
            http3,
            tls,
            fastcgi,
            forwarded: Forwarded::read(&object)?,
            backlog: object.read("backlog", read_backlog)?.flatten(),
            socket,
        });
    }
    Ok(listeners)
}

/// A domain has one certificate for all listeners, which is obtained in one way.
fn other_issuance(acme: &Acme, listeners: &[Listener]) -> Option<String> {
    let others = listeners.iter().filter_map(|listener| Some((listener, listener.tls.as_ref()?.acme.as_ref()?)));
    let is_other = |other: &Acme| (&other.on_demand, &other.issuance) != (&acme.on_demand, &acme.issuance);
    let mut on_demand = others.clone().filter(|(_, other)| acme.on_demand.is_some() && other.on_demand.is_some());
    if let Some((other, _)) = on_demand.find(|(_, other)| is_other(other)) {
        let problem = "names on demand have other options in";
        return Some(format!("{problem} listeners/{}; write the same in both", other.address));
    }
    let (other, domain) =
        others.filter(|(_, other)| other.issuance != acme.issuance).find_map(|(listener, other)| {
            Some((listener, acme.domains.iter().find(|domain| other.domains.contains(domain))?))
        })?;
    Some(format!("{} has other options in listeners/{}; write the same in both", quoted(domain), other.address))
}

/// -1 is the system's limit.
fn read_backlog(node: &Node<'_>) -> Result<Option<u32>, Error> {
    let backlog: i64 = node.integer(-1..=MAX_BACKLOG, "connections, or -1 for the system's limit")?;
    Ok(u32::try_from(backlog).ok())
}

#[cfg(test)]
mod tests {
    use crate::Configuration;
    use crate::listener::http3::Http3;

    fn parse(listeners: &str) -> Result<Vec<String>, String> {
        Configuration::parse(&format!(r#"{{"routes": [], "listeners": {listeners}}}"#))
            .map(|configuration| configuration.listeners.iter().map(|l| l.address.to_string()).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn listeners_keep_their_order() {
        let json = r#"{"unix:/x": {"pass": "routes"}, "*:9": {"pass": "routes"}, "*:8": {"pass": "routes"}}"#;
        assert_eq!(parse(json), Ok(vec!["unix:/x".to_owned(), "*:9".to_owned(), "*:8".to_owned()]));
    }

    #[test]
    fn http2_is_the_default_with_tls() {
        for (options, expected) in [("", false), (r#", "http2": true"#, true), (r#", "http2": false"#, false)] {
            let text = format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes"{options}}}}}}}"#);
            assert_eq!(Configuration::parse(&text).expect(options).listeners[0].http2, expected, "{options}");
            let text = text.replace(r#""pass""#, r#""tls": {"certificate": "c"}, "pass""#);
            let expected = options != r#", "http2": false"#;
            assert_eq!(Configuration::parse(&text).expect(options).listeners[0].http2, expected, "{options} with TLS");
        }
    }

    #[test]
    fn http3_is_off_unless_it_is_asked_for() {
        let on = |early_data| Some(Http3 { early_data });
        for (options, expected) in [
            ("", None),
            (r#", "http3": true"#, on(false)),
            (r#", "http3": false"#, None),
            (r#", "http3": {}"#, on(false)),
            (r#", "http3": {"early_data": true}"#, on(true)),
        ] {
            let text = format!(
                r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "tls": {{"certificate": "c"}}{options}}}}}}}"#
            );
            assert_eq!(Configuration::parse(&text).expect(options).listeners[0].http3, expected, "{options}");
        }
        parse(r#"{"*:80": {"pass": "routes", "http3": false}}"#).expect("it is off without TLS, too");
    }

    #[test]
    fn a_backlog_is_a_number() {
        for (json, expected) in [("0", Some(0)), ("511", Some(511)), ("-1", None), ("2147483647", Some(2_147_483_647))]
        {
            let text = format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "backlog": {json}}}}}}}"#);
            assert_eq!(Configuration::parse(&text).expect(json).listeners[0].backlog, expected, "{json}");
        }
    }

    #[test]
    fn an_invalid_listener_is_rejected() {
        let cases = [
            (
                r#"{"8080": {"pass": "routes"}}"#,
                "listeners/8080: \"8080\" is not an address to listen on; write *:8080 or 127.0.0.1:8080",
            ),
            (
                r#"{"*:80": {}}"#,
                "listeners/*:80: \"pass\" is missing; add where its requests go, as in \"pass\": \"routes\"",
            ),
            (r#"{"*:80": {"pas": "routes"}}"#, "listeners/*:80/pas: there is no such option; did you mean \"pass\"?"),
            (
                r#"{"*:80": {"application": "shop"}}"#,
                "listeners/*:80/application: howdah does not have this option of NGINX Unit; \
                 write \"pass\": \"applications/NAME\" instead",
            ),
            (
                r#"{"*:80": {"pass": "routes", "backlog": -2}}"#,
                "listeners/*:80/backlog: -2 is out of range; \
                 write -1 to 2147483647 connections, or -1 for the system's limit",
            ),
            (
                r#"{"*:80": {"pass": "routes", "tls": true}}"#,
                "listeners/*:80/tls: expected an object, found true; its options are \"certificate\", \"acme\", \"conf_commands\", \"session\", \"client_ca\", \"client_verify\" and others",
            ),
            (
                r#"{"*:80": {"pass": "routes"}, "0.0.0.0:80": {"pass": "routes"}}"#,
                "listeners/0.0.0.0:80: this is the same address as \"*:80\"; remove one",
            ),
            (
                r#"{"unix:/x/y": "routes"}"#,
                "listeners/unix:%2Fx%2Fy: expected an object, found the string \"routes\"; its options are \"pass\", \"redirect\", \"tls\", \"http2\", \"http3\", \"forwarded\" and others",
            ),
            (
                r#"{"*:80": {"pass": "routes", "http2": "h2c"}}"#,
                "listeners/*:80/http2: expected true or false, found the string \"h2c\"",
            ),
            (
                r#"{"*:80": {"pass": "routes", "http3": true}}"#,
                "listeners/*:80/http3: HTTP/3 is always encrypted; add \"tls\", or remove \"http3\"",
            ),
            (
                r#"{"unix:/x": {"pass": "routes", "tls": {"certificate": "c"}, "http3": true}}"#,
                "listeners/unix:%2Fx/http3: HTTP/3 needs a port, and this listener has a Unix socket; remove \"http3\"",
            ),
            (
                r#"{"*:80": {"pass": "routes", "tls": {"certificate": "c", "conf_commands": {"MaxProtocol": "TLSv1.2"}}, "http3": true}}"#,
                "listeners/*:80/http3: HTTP/3 needs TLS 1.3, which \"conf_commands\" of \"tls\" disables; allow it, \
                 or remove \"http3\"",
            ),
            (
                r#"{"*:80": {"pass": "routes", "http3": "h3"}}"#,
                "listeners/*:80/http3: expected true, false or an object, found the string \"h3\"",
            ),
            ("[]", "listeners: expected an object, found an array"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(expected.to_owned()), "{json}");
        }
    }
}
