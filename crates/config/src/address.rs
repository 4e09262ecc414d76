//! Addresses: an IP address and port or a Unix socket, to listen on ([`Address`]) or to connect to ([`Endpoint`], which
//! may also be a host name and port).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, quoted};

/// The size of `sun_path` on Linux, without the terminating NUL.
const UNIX_PATH_BYTES: usize = 107;

/// The longest name in DNS.
const HOST_NAME_BYTES: usize = 253;

/// An address to listen on. Parsed from and displayed as in the configuration: `*:8080`, `127.0.0.1:8080`,
/// `[::1]:8080`, `unix:/run/shop.sock`, `unix:@shop`.
///
/// `*` and `0.0.0.0` are the same address, displayed as `*`. With port 0 the kernel chooses a free port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a TCP port.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket, at most 107 bytes long.
    Unix(PathBuf),
    /// The name of an abstract Unix socket, without the `@`, 1 to 107 bytes long and without control characters.
    Abstract(String),
}

/// An address to connect to. Parsed from and displayed as in the configuration: `127.0.0.1:8080`, `[::1]:8080`,
/// `backend.internal:8080`, `unix:/run/shop.sock`, `unix:@shop`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// An IP address that is not unspecified, and a TCP port that is not 0.
    Tcp(SocketAddr),
    /// The name of a host, and a TCP port that is not 0.
    Name {
        /// In lower case: letters, digits, hyphens, underscores and dots.
        host: String,
        /// The port.
        port: u16,
    },
    /// Like [`Address::Unix`].
    Unix(PathBuf),
    /// Like [`Address::Abstract`].
    Abstract(String),
}

// === impl Address ===

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(Error::configuration)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) if address.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) => {
                write!(f, "*:{}", address.port())
            }
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// The host, without a port: an IP address or a name; `None` for a Unix socket.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Tcp(address) => Some(address.ip().to_string()),
            Self::Name { host, .. } => Some(host.clone()),
            Self::Unix(_) | Self::Abstract(_) => None,
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse_endpoint(text).map_err(Error::configuration)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
        }
    }
}

/// Parses an endpoint. The error is a whole sentence: what is wrong, and what to write.
pub(crate) fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    let problem = |advice: &str| Err(format!("{} is not an address to connect to; {advice}", quoted(text)));
    match parse(text) {
        Ok(Address::Unix(path)) => Ok(Endpoint::Unix(path)),
        Ok(Address::Abstract(name)) => Ok(Endpoint::Abstract(name)),
        Ok(Address::Tcp(address)) if address.ip().is_unspecified() => problem("name one machine, as in 127.0.0.1:8080"),
        Ok(Address::Tcp(address)) if address.port() == 0 => problem("write a port from 1 to 65535"),
        Ok(Address::Tcp(address)) => Ok(Endpoint::Tcp(address)),
        Err(_) => parse_name(text).map_or_else(|advice| problem(&advice), Ok),
    }
}

