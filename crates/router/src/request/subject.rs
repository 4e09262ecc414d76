//! A request as the configuration sees it: the values of conditions and variables.

use crate::net::peer::Peer;
use crate::request::forwarded;
use crate::request::local_time;
use crate::request::path::RequestPath;
use crate::request::record::ids::AssignedHeaders;
use crate::request::record::log_context::LogContext;
use crate::request::rewrite::{self, BadRewrite};
use crate::request::target;
use howdah_config as config;
use howdah_config::{Argument, Listener, RequestView, Scheme, Template, TemplateVariable, Variables};
use howdah_telemetry::context::TraceParent;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// The client of a request: the connection's peer, or the client that a trusted proxy names.
pub struct Origin {
    /// The client's address; `unix:` for a unix socket.
    pub address: Rc<str>,
    /// Its port; empty if unknown.
    pub port: String,
    /// The scheme of the client's URL.
    pub scheme: Scheme,
    /// Whether the peer is a trusted proxy.
    pub is_trusted: bool,
    /// When its first byte came.
    pub since: Instant,
    id: Cell<Option<u128>>,
    /// The id that the request has in its header, if it was assigned.
    pub assigned_id: Option<HeaderValue>,
    /// The trace that it belongs to: its `traceparent` is valid.
    pub trace_parent: Option<TraceParent>,
    /// The headers that howdah has set for servers behind it.
    pub assigned_headers: AssignedHeaders,
}

/// A request, on its way through the router. Arguments are parsed at their first use.
pub struct Subject<'a> {
    /// The head, as it came.
    pub parts: &'a Parts,
    /// The connection.
    pub peer: &'a Peer,
    /// The client.
    pub origin: &'a Origin,
    /// The host, in lower case, without the port.
    pub host: &'a str,
    /// The path, percent-decoded, without dot segments and doubled slashes.
    pub path: RequestPath<'a>,
    /// The user whose password was verified.
    pub user: Option<Rc<str>>,
    /// Whether a rewrite has changed the path.
    pub is_rewritten: bool,
    decoded_query: OnceCell<Vec<u8>>,
    arguments: OnceCell<Vec<Argument<'static>>>,
}

/// A request together with the head of its response.
pub struct Answered<'a> {
    subject: &'a Subject<'a>,
    status: StatusCode,
    headers: &'a HeaderMap,
    framing: Option<&'a dyn Fn() -> ResponseFraming>,
}

/// The headers that hyper writes, as far as the response does not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseFraming {
    /// `Content-Length`.
    pub content_length: Option<u64>,
    /// `Connection`.
    pub connection: Option<&'static str>,
    /// `Transfer-Encoding`.
    pub transfer_encoding: Option<&'static str>,
    /// Whether there is a `Date`.
    pub has_date: bool,
}

// === impl Origin ===

impl Origin {
    /// The client that sent this request over this connection, beginning at `since`.
    pub fn of(peer: &Peer, listener: Option<&Listener>, parts: &Parts, since: Instant) -> Origin {
        let mut origin = Origin {
            address: Rc::clone(&peer.remote_addr),
            port: peer.remote_port.clone(),
            scheme: peer.scheme(),
            is_trusted: false,
            since,
            id: Cell::new(None),
            assigned_id: None,
            trace_parent: None,
            assigned_headers: AssignedHeaders::default(),
        };
        if let Some(forwarded) = listener.and_then(|listener| listener.forwarded.as_ref()) {
            let named = forwarded::read(forwarded, end_of(&peer.remote_addr, &peer.remote_port), &parts.headers);
            if let Some(address) = named.address {
                origin.address = address.to_string().into();
                origin.port = String::new();
            }
            origin.scheme = named.scheme.unwrap_or(origin.scheme);
            origin.is_trusted = named.is_trusted;
        }
        origin
    }

    /// The request's random number, drawn at its first use.
    fn id(&self) -> u128 {
        let id = self.id.get().unwrap_or_else(|| {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).expect("the kernel always has random bytes");
            u128::from_ne_bytes(bytes)
        });
        self.id.set(Some(id));
        id
    }
}

// === impl Subject ===

impl<'a> Subject<'a> {
    /// The request, with its validated host and its normalised path.
    pub fn new(parts: &'a Parts, peer: &'a Peer, origin: &'a Origin, host: &'a str, path: RequestPath<'a>) -> Self {
        Self {
            parts,
            peer,
            origin,
            host,
            path,
            user: None,
            is_rewritten: false,
            decoded_query: OnceCell::new(),
            arguments: OnceCell::new(),
        }
    }

    /// The request with the path that a rewrite makes. As in NGINX Unit, the query of the request stays, and one of the
    /// rewrite is dropped.
    ///
    /// # Errors
    /// See [`BadRewrite`].
    pub fn rewritten(&self, rewrite: &Template) -> Result<Subject<'a>, BadRewrite> {
        let path = rewrite::path(rewrite, self, self.path.bytes())?;
        let subject = Self::new(self.parts, self.peer, self.origin, self.host, path);
        Ok(Self { is_rewritten: true, user: self.user.clone(), ..subject })
    }

    /// Forgets the parts of the query, which take up to 28 times its memory: the request may wait for long.
    pub fn forget_query(&mut self) {
        self.decoded_query.take();
        self.arguments.take();
    }

    /// The request with the head of its response.
    pub fn answered(&'a self, status: StatusCode, headers: &'a HeaderMap) -> Answered<'a> {
        Answered { subject: self, status, headers, framing: None }
    }

    /// The query as it came.
    pub fn raw_query(&self) -> &'a str {
        self.parts.uri.query().unwrap_or_default()
    }

    /// The path and the query, encoded: as they came, or as a rewrite made them.
    pub fn target(&self) -> Cow<'a, str> {
        match self.is_rewritten {
            false => Cow::Borrowed(self.parts.uri.path_and_query().map_or("*", |target| target.as_str())),
            true => Cow::Owned(target::encode(self.path.bytes(), self.raw_query())),
        }
    }
}

