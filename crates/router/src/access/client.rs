//! The addresses that count as one client.

use std::net::{IpAddr, Ipv6Addr};

/// The client with this address: an IPv4 address, or the /64 of an IPv6 address, because a provider gives a customer many
/// of these.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}
