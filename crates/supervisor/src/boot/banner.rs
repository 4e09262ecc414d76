//! The first lines on standard output: the addresses, the applications and their PHP.

use crate::boot::start::Start;
use crate::control::change::Current;
use crate::generation::Generation;
use crate::os::listen::Listeners;
use howdah_config::Address;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;

/// Prints the lines. A closed standard output is not an error.
pub fn print(start: &Start, listeners: &Listeners, current: &Current, generations: &[Generation]) {
    let mut text = concat!("howdah ", env!("CARGO_PKG_VERSION")).to_owned();
    if let Some(recognised) = &start.recognised {
        let _ = write!(text, ": {recognised}");
    }
    text.push('\n');
    let configured = || current.listeners.iter().zip(&current.configuration.listeners);
    for (id, address) in listeners.addresses() {
        let tls = configured().any(|(known, listener)| *known == id && listener.tls.is_some());
        let _ = writeln!(text, "{}", url(address, if tls { "https" } else { "http" }));
    }
    for generation in generations {
        if start.recognised.is_none() {
            let _ = write!(text, "application {:?}: ", generation.name());
        }
        if let Some(loaded) = generation.loaded() {
            let opcache = if loaded.opcache { "on" } else { "off" };
            let processes = generation.processes();
            let plural = if processes == 1 { "process" } else { "processes" };
            let _ = writeln!(text, "PHP {}, opcache {opcache}, {processes} {plural}", loaded.version);
        }
    }
    let mut stdout = io::stdout();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// The URL for a browser. For a listener on all addresses, that of the loopback address.
fn url(address: &Address, scheme: &str) -> String {
    match address {
        Address::Tcp(tcp) if tcp.ip().is_unspecified() => {
            let loopback: std::net::IpAddr =
                if tcp.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
            format!("{scheme}://{} (on {address})", SocketAddr::new(loopback, tcp.port()))
        }
        Address::Tcp(tcp) => format!("{scheme}://{tcp}"),
        Address::Unix(_) | Address::Abstract(_) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_becomes_a_url() {
        let cases = [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("*:80", "http://127.0.0.1:80 (on *:80)"),
            ("[::]:80", "http://[::1]:80 (on [::]:80)"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
        ];
        for (address, expected) in cases {
            assert_eq!(url(&address.parse().unwrap(), "http"), expected);
        }
    }
}