/// Parses the name of a host and a port. The error is what to write.
fn parse_name(text: &str) -> Result<Endpoint, String> {
    let general =
        || "write an address or a name with a port, as in 127.0.0.1:8080 or backend:8080, or unix:/path".to_owned();
    if text.contains("://") {
        return Err("write it without http:// or https://, as in 127.0.0.1:8080".to_owned());
    }
    if let Some((host, _)) = text.split_once('/').filter(|(host, _)| !host.is_empty() && *host != "unix:") {
        return Err(format!("an address has no path; write only {host}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        // A Unix socket with a mistake.
        Some(("unix", _)) => return Err(general()),
        Some((host, port)) if is_host_name(host) && is_number(port) => (host, port),
        None if is_host_name(text) => return Err(format!("add a port: {text}:80")),
        _ => return Err(general()),
    };
    match port.parse() {
        Ok(port) if port > 0 => Ok(Endpoint::Name { host: host.to_ascii_lowercase(), port }),
        _ => Err("write a port from 1 to 65535".to_owned()),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a text may be the name of a host. A name whose last label is a number would be an IP address with a mistake.
pub(crate) fn is_host_name(text: &str) -> bool {
    let is_label_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_label_byte);
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= HOST_NAME_BYTES
        && name.split('.').all(is_label)
        && name.rsplit('.').next().is_some_and(|label| !is_number(label))
}

/// Parses an address. The error is a whole sentence: what is wrong, and what to write.
pub(crate) fn parse(text: &str) -> Result<Address, String> {
    let problem = |advice: String| format!("{} is not an address to listen on; {advice}", quoted(text));
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_unix(path).map_err(problem);
    }
    let numeric = match text.strip_prefix("*:") {
        Some(port) => format!("0.0.0.0:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map(Address::Tcp).map_err(|_| problem(advice(text)))
}

fn parse_unix(path: &str) -> Result<Address, String> {
    if let Some(name) = path.strip_prefix('@') {
        return parse_abstract(name);
    }
    if !path.starts_with('/') || path.ends_with('/') {
        return Err("write unix: and the absolute path of a socket, as in unix:/run/howdah.sock".into());
    }
    if path.contains('\0') {
        return Err("remove the NUL character".into());
    }
    if path.len() > UNIX_PATH_BYTES {
        return Err(format!(
            "the path has {} bytes, but a socket's path has at most {UNIX_PATH_BYTES}; shorten it",
            path.len()
        ));
    }
    Ok(Address::Unix(path.into()))
}

fn parse_abstract(name: &str) -> Result<Address, String> {
    if name.is_empty() {
        return Err("write a name after the @, as in unix:@shop".into());
    }
    if name.chars().any(char::is_control) {
        return Err("remove the control character".into());
    }
    if name.len() > UNIX_PATH_BYTES {
        return Err(format!(
            "the name has {} bytes, but a socket's name has at most {UNIX_PATH_BYTES}; shorten it",
            name.len()
        ));
    }
    Ok(Address::Abstract(name.to_owned()))
}

/// Advice for a text that is not an address: the address that was probably meant.
fn advice(text: &str) -> String {
    let is_port = |text: &str| is_number(text) && text.parse::<u16>().is_ok();
    if is_port(text) {
        return format!("write *:{text} or 127.0.0.1:{text}");
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return format!("add a port: {}", SocketAddr::new(ip, 8080));
    }
    if text == "*" {
        return "add a port: *:8080".into();
    }
    if text.starts_with('/') {
        return format!("write unix:{text}");
    }
    if text.contains("://") {
        return "write it without http:// and path, as in *:8080".into();
    }
    match text.rsplit_once(':') {
        Some(("", port)) if is_port(port) => format!("write *:{port}"),
        Some(("localhost", port)) if is_port(port) => {
            format!("write 127.0.0.1:{port} or [::1]:{port}")
        }
        Some((host, port)) if is_port(port) && !host.contains(':') => {
            format!("write an IP address in place of the host name, as in *:{port} or 127.0.0.1:{port}")
        }
        Some((host, port)) if is_number(port) && !host.contains(':') => "the port must be at most 65535".into(),
        _ => "write *:8080, 127.0.0.1:8080, [::1]:8080 or unix:/path".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written() {
        let cases = [
            ("*:80", "*:80"),
            ("0.0.0.0:80", "*:80"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("[0:0::0]:80", "[::]:80"),
            ("unix:/run/a b.sock", "unix:/run/a b.sock"),
            ("unix:@a/b", "unix:@a/b"),
        ];
        for (text, expected) in cases {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), expected);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        assert_eq!("*:80".parse(), Ok(Address::Tcp(([0, 0, 0, 0], 80).into())));
    }

    #[test]
    fn an_error_names_the_address_to_write() {
        let long = format!("unix:/{}", "x".repeat(107));
        let long_name = format!("unix:@{}", "x".repeat(108));
        let cases = [
            ("8080", "write *:8080 or 127.0.0.1:8080"),
            (":8080", "write *:8080"),
            ("localhost:80", "write 127.0.0.1:80 or [::1]:80"),
            ("example.com:80", "write an IP address in place of the host name, as in *:80 or 127.0.0.1:80"),
            ("127.0.0.1", "add a port: 127.0.0.1:8080"),
            ("::1", "add a port: [::1]:8080"),
            ("[::1]", "add a port: [::1]:8080"),
            ("*", "add a port: *:8080"),
            ("*:65536", "the port must be at most 65535"),
            ("*:-1", "write *:8080, 127.0.0.1:8080, [::1]:8080 or unix:/path"),
            ("*:+80", "write *:8080"),
            ("*:", "write *:8080"),
            ("", "write *:8080"),
            ("http://x/", "write it without http:// and path, as in *:8080"),
            ("/run/x.sock", "write unix:/run/x.sock"),
            ("unix:run/x.sock", "write unix: and the absolute path"),
            ("unix:/run/", "write unix: and the absolute path"),
            ("unix:", "write unix: and the absolute path"),
            ("unix:@", "write a name after the @, as in unix:@shop"),
            ("unix:@a\0", "remove the control character"),
            (&long_name, "the name has 108 bytes, but a socket's name has at most 107"),
            ("unix:/a\0", "remove the NUL character"),
            (&long, "the path has 108 bytes, but a socket's path has at most 107"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.contains("is not an address to listen on; "), "{error}");
        }
    }

    #[test]
    fn a_host_name_has_no_case() {
        assert_eq!("BackEnd:80".parse::<Endpoint>(), "backend:80".parse());
    }

    #[test]
    fn an_endpoint_is_one_machine_and_port() {
        for text in ["127.0.0.1:8080", "[::1]:80", "localhost:80", "a-b_c.d3.example.:1", "unix:/run/x.sock", "unix:@x"]
        {
            assert_eq!(text.parse::<Endpoint>().expect(text).to_string(), text);
        }
        let cases = [
            ("*:80", "name one machine, as in 127.0.0.1:8080"),
            ("[::]:80", "name one machine"),
            ("127.0.0.1:0", "write a port from 1 to 65535"),
            ("127.0.0.1", "write an address or a name with a port, as in 127.0.0.1:8080 or backend:8080"),
            ("10.0.0.256:80", "write an address or a name with a port"),
            ("backend", "add a port: backend:80"),
            ("backend:0", "write a port from 1 to 65535"),
            ("backend:65536", "write a port from 1 to 65535"),
            ("backend:+80", "write an address or a name with a port"),
            ("backend:80/", "an address has no path; write only backend:80"),
            ("http://backend:80", "write it without http:// or https://, as in 127.0.0.1:8080"),
            ("unix:80", "write an address or a name with a port"),
            ("back end:80", "write an address or a name with a port"),
            ("a..b:80", "write an address or a name with a port"),
            (".:80", "write an address or a name with a port"),
            (":80", "write an address or a name with a port"),
            ("unix:x", "write an address or a name with a port, as in 127.0.0.1:8080 or backend:8080, or unix:/path"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.contains("is not an address to connect to; "), "{error}");
        }
    }
}
