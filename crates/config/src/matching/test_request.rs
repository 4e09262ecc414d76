//! A request for tests.

use std::borrow::Cow;
use std::cell::Cell;

use crate::matching::request::{self, Argument, Peer, RequestView, Scheme};
use crate::template::variable::{TemplateVariable, Variables};

#[derive(Clone)]
pub(crate) struct TestRequest {
    pub method: &'static str,
    pub scheme: Scheme,
    pub host: &'static str,
    pub uri: &'static str,
    pub query: Cow<'static, [u8]>,
    pub arguments: Vec<Argument<'static>>,
    pub source: Peer,
    pub destination: Peer,
    pub headers: Vec<(String, String)>,
    /// How often the host or the URI was read.
    pub reads: Cell<usize>,
}

impl TestRequest {
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    pub fn with_cookies(self, cookies: &str) -> Self {
        self.with_header("cookie", cookies)
    }

    pub fn with_query(mut self, query: &'static str) -> Self {
        self.query = request::decode_query(query);
        self.arguments = request::parse_arguments(query);
        self
    }
}

impl Default for TestRequest {
    fn default() -> Self {
        Self {
            method: "GET",
            scheme: Scheme::Http,
            host: "example.com",
            uri: "/",
            query: Cow::Borrowed(b""),
            arguments: Vec::new(),
            source: Peer::Ip("192.0.2.1:4711".parse().expect("address")),
            destination: Peer::Ip("127.0.0.1:80".parse().expect("address")),
            headers: Vec::new(),
            reads: Cell::new(0),
        }
    }
}

impl Variables for TestRequest {
    fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool {
        let mut last = None;
        let mut keep = |value: &[u8]| last = Some(value.to_vec());
        match variable {
            TemplateVariable::Host => keep(self.host.as_bytes()),
            TemplateVariable::Uri => keep(self.uri.as_bytes()),
            TemplateVariable::Method => keep(self.method.as_bytes()),
            TemplateVariable::Header(name) => self.for_each_header(name, &mut keep),
            TemplateVariable::Cookie(name) => self.for_each_cookie(name.as_bytes(), &mut keep),
            TemplateVariable::Argument(name) => {
                let named = self.arguments.iter().filter(|argument| *argument.name == *name.as_bytes());
                named.for_each(|argument| keep(&argument.value));
            }
            _ => {}
        }
        out.push_str(&String::from_utf8_lossy(last.as_deref().unwrap_or_default()));
        last.is_some()
    }
}

impl RequestView for TestRequest {
    fn method(&self) -> &str {
        self.method
    }

    fn scheme(&self) -> Scheme {
        self.scheme
    }

    fn host(&self) -> &str {
        self.reads.set(self.reads.get() + 1);
        self.host
    }

    fn uri(&self) -> &str {
        self.reads.set(self.reads.get() + 1);
        self.uri
    }

    fn query(&self) -> &[u8] {
        &self.query
    }

    fn arguments(&self) -> &[Argument<'_>] {
        &self.arguments
    }

    fn source(&self) -> Peer {
        self.source
    }

    fn destination(&self) -> Peer {
        self.destination
    }

    fn for_each_header(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        self.headers.iter().filter(|(header, _)| header == name).for_each(|(_, value)| visit(value.as_bytes()));
    }
}
