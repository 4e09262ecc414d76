//! `source`, `destination`: patterns for the two ends of a connection.
//!
//! `192.0.2.1`, `192.0.2.0/24` and `192.0.2.1-192.0.2.9` match IP addresses; `:80` or `:8000-8080` after them adds
//! ports. IPv6 addresses are written the same way, in brackets if ports follow. `*:80` matches any IP address with
//! that port, `unix` any Unix socket, and `!` negates. An IPv4 address in IPv6 form matches as the IPv4 address.
//!
//! An empty list accepts no peer: an allow-list from which the last address was removed must not admit everyone.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::error::{Error, quoted};
use crate::matching::request::Peer;
use crate::read::node::Node;

const ADVICE: &str =
    "write one such as 192.0.2.1, 192.0.2.0/24, 192.0.2.1-192.0.2.9, [2001:db8::/32]:443, *:80 or unix";

/// The peers that `source` or `destination` accepts: at least one positive pattern must match (if there are any), and
/// no negative one may. Without any pattern, no peer is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPatterns {
    positive: Vec<AddressPattern>,
    negative: Vec<AddressPattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AddressPattern {
    Ip { addresses: Addresses, ports: RangeInclusive<u16> },
    Unix,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Addresses {
    Any,
    Network(IpNet),
    /// Both ends have the same family; the first is not greater than the last.
    Range(RangeInclusive<IpAddr>),
}

// === impl AddressPatterns ===

impl AddressPatterns {
    /// Reads a string or an array of strings.
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let mut patterns = Self { positive: Vec::new(), negative: Vec::new() };
        let read = |node: &Node<'_>| {
            let text = node.string()?;
            let negated = text.strip_prefix('!');
            let pattern = AddressPattern::parse(negated.unwrap_or(&text))
                .map_err(|problem| node.error(format_args!("{} {problem}", quoted(&text))))?;
            Ok((negated.is_some(), pattern))
        };
        for (negated, pattern) in node.one_or_many(read)? {
            if negated { &mut patterns.negative } else { &mut patterns.positive }.push(pattern);
        }
        Ok(patterns)
    }

    /// Whether these patterns accept the peer.
    pub fn matches(&self, peer: Peer) -> bool {
        if self.positive.is_empty() && self.negative.is_empty() {
            return false;
        }
        let peer = canonical(peer);
        (self.positive.is_empty() || self.positive.iter().any(|pattern| pattern.matches(peer)))
            && !self.negative.iter().any(|pattern| pattern.matches(peer))
    }
}

/// The peer with an IPv4 address in place of its IPv6 form.
fn canonical(peer: Peer) -> Peer {
    match peer {
        Peer::Ip(address) => Peer::Ip(SocketAddr::new(address.ip().to_canonical(), address.port())),
        Peer::Unix => Peer::Unix,
    }
}

// === impl AddressPattern ===

impl AddressPattern {
    /// Parses a pattern. The error is what is wrong with the text, to follow the text in a message.
    fn parse(text: &str) -> Result<Self, String> {
        if text == "unix" {
            return Ok(Self::Unix);
        }
        let (addresses, ports) = split_ports(text).ok_or_else(not_a_pattern)?;
        if addresses == "*" && ports.is_none() {
            return Err("matches any address; add a port, as in *:80, or remove the option".into());
        }
        let ports = ports.map_or(Ok(0..=u16::MAX), parse_ports)?;
        Ok(Self::Ip { addresses: Addresses::parse(addresses)?, ports })
    }

    fn matches(&self, peer: Peer) -> bool {
        match (self, peer) {
            (Self::Unix, Peer::Unix) => true,
            (Self::Ip { addresses, ports }, Peer::Ip(address)) => {
                ports.contains(&address.port()) && addresses.contains(address.ip())
            }
            _ => false,
        }
    }
}

fn not_a_pattern() -> String {
    format!("is not a pattern for addresses; {ADVICE}")
}

// === impl Addresses ===

impl Addresses {
    fn parse(text: &str) -> Result<Self, String> {
        let parse_ip = |text: &str| text.parse::<IpAddr>().map_err(|_| not_a_pattern());
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some((address, bits)) = text.split_once('/') {
            return parse_network(parse_ip(address)?, bits).map(Self::Network);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (parse_ip(first)?.to_canonical(), parse_ip(last)?.to_canonical());
        if first.is_ipv4() != last.is_ipv4() {
            return Err("is a range between IPv4 and IPv6; write two patterns".into());
        }
        if first > last {
            return Err("is a range whose first address is greater than its last; swap them".into());
        }
        Ok(Self::Range(first..=last))
    }

    fn contains(&self, ip: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Network(network) => network.contains(&ip),
            Self::Range(range) => range.start().is_ipv4() == ip.is_ipv4() && range.contains(&ip),
        }
    }
}

fn parse_network(address: IpAddr, bits: &str) -> Result<IpNet, String> {
    let digits_only = bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits = bits.parse().ok().filter(|_| digits_only);
    bits.and_then(|bits| IpNet::new(address, bits).ok()).ok_or_else(|| {
        let width = if address.is_ipv4() { 32 } else { 128 };
        format!("has no number of bits after the slash; write 0 to {width}")
    })
}

