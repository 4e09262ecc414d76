//! The configuration language: NGINX Unit's JSON, parsed into types in which a wrong configuration cannot be written down.
//!
//! [`Configuration::parse`] reads a text once and answers with a [`Configuration`] or with the first [`Error`].
//! Whoever holds a `Configuration` need not check it: names in a `pass` exist, paths are absolute, numbers are in
//! range, routes do not lead in a circle. What only the machine can tell (does this folder exist? this user?) is not
//! checked here: the crate does no I/O.
//!
//! Nothing is ignored in silence. An option that is unknown, or that NGINX Unit has and howdah does not, is an error
//! that names it.
//!
//! How a text travels: `json` makes values of it (comments, duplicate keys, limits), `node` walks the values and
//! knows the path of each for errors, and one module for each subject reads its part from nodes.
//!
//! How it is changed: a [`Document`] is the configuration as it was written, without its comments. An edit by
//! [`DocumentPath`] makes another document, which is read as a `Configuration`; [`answer`] says in NGINX Unit's words
//! what came of it. [`SCHEMA`] describes the language to editors and makes the tables of docs/configuration.md.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access_log;
mod action;
mod address;
mod address_pattern;
pub mod answer;
mod application;
mod circles;
mod compression;
mod condition;
mod document;
mod document_path;
mod error;
pub mod etag;
mod fields;
mod forwarded;
mod http;
mod isolation;
mod json;
mod limits;
mod listener;
mod mime_types;
mod node;
mod pass;
mod path_template;
mod pattern;
mod pcre;
mod percent;
mod php;
mod predicate;
mod print;
mod processes;
mod regular_expression;
mod reload;
mod request;
mod response_headers;
mod retry;
mod route_index;
mod routes;
mod schema;
mod scope;
mod secrets;
mod settings;
mod share;
mod size;
mod slow_log;
mod target;
mod telemetry;
mod template;
mod tls;
mod tls_policy;
mod upstream;
mod variable;
mod warm_up;

use std::borrow::Cow;
use std::collections::BTreeMap;

pub use access_log::{AccessLog, LogDestination, LogFormat};
pub use action::{Action, ActionKind, RedirectTarget};
pub use address::{Address, Endpoint};
pub use address_pattern::AddressPatterns;
pub use answer::Refusal;
pub use application::Application;
pub use compression::{Compression, Compressor, Encoding};
pub use condition::Condition;
pub use document::Document;
pub use document_path::DocumentPath;
pub use error::{Error, Location};
pub use forwarded::Forwarded;
pub use http::Http;
pub use isolation::{Automount, Cgroup, CgroupBase, IdRange, Isolation, Namespaces};
pub use limits::Limits;
pub use listener::Listener;
pub use mime_types::MimeTypes;
pub use pass::{Destination, Pass};
pub use path_template::PathTemplate;
pub use pattern::Patterns;
pub use php::{PhpOptions, PhpVersion};
pub use predicate::Predicate;
pub use processes::Processes;
pub use reload::Reload;
pub use request::{Argument, Peer, Request, Scheme, cookies, decode_query, parse_arguments};
pub use response_headers::HeaderChange;
pub use retry::Retry;
pub use routes::{Route, Routes, Step};
pub use schema::SCHEMA;
pub use scope::Context;
pub use settings::Settings;
pub use share::Share;
pub use slow_log::SlowLog;
pub use target::{Target, Targets};
pub use telemetry::{Telemetry, TelemetryProtocol};
pub use template::{Template, TemplatePart};
pub use tls::{TicketKey, Tickets, Tls, TlsSession};
pub use tls_policy::{CipherSuite, KeyExchangeGroup, TlsPolicy, TlsVersions};
pub use upstream::{Upstream, UpstreamServer};
pub use variable::{Variable, Variables};
pub use warm_up::WarmUp;

use json::Value;
use node::{Node, Options};
use pass::Names;
use scope::Scope;

pub(crate) const OPTIONS: Options =
    Options { known: &["listeners", "routes", "applications", "upstreams", "settings", "access_log"], refused: &[] };

/// A whole configuration, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// Where requests come in, in the order of the text. No two have the same address.
    pub listeners: Vec<Listener>,
    /// What happens to a request that a listener or a step passes to `routes`.
    pub routes: Routes,
    /// The PHP applications by name.
    pub applications: BTreeMap<String, Application>,
    /// Groups of servers by name.
    pub upstreams: BTreeMap<String, Upstream>,
    /// What holds for every listener.
    pub settings: Settings,
    /// How requests are logged; `None` is not at all.
    pub access_log: Option<AccessLog>,
    /// What is right and still worth knowing, each with its path.
    pub warnings: Vec<String>,
    /// What a pass with variables may name.
    names: Names,
}

impl Configuration {
    /// Reads a configuration from JSON text, in which `//` and `/* */` comments and a byte-order mark are allowed. Any
    /// name of a certificate will do.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong. [`Error::location`] is set if the text is not JSON; otherwise
    /// [`Error::detail`] begins with the path of the option in the configuration.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_in(text, Context::default())
    }

    /// As [`Configuration::parse`], for a context in which the names of the certificates are known.
    ///
    /// # Errors
    ///
    /// As [`Configuration::parse`].
    pub fn parse_in(text: &str, context: Context<'_>) -> Result<Self, Error> {
        Self::read(&json::parse(text)?, context)
    }

    /// Reads a document. Any name of a certificate will do.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong; [`Error::detail`] begins with the path of the option.
    pub fn of(document: &Document) -> Result<Self, Error> {
        Self::of_in(document, Context::default())
    }

    /// As [`Configuration::of`], for a context in which the names of the certificates are known.
    ///
    /// # Errors
    ///
    /// As [`Configuration::of`].
    pub fn of_in(document: &Document, context: Context<'_>) -> Result<Self, Error> {
        Self::read(document.root(), context)
    }

    fn read(value: &Value, context: Context<'_>) -> Result<Self, Error> {
        let root = Node::root(value);
        if root.is_dump_of_units_api() {
            return Err(root
                .error(r#"this is everything that NGINX Unit's control API holds; give only the value of "config""#));
        }
        let object = root.object(&OPTIONS)?;
        let mut scope = Scope::new(context);
        scope.names = Names::read(&object)?;

        let configuration = Self {
            // The names in a pass are known to exist; what they name is read first, so that its errors come first.
            applications: object.read("applications", application::read_all)?.unwrap_or_default(),
            upstreams: object.read("upstreams", upstream::read_all)?.unwrap_or_default(),
            listeners: object.read("listeners", |node| listener::read_all(node, &scope))?.unwrap_or_default(),
            routes: object.read("routes", |node| Routes::read(node, &scope))?.unwrap_or_default(),
            settings: object.read("settings", |node| Settings::read(node, &scope))?.unwrap_or_default(),
            access_log: object.read("access_log", AccessLog::read)?,
            names: std::mem::take(&mut scope.names),
            warnings: Vec::new(),
        };
        Ok(Self { warnings: scope.into_warnings(), ..configuration })
    }

    /// Where a pass leads for one request: for one without variables it is only looked at, otherwise `None` if there
    /// is nothing of that name.
    pub fn destination<'p, V: Variables + ?Sized>(
        &self,
        pass: &'p Pass,
        variables: &V,
    ) -> Option<Cow<'p, Destination>> {
        pass.resolve(&self.names, variables)
    }
}

#[cfg(test)]
mod test_request;
#[cfg(test)]
mod tests;