impl RequestView for Subject<'_> {
    fn method(&self) -> &str {
        self.parts.method.as_str()
    }

    fn scheme(&self) -> Scheme {
        self.origin.scheme
    }

    fn host(&self) -> &str {
        self.host
    }

    fn uri(&self) -> &str {
        self.path.text()
    }

    fn query(&self) -> &[u8] {
        self.decoded_query.get_or_init(|| config::decode_query(self.raw_query()).into_owned())
    }

    fn arguments(&self) -> &[Argument<'_>] {
        self.arguments.get_or_init(|| {
            let owned = |part: Cow<'_, [u8]>| Cow::Owned(part.into_owned());
            let arguments = config::parse_arguments(self.raw_query()).into_iter();
            arguments.map(|argument| Argument { name: owned(argument.name), value: owned(argument.value) }).collect()
        })
    }

    fn source(&self) -> config::Peer {
        end_of(&self.origin.address, &self.origin.port)
    }

    fn destination(&self) -> config::Peer {
        end_of(&self.peer.server_addr, &self.peer.server_port)
    }

    fn for_each_header(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        self.parts.headers.get_all(name).iter().for_each(|value| visit(value.as_bytes()));
    }
}

impl Variables for Subject<'_> {
    fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool {
        let before = out.len();
        let mut first = None;
        let mut keep = |value: &[u8]| {
            first.get_or_insert_with(|| String::from_utf8_lossy(value).into_owned());
        };
        match variable {
            TemplateVariable::Host => out.push_str(self.host),
            TemplateVariable::Uri => out.push_str(self.path.text()),
            TemplateVariable::Method => out.push_str(self.method()),
            TemplateVariable::RemoteAddr => out.push_str(&self.origin.address),
            TemplateVariable::RemoteUser => out.push_str(self.user.as_deref().unwrap_or_default()),
            // As CGI's REQUEST_URI: also of a target that is a whole URL.
            TemplateVariable::RequestUri => {
                out.push_str(self.parts.uri.path_and_query().map_or("*", |target| target.as_str()))
            }
            TemplateVariable::RequestId => match self.origin.assigned_id.as_ref().and_then(|id| id.to_str().ok()) {
                Some(id) => out.push_str(id),
                None => drop(write!(out, "{:032x}", self.origin.id())),
            },
            TemplateVariable::TraceId => {
                out.push_str(&self.origin.trace_parent.map(|trace_parent| trace_parent.trace_id()).unwrap_or_default());
            }
            TemplateVariable::Application => out.push_str(&LogContext::application_name().unwrap_or_default()),
            TemplateVariable::TimeIso8601 => out.push_str(&local_time::iso8601()),
            TemplateVariable::RequestTime => drop(write!(out, "{:.3}", self.origin.since.elapsed().as_secs_f64())),
            TemplateVariable::TimeLocal => out.push_str(&local_time::now()),
            TemplateVariable::RequestLine => {
                let Parts { method, uri, version, .. } = self.parts;
                let _ = write!(out, "{method} {uri} {version:?}");
            }
            TemplateVariable::Argument(name) => {
                let last = self.arguments().iter().rfind(|argument| *argument.name == *name.as_bytes());
                last.into_iter().for_each(|argument| keep(&argument.value));
            }
            TemplateVariable::Cookie(name) => self.for_each_cookie(name.as_bytes(), &mut keep),
            TemplateVariable::Header(name) => self.for_each_header(name, &mut keep),
            // Unknown before the response.
            TemplateVariable::Status | TemplateVariable::BodyBytesSent | TemplateVariable::ResponseHeader(_) => {}
        }
        // A header, a cookie or an argument may be present and empty.
        out.push_str(first.as_deref().unwrap_or_default());
        first.is_some() || out.len() > before
    }
}

// === impl Answered ===

impl<'a> Answered<'a> {
    /// The same, with the headers that hyper writes: they are determined when a template needs one of them.
    #[must_use]
    pub fn framed(self, framing: &'a dyn Fn() -> ResponseFraming) -> Self {
        Self { framing: Some(framing), ..self }
    }

    fn write_header(&self, name: &str, out: &mut String) -> bool {
        if let Some(value) = self.headers.get(name) {
            out.push_str(&String::from_utf8_lossy(value.as_bytes()));
            return true;
        }
        let framing = self.framing.map(|framing| framing()).unwrap_or_default();
        let text = match name {
            "content-length" => framing.content_length.map(|length| Cow::Owned(length.to_string())),
            "connection" => framing.connection.map(Cow::Borrowed),
            "transfer-encoding" => framing.transfer_encoding.map(Cow::Borrowed),
            "date" if framing.has_date => Some(Cow::Owned(httpdate::fmt_http_date(SystemTime::now()))),
            _ => None,
        };
        out.push_str(text.as_deref().unwrap_or_default());
        text.is_some()
    }
}

impl Variables for Answered<'_> {
    fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool {
        match variable {
            TemplateVariable::Status => write!(out, "{}", self.status.as_u16()).is_ok(),
            TemplateVariable::ResponseHeader(name) => self.write_header(name, out),
            _ => self.subject.write(variable, out),
        }
    }
}

/// The end of a connection, from its CGI variables. An address that is not an IP address is a unix socket.
fn end_of(address: &str, port: &str) -> config::Peer {
    match address.parse::<IpAddr>() {
        Ok(ip) => config::Peer::Ip(SocketAddr::new(ip, port.parse().unwrap_or_default())),
        Err(_) => config::Peer::Unix,
    }
}
