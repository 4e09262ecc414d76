//! `forwarded`: the client that a trusted proxy names in its headers.
//!
//! The headers of a peer that is not a trusted proxy are ignored. The last address of a list (`X-Forwarded-For: client,
//! proxy`) is used; with `recursive`, the last address that is not a trusted proxy's. An element that is not an address
//! ends the list: everything to the left of it may come from any client.

use howdah_config::{Forwarded, Peer, Scheme};
use http::HeaderMap;
use std::net::{IpAddr, SocketAddr};

/// The client that a proxy's headers name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ForwardedClient {
    /// Its address.
    pub address: Option<IpAddr>,
    /// Its protocol.
    pub scheme: Option<Scheme>,
    /// Whether the peer is a trusted proxy.
    pub is_trusted: bool,
}

/// Reads the headers of a request from this peer.
pub fn read(trusted: &Forwarded, peer: Peer, headers: &HeaderMap) -> ForwardedClient {
    if !trusted.source.matches(peer) {
        return ForwardedClient::default();
    }
    ForwardedClient {
        address: trusted.client_ip.as_deref().and_then(|name| client(trusted, headers, name)),
        scheme: trusted.protocol.as_deref().and_then(|name| scheme(headers, name)),
        is_trusted: true,
    }
}

fn client(trusted: &Forwarded, headers: &HeaderMap, name: &str) -> Option<IpAddr> {
    let mut found = None;
    for value in headers.get_all(name).iter().rev() {
        for element in value.as_bytes().rsplit(|byte| *byte == b',') {
            let Some(address) = std::str::from_utf8(element).ok().and_then(|text| address(text.trim())) else {
                return found;
            };
            found = Some(address);
            if !trusted.recursive || !trusted.source.matches(Peer::Ip(SocketAddr::new(address, 0))) {
                return found;
            }
        }
    }
    found
}

/// An address, with or without a port and brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

fn scheme(headers: &HeaderMap, name: &str) -> Option<Scheme> {
    let last = headers.get_all(name).iter().next_back()?;
    match last.as_bytes().rsplit(|byte| *byte == b',').next()?.trim_ascii() {
        text if text.eq_ignore_ascii_case(b"https") || text.eq_ignore_ascii_case(b"on") => Some(Scheme::Https),
        text if text.eq_ignore_ascii_case(b"http") => Some(Scheme::Http),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use http::HeaderValue;

    fn trusted(recursive: bool) -> Forwarded {
        let text = format!(
            r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "forwarded": {{"source": "10.0.0.0/8",
            "client_ip": "X-Forwarded-For", "protocol": "X-Forwarded-Proto", "recursive": {recursive}}}}}}}}}"#
        );
        Configuration::parse(&text).unwrap().listeners.remove(0).forwarded.unwrap()
    }

    fn from(peer: &str, recursive: bool, list: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in list {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let peer = Peer::Ip(SocketAddr::new(peer.parse().unwrap(), 5));
        read(&trusted(recursive), peer, &headers).address.map(|address| address.to_string())
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        assert_eq!(from("10.0.0.1", false, &["1.2.3.4"]).as_deref(), Some("1.2.3.4"));
        assert_eq!(from("11.0.0.1", false, &["1.2.3.4"]), None);
    }

    #[test]
    fn the_last_address_is_used_or_the_last_that_is_not_a_proxys() {
        let table: [(&[&str], _, _); 12] = [
            (&["1.1.1.1, 2.2.2.2"], Some("2.2.2.2"), Some("2.2.2.2")),
            (&["1.1.1.1, 2.2.2.2, 10.0.0.3"], Some("10.0.0.3"), Some("2.2.2.2")),
            (&["1.1.1.1", "10.0.0.3"], Some("10.0.0.3"), Some("1.1.1.1")),
            (&["10.0.0.2, 10.0.0.3"], Some("10.0.0.3"), Some("10.0.0.2")),
            (&["1.1.1.1, evil, 10.0.0.3"], Some("10.0.0.3"), Some("10.0.0.3")),
            (&["[2001:db8::1]:80"], Some("2001:db8::1"), Some("2001:db8::1")),
            (&["1.1.1.1:80"], Some("1.1.1.1"), Some("1.1.1.1")),
            (&["unknown"], None, None),
            // An element that is not ASCII is not an address. The elements after it stay valid.
            (&["\u{ff}, 1.1.1.1"], Some("1.1.1.1"), Some("1.1.1.1")),
            (&["\u{ff}, 1.1.1.1, 10.0.0.3"], Some("10.0.0.3"), Some("1.1.1.1")),
            (&["1.1.1.1, \u{ff}, 10.0.0.3"], Some("10.0.0.3"), Some("10.0.0.3")),
            (&["\u{ff}", "10.0.0.3"], Some("10.0.0.3"), Some("10.0.0.3")),
        ];
        for (list, last, recursive) in table {
            assert_eq!(from("10.0.0.1", false, list).as_deref(), last, "{list:?}");
            assert_eq!(from("10.0.0.1", true, list).as_deref(), recursive, "{list:?}");
        }
    }

    #[test]
    fn the_protocol_is_one_of_two() {
        for (text, expected) in [
            ("https", Some(Scheme::Https)),
            ("ON", Some(Scheme::Https)),
            ("http", Some(Scheme::Http)),
            ("ftp", None),
            ("\u{ff}, https", Some(Scheme::Https)),
            ("\u{ff}", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-proto", HeaderValue::from_bytes(text.as_bytes()).unwrap());
            let peer = Peer::Ip("10.1.1.1:5".parse().unwrap());
            assert_eq!(read(&trusted(false), peer, &headers).scheme, expected, "{text}");
        }
    }
}
