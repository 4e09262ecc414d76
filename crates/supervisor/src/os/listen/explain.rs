//! Why a socket cannot be opened, and what to do, as a sentence.

use crate::os::system_error::error_text;
use howdah_config::Address;
use std::io;
use std::net::SocketAddr;

/// Which option names an address, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// `--listen`
    Option,
    /// `listeners` in the configuration
    Configuration,
    /// `settings/metrics` in the configuration
    Metrics,
    /// `--control`
    Control,
}

/// For a UDP socket of HTTP/3.
pub(super) fn explain_udp(address: SocketAddr, error: &io::Error) -> String {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "UDP port {port}, which HTTP/3 needs, is in use by another program, or by the last connections of a listener \
             that was removed; free it, or remove \"http3\""
        ),
        _ => format!("cannot open UDP port {port} for HTTP/3: {}; remove \"http3\"", error_text(error)),
    }
}

/// For a listening socket.
pub(super) fn explain(address: &Address, error: &io::Error, chosen_by: ChosenBy) -> String {
    let option = match chosen_by {
        ChosenBy::Option => "with --listen",
        ChosenBy::Configuration => "in \"listeners\"",
        ChosenBy::Metrics => "in \"listen\"",
        ChosenBy::Control => "with --control",
    };
    match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, Address::Tcp(tcp)) => {
            let next = Address::Tcp(SocketAddr::new(tcp.ip(), tcp.port().checked_add(1).unwrap_or(8080)));
            format!("port {} is in use by another program; choose another {option}, as in {next}", tcp.port())
        }
        (io::ErrorKind::AddrInUse, Address::Unix(_) | Address::Abstract(_)) => {
            format!("{address} is in use by another program; choose another {option}")
        }
        (io::ErrorKind::AlreadyExists, _) => {
            format!(
                "cannot listen on {address}: there is a file that is not a socket; remove it or choose another path"
            )
        }
        (io::ErrorKind::PermissionDenied, Address::Tcp(_)) => {
            format!("cannot listen on {address}: permission denied; use a port above 1023 or start howdah as root")
        }
        (io::ErrorKind::PermissionDenied, Address::Unix(_) | Address::Abstract(_)) => {
            format!("cannot listen on {address}: permission denied; choose a folder in which you may write")
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            format!("cannot listen on {address}: this machine does not have the address; choose another {option}")
        }
        (io::ErrorKind::NotFound, _) => {
            format!("cannot listen on {address}: the folder does not exist; create it or choose another {option}")
        }
        _ => format!("cannot listen on {address}: {}; choose another {option}", error_text(error)),
    }
}