/// Splits the text into addresses and ports, and removes the brackets.
fn split_ports(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(text) = text.strip_prefix('[') {
        let (addresses, ports) = text.split_once(']')?;
        return match ports {
            "" => Some((addresses, None)),
            ports => Some((addresses, Some(ports.strip_prefix(':')?))),
        };
    }
    // More than one colon is an IPv6 address, which has ports only after brackets.
    match text.split_once(':') {
        Some((addresses, ports)) if !ports.contains(':') => Some((addresses, Some(ports))),
        _ => Some((text, None)),
    }
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(_), Some(_)) => Err("has a range of ports whose first is greater than its last; swap them".into()),
        _ => Err("has a port that is not a number up to 65535; write one such as :80 or :8000-8080".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<AddressPatterns, String> {
        let value = json::parse(json).expect("JSON");
        AddressPatterns::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    fn peer(text: &str) -> Peer {
        if text == "unix" { Peer::Unix } else { Peer::Ip(text.parse().expect(text)) }
    }

    #[test]
    fn addresses_match_by_address_and_port() {
        let cases = [
            ("192.0.2.1", "192.0.2.1:5", true),
            ("192.0.2.1", "[::ffff:192.0.2.1]:5", true),
            ("192.0.2.1", "192.0.2.2:5", false),
            ("192.0.2.1:80", "192.0.2.1:80", true),
            ("192.0.2.1:80", "192.0.2.1:81", false),
            ("192.0.2.0/24", "192.0.2.255:5", true),
            ("192.0.2.77/24", "192.0.2.0:5", true),
            ("192.0.2.0/24", "192.0.3.0:5", false),
            ("0.0.0.0/0", "8.8.8.8:5", true),
            ("0.0.0.0/0", "[::1]:5", false),
            ("192.0.2.1/32", "192.0.2.1:5", true),
            ("192.0.2.0/24:8000-8080", "192.0.2.9:8080", true),
            ("192.0.2.0/24:8000-8080", "192.0.2.9:8081", false),
            ("192.0.2.1-192.0.2.200", "192.0.2.200:5", true),
            ("192.0.2.1-192.0.2.200:80", "192.0.2.201:80", false),
            ("::1", "[::1]:5", true),
            ("[::1]", "[::1]:5", true),
            ("[::1]:80", "[::1]:81", false),
            ("2001:db8::/32", "[2001:db8:ffff::1]:5", true),
            ("[2001:db8::/32]:443", "[2001:db9::]:443", false),
            ("[2001:db8::-2001:db8::ff]:80-90", "[2001:db8::fe]:85", true),
            ("::/0", "[2001:db8::]:1", true),
            ("*:80", "[::1]:80", true),
            ("*:80", "1.2.3.4:80", true),
            ("*:80", "1.2.3.4:81", false),
            ("*:80", "unix", false),
            ("*:0-65535", "1.2.3.4:80", true),
            ("*:0-65535", "unix", false),
            ("unix", "unix", true),
            ("unix", "1.2.3.4:80", false),
            ("!unix", "1.2.3.4:80", true),
            ("!10.0.0.0/8", "10.1.2.3:80", false),
        ];
        for (pattern, address, expected) in cases {
            let patterns = read(&format!("\"{pattern}\"")).expect(pattern);
            assert_eq!(patterns.matches(peer(address)), expected, "{pattern} {address}");
        }
        let both = read(r#"["192.0.2.1-192.0.2.10", "!192.0.2.9"]"#).expect("patterns");
        assert!(both.matches(peer("192.0.2.8:1")));
        assert!(!both.matches(peer("192.0.2.9:1")));
    }

    #[test]
    fn an_empty_list_accepts_no_peer() {
        for address in ["unix", "1.2.3.4:80", "[::1]:80"] {
            assert!(!read("[]").expect("patterns").matches(peer(address)), "{address}");
        }
    }

    #[test]
    fn an_invalid_address_is_rejected() {
        let cases = [
            ("localhost", "\"localhost\" is not a pattern for addresses; write one such as 192.0.2.1"),
            ("192.0.2", "is not a pattern for addresses"),
            ("", "is not a pattern for addresses"),
            ("[::1", "is not a pattern for addresses"),
            ("[::1]80", "is not a pattern for addresses"),
            ("*", "matches any address; add a port, as in *:80, or remove the option"),
            ("192.0.2.0/33", "has no number of bits after the slash; write 0 to 32"),
            ("::/129", "write 0 to 128"),
            ("192.0.2.0/+1", "has no number of bits after the slash"),
            ("192.0.2.9-192.0.2.1", "is a range whose first address is greater than its last; swap them"),
            ("[192.0.2.9-::1]", "is a range between IPv4 and IPv6; write two patterns"),
            ("*:90-80", "has a range of ports whose first is greater than its last; swap them"),
            ("*:65536", "has a port that is not a number up to 65535"),
            ("*:", "has a port that is not a number up to 65535"),
        ];
        for (pattern, expected) in cases {
            let error = read(&format!("\"{pattern}\"")).expect_err(pattern);
            assert!(error.contains(expected), "{pattern}: {error}");
        }
        assert_eq!(read("[5]"), Err("0: expected a string; write \"5\", with quotes".to_owned()));
    }
}
