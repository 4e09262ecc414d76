//! `forwarded`: the proxies whose headers about the client are trusted, and these headers.

use crate::error::{Error, quoted};
use crate::matching::address_pattern::AddressPatterns;
use crate::read::header_name::is_header_name;
use crate::read::node::{Node, Object, Options};

pub(crate) const OPTIONS: Options =
    Options { known: &["client_ip", "protocol", "source", "recursive"], unsupported: &[] };

/// The older form, in which the listener's `client_ip` is an object.
pub(crate) const CLIENT_IP_OPTIONS: Options = Options { known: &["header", "source", "recursive"], unsupported: &[] };

const SOURCE_MEANING: &str = "the addresses of your proxies, as in \"source\": \"10.0.0.0/8\"";

/// The proxies that a listener trusts, and the headers in which they describe the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The proxies. The headers of other peers are ignored.
    pub source: AddressPatterns,
    /// The header (in lower case) with the client's IP address, or a list of them, as in `X-Forwarded-For`.
    pub client_ip: Option<String>,
    /// The header (in lower case) with the client's scheme, `http`, `https` or `on`, as in `X-Forwarded-Proto`.
    pub protocol: Option<String>,
    /// The client's address in a list: the last one, or, if `true`, the last one that is not the address of a proxy.
    pub recursive: bool,
}

// === impl Forwarded ===

impl Forwarded {
    /// Reads the options of a listener: `forwarded`, or its older form `client_ip`.
    pub(crate) fn read(listener: &Object<'_>) -> Result<Option<Self>, Error> {
        match (listener.get("forwarded"), listener.get("client_ip")) {
            (Some(forwarded), None) => Self::read_forwarded(&forwarded).map(Some),
            (None, Some(client_ip)) => Self::read_client_ip(&client_ip).map(Some),
            (Some(_), Some(client_ip)) => {
                Err(client_ip.error("\"forwarded\" has this option already; write it there only, as \"client_ip\""))
            }
            (None, None) => Ok(None),
        }
    }

    fn read_forwarded(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let client_ip = object.read("client_ip", read_header)?;
        let protocol = object.read("protocol", read_header)?;
        if client_ip.is_none() && protocol.is_none() {
            return Err(node.error("no header is named; add \"client_ip\": \"X-Forwarded-For\" or \"protocol\""));
        }
        Ok(Self { client_ip, protocol, ..Self::read_trust(&object)? })
    }

    fn read_client_ip(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&CLIENT_IP_OPTIONS)?;
        let header = object.require("header", "the header's name, as in \"header\": \"X-Forwarded-For\"")?;
        Ok(Self { client_ip: Some(read_header(&header)?), ..Self::read_trust(&object)? })
    }

    fn read_trust(object: &Object<'_>) -> Result<Self, Error> {
        Ok(Self {
            source: AddressPatterns::read(&object.require("source", SOURCE_MEANING)?)?,
            recursive: object.read("recursive", Node::boolean)?.unwrap_or(false),
            client_ip: None,
            protocol: None,
        })
    }
}

fn read_header(node: &Node<'_>) -> Result<String, Error> {
    let text = node.string()?;
    if !is_header_name(&text) {
        let advice = "write one such as \"X-Forwarded-For\"";
        return Err(node.error(format_args!("{} is not the name of a header; {advice}", quoted(&text))));
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use crate::matching::request::Peer;

    fn parse(options: &str) -> Result<Option<Forwarded>, String> {
        let text = format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", {options}}}}}}}"#);
        let parsed = Configuration::parse(&text).map_err(|error| error.to_string());
        parsed.map(|mut configuration| configuration.listeners.remove(0).forwarded)
    }

    #[test]
    fn both_forms_are_read() {
        let proxy = Peer::Ip("10.1.2.3:9".parse().expect("address"));
        let forms = [
            r#""forwarded": {"client_ip": "X-Forwarded-For", "recursive": true, "source": ["10.0.0.0/8"]}"#,
            r#""client_ip": {"header": "X-Forwarded-For", "recursive": true, "source": ["10.0.0.0/8"]}"#,
        ];
        for form in forms {
            let forwarded = parse(form).expect(form).expect("forwarded");
            assert_eq!(forwarded.client_ip.as_deref(), Some("x-forwarded-for"));
            assert_eq!((forwarded.protocol.as_deref(), forwarded.recursive), (None, true));
            assert!(forwarded.source.matches(proxy) && !forwarded.source.matches(Peer::Unix));
        }
        let protocol = parse(r#""forwarded": {"protocol": "X-Forwarded-Proto", "source": "unix"}"#);
        let protocol = protocol.expect("configuration").expect("forwarded");
        assert_eq!((protocol.protocol.as_deref(), protocol.recursive), (Some("x-forwarded-proto"), false));
    }

    #[test]
    fn an_error_names_the_option() {
        let cases = [
            (
                r#""forwarded": {"source": "*:1"}"#,
                "forwarded: no header is named; add \"client_ip\": \"X-Forwarded-For\" or \"protocol\"",
            ),
            (
                r#""forwarded": {"client_ip": "X-Forwarded-For"}"#,
                "forwarded: \"source\" is missing; add the addresses of your proxies, as in \"source\": \"10.0.0.0/8\"",
            ),
            (
                r#""forwarded": {"client_ip": "X Y", "source": []}"#,
                "forwarded/client_ip: \"X Y\" is not the name of a header; write one such as \"X-Forwarded-For\"",
            ),
            (
                r#""forwarded": {"protocol": "X", "source": "all"}"#,
                "forwarded/source: \"all\" is not a pattern for addresses; write one such as 192.0.2.1, \
                 192.0.2.0/24, 192.0.2.1-192.0.2.9, [2001:db8::/32]:443, *:80 or unix",
            ),
            (
                r#""forwarded": {"protocol": "X", "source": "*:1", "recursive": 1}"#,
                "forwarded/recursive: expected true or false, found the number 1",
            ),
            (
                r#""client_ip": {"source": "*:1"}"#,
                "client_ip: \"header\" is missing; add the header's name, as in \"header\": \"X-Forwarded-For\"",
            ),
            (
                r#""client_ip": {}, "forwarded": {}"#,
                "client_ip: \"forwarded\" has this option already; write it there only, as \"client_ip\"",
            ),
        ];
        for (options, expected) in cases {
            assert_eq!(parse(options), Err(format!("listeners/*:1/{expected}")), "{options}");
        }
    }
}
