//! The first lines on standard output: what runs, where, on which PHP, and where its control API is.

use crate::control::Control;
use crate::generation::Generation;
use crate::generation::fastcgi::FastCgiGeneration;
use crate::generation::php::PhpGeneration;
use crate::os::listen::Listeners;
use howdah_config::Address;
use howdah_protocol::plain_text::plain;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;

/// Prints the lines, unbuffered. A closed standard output is no reason to fail.
pub fn print(recognised: Option<&str>, control: &Control, control_listeners: &Listeners) {
    let mut text = concat!("howdah ", env!("CARGO_PKG_VERSION")).to_owned();
    if let Some(recognised) = recognised {
        let _ = write!(text, ": {recognised}");
    }
    text.push('\n');
    let active = control.changes.active();
    let configured = || active.listeners.iter().zip(&active.configuration.listeners);
    for (id, address) in control.runtime.listeners.addresses() {
        let listener = configured().find(|(known, _)| **known == id).map(|(_, listener)| listener);
        let scheme = match listener {
            Some(listener) if listener.fastcgi.is_some() => "fastcgi",
            Some(listener) if listener.tls.is_some() => "https",
            _ => "http",
        };
        let _ = writeln!(text, "{}", url(address, scheme));
    }
    for generation in control.runtime.generations.iter() {
        if recognised.is_none() {
            let _ = write!(text, "application {:?}: ", generation.name());
        }
        let processes = generation.processes();
        let plural = if processes == 1 { "process" } else { "processes" };
        match generation.as_php().map(PhpGeneration::loaded) {
            Some(Some(loaded)) => {
                let opcache = if loaded.opcache { "on" } else { "off" };
                let _ = writeln!(text, "PHP {}, opcache {opcache}, {processes} {plural}", loaded.version);
            }
            Some(None) => {}
            None if generation.as_fastcgi().is_some() => drop(writeln!(text, "{}", server(generation))),
            None => drop(writeln!(text, "{}, {processes} {plural}", generation.kind().unwrap_or_default())),
        }
    }
    for (name, reason) in &control.changes.active().failures {
        let _ = writeln!(text, "application {name:?}: answers 503: {}", plain(reason));
    }
    for (option, reason) in &control.changes.active().missing {
        let _ = writeln!(text, "{option}: missing: {}", plain(reason));
    }
    for name in &control.changes.active().configuration.drained {
        let _ = writeln!(text, "application {name:?}: answers 503: it drains");
    }
    for (_, address) in control_listeners.addresses() {
        let _ = writeln!(text, "control {address}");
    }
    let mut stdout = io::stdout();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// A server that howdah does not start.
fn server(generation: &Generation) -> String {
    let addresses = generation.as_fastcgi().map(FastCgiGeneration::addresses).unwrap_or_default();
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    format!("{} at {}", generation.kind().unwrap_or_default(), addresses.join(", "))
}

/// Prints that the configuration passed its check.
pub fn print_checked(name: &str) {
    let mut stdout = io::stdout();
    let text = format!("{name}: the configuration is valid, and its applications start on this machine\n");
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// The URL for a browser. A listener on all addresses of the machine gets the loopback address.
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
