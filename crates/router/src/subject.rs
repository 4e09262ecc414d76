//! A request as the configuration sees it: what conditions ask for, and what variables stand for.

use crate::socket::Peer;
use howdah_config as config;
use howdah_config::{Argument, Request, Scheme, Variable, Variables};
use http::request::Parts;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// A request. Arguments are split when they are first asked for.
pub struct Subject<'a> {
    /// In lower case, without the port.
    pub host: &'a str,
    /// Percent-decoded, without dot segments and doubled slashes.
    pub uri: &'a str,
    request: &'a Parts,
    peer: &'a Peer,
    query: OnceCell<Cow<'a, [u8]>>,
    arguments: OnceCell<Vec<Argument<'a>>>,
}

// === impl Subject ===

impl<'a> Subject<'a> {
    /// The request, with what was made of its host and its path.
    pub fn new(request: &'a Parts, peer: &'a Peer, host: &'a str, uri: &'a str) -> Self {
        Self { host, uri, request, peer, query: OnceCell::new(), arguments: OnceCell::new() }
    }

    fn raw_query(&self) -> &'a str {
        self.request.uri.query().unwrap_or_default()
    }
}

impl Request for Subject<'_> {
    fn method(&self) -> &str {
        self.request.method.as_str()
    }

    fn scheme(&self) -> Scheme {
        self.peer.scheme()
    }

    fn host(&self) -> &str {
        self.host
    }

    fn uri(&self) -> &str {
        self.uri
    }

    fn query(&self) -> &[u8] {
        self.query.get_or_init(|| config::decode_query(self.raw_query()))
    }

    fn arguments(&self) -> &[Argument<'_>] {
        self.arguments.get_or_init(|| config::parse_arguments(self.raw_query()))
    }

    fn source(&self) -> config::Peer {
        peer(&self.peer.remote_addr, &self.peer.remote_port)
    }

    fn destination(&self) -> config::Peer {
        peer(&self.peer.server_addr, &self.peer.server_port)
    }

    fn for_each_header(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        self.request.headers.get_all(name).iter().for_each(|value| visit(value.as_bytes()));
    }
}

impl Variables for Subject<'_> {
    fn write(&self, variable: &Variable, out: &mut String) {
        let mut last = None;
        let mut keep = |value: &[u8]| last = Some(String::from_utf8_lossy(value).into_owned());
        match variable {
            Variable::Host => out.push_str(self.host),
            Variable::Uri => out.push_str(self.uri),
            Variable::Method => out.push_str(self.method()),
            Variable::RemoteAddr => out.push_str(&self.peer.remote_addr),
            Variable::RequestUri => drop(write!(out, "{}", self.request.uri)),
            Variable::RequestLine => {
                let Parts { method, uri, version, .. } = self.request;
                let _ = write!(out, "{method} {uri} {version:?}");
            }
            Variable::Argument(name) => {
                let named = self.arguments().iter().filter(|argument| *argument.name == *name.as_bytes());
                named.for_each(|argument| keep(&argument.value));
            }
            Variable::Cookie(name) => self.for_each_cookie(name.as_bytes(), &mut keep),
            Variable::Header(name) => self.for_each_header(name, &mut keep),
            // Not known before the response.
            Variable::Status
            | Variable::BodyBytesSent
            | Variable::RequestTime
            | Variable::RequestId
            | Variable::TimeLocal
            | Variable::ResponseHeader(_) => {}
        }
        out.push_str(&last.unwrap_or_default());
    }
}

/// From CGI variables; what is no IP address is a Unix socket.
fn peer(address: &str, port: &str) -> config::Peer {
    match address.parse::<IpAddr>() {
        Ok(ip) => config::Peer::Ip(SocketAddr::new(ip, port.parse().unwrap_or_default())),
        Err(_) => config::Peer::Unix,
    }
}
