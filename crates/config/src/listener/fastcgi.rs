//! `"protocol": "fastcgi"` and `allowed_clients`: a web server in front has howdah run its scripts.
//!
//! A web server on a FastCGI listener is believed: it names the script, and the client's address. Therefore TCP connections
//! come only from this machine, unless the configuration names the web servers.

use crate::address::Address;
use crate::error::Error;
use crate::matching::address_pattern::AddressPatterns;
use crate::matching::request::Peer;
use crate::read::node::{Node, Object};

/// The options of a FastCGI listener, each with the reason why it has none like it.
const OF_HTTP: [(&str, &str); 4] = [
    ("tls", "the web server in front has TLS"),
    ("http2", "the web server in front has HTTP/2"),
    ("http3", "the web server in front has HTTP/3"),
    ("redirect", "the web server in front redirects"),
];

/// A listener for web servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiListener {
    /// The web servers that may connect; `None`: those of this machine.
    allowed: Option<AddressPatterns>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http,
    FastCgi,
}

// === impl FastCgiListener ===

impl FastCgiListener {
    /// Reads the options of a listener with this address; `None` if it is one for HTTP.
    pub(crate) fn read(
        listener: &Object<'_>,
        node: &Node<'_>,
        address: &Address,
    ) -> Result<Option<FastCgiListener>, Error> {
        let protocols = [("http", Protocol::Http), ("fastcgi", Protocol::FastCgi)];
        let protocol = listener.read("protocol", |node| node.one_of(&protocols))?.unwrap_or(Protocol::Http);
        if protocol == Protocol::Http {
            return match listener.get("allowed_clients") {
                Some(allowed) => Err(allowed.error(
                    "only listeners with \"protocol\": \"fastcgi\" have this option; for HTTP, write \"source\" in the \
                     \"match\" of a route",
                )),
                None => Ok(None),
            };
        }
        for (option, reason) in OF_HTTP {
            if let Some(node) = listener.get(option) {
                return Err(
                    node.error(format_args!("a FastCGI listener does not have this option: {reason}; remove it"))
                );
            }
        }
        let allowed = listener.read("allowed_clients", AddressPatterns::read)?;
        if let Address::Tcp(tcp) = address
            && !tcp.ip().is_loopback()
            && allowed.is_none()
        {
            return Err(node.error(
                "other machines can connect to this FastCGI listener, and name any client and any script; add \
                 \"allowed_clients\": the addresses of your web servers, or listen on 127.0.0.1 or a Unix socket",
            ));
        }
        Ok(Some(FastCgiListener { allowed }))
    }

    /// Whether this web server may connect. The mode of a Unix socket's file decides who can.
    pub fn allows(&self, peer: Peer) -> bool {
        match (&self.allowed, peer) {
            (Some(allowed), peer) => allowed.matches(peer),
            (None, Peer::Ip(address)) => address.ip().to_canonical().is_loopback(),
            (None, Peer::Unix) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(address: &str, options: &str) -> Result<Option<FastCgiListener>, String> {
        let text = format!(r#"{{"routes": [], "listeners": {{"{address}": {{"pass": "routes"{options}}}}}}}"#);
        let parsed = Configuration::parse(&text).map_err(|error| error.to_string());
        parsed.map(|mut configuration| configuration.listeners.remove(0).fastcgi)
    }

    #[test]
    fn http_is_the_default() {
        assert_eq!(parse("*:1", ""), Ok(None));
        assert_eq!(parse("*:1", r#", "protocol": "http""#), Ok(None));
    }

    #[test]
    fn web_servers_of_this_machine_may_connect_unless_others_are_named() {
        let ip = |address: &str| Peer::Ip(format!("{address}:1").parse().expect("address"));
        let fastcgi = r#", "protocol": "fastcgi""#;
        let local = parse("127.0.0.1:9000", fastcgi).expect("configuration").expect("FastCGI");
        assert!(local.allows(ip("127.0.0.2")) && local.allows(ip("[::1]")) && local.allows(ip("[::ffff:127.0.0.1]")));
        assert!(local.allows(Peer::Unix) && !local.allows(ip("10.0.0.1")));
        let named = format!(r#"{fastcgi}, "allowed_clients": ["10.0.0.0/24", "unix"]"#);
        let named = parse("*:9000", &named).expect("configuration").expect("FastCGI");
        assert!(named.allows(ip("10.0.0.9")) && !named.allows(ip("127.0.0.1")) && named.allows(Peer::Unix));
        let closed = format!(r#"{fastcgi}, "allowed_clients": []"#);
        let closed = parse("unix:/run/x", &closed).expect("configuration").expect("FastCGI");
        assert!(!closed.allows(Peer::Unix));
    }

    #[test]
    fn an_error_names_the_option() {
        let fastcgi = r#", "protocol": "fastcgi""#;
        let cases = [
            (
                "127.0.0.1:1",
                r#", "protocol": "fcgi""#.to_owned(),
                r#"listeners/127.0.0.1:1/protocol: "fcgi" is not possible here; write "http" or "fastcgi""#,
            ),
            (
                "*:1",
                r#", "allowed_clients": ["10.0.0.1"]"#.to_owned(),
                r#"listeners/*:1/allowed_clients: only listeners with "protocol": "fastcgi" have this option; for HTTP, write "source" in the "match" of a route"#,
            ),
            (
                "*:1",
                fastcgi.to_owned(),
                r#"listeners/*:1: other machines can connect to this FastCGI listener, and name any client and any script; add "allowed_clients": the addresses of your web servers, or listen on 127.0.0.1 or a Unix socket"#,
            ),
            (
                "unix:/x",
                format!(r#"{fastcgi}, "http2": false"#),
                "listeners/unix:%2Fx/http2: a FastCGI listener does not have this option: the web server in front has HTTP/2; remove it",
            ),
            (
                "unix:/x",
                format!(r#"{fastcgi}, "redirect": "https""#),
                "listeners/unix:%2Fx/redirect: a FastCGI listener does not have this option: the web server in front redirects; remove it",
            ),
            (
                "unix:/x",
                format!(r#"{fastcgi}, "tls": {{"certificate": "c"}}"#),
                "listeners/unix:%2Fx/tls: a FastCGI listener does not have this option: the web server in front has TLS; remove it",
            ),
        ];
        for (address, options, expected) in cases {
            assert_eq!(parse(address, &options), Err(expected.to_owned()), "{options}");
        }
    }
}
