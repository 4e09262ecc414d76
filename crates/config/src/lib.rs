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

mod address;
mod application;
mod configuration;
mod document;
mod error;
mod json;
mod listener;
mod matching;
mod read;
mod routing;
mod schema;
mod settings;
mod template;
mod tls;

pub use address::{Address, Endpoint};
pub use application::Application;
pub use application::isolation::{Automount, Cgroup, CgroupBase, IdRange, Isolation, Namespaces};
pub use application::limits::Limits;
pub use application::php::{PhpOptions, PhpVersion};
pub use application::processes::Processes;
pub use application::reload::Reload;
pub use application::retry::Retry;
pub use application::slow_log::SlowLog;
pub use application::target::{Target, Targets};
pub use application::warm_up::WarmUp;
pub use configuration::Configuration;
pub use document::answer::Refusal;
pub use document::path::DocumentPath;
pub use document::{Document, answer, etag};
pub use error::{Error, Location};
pub use listener::Listener;
pub use listener::forwarded::Forwarded;
pub use matching::address_pattern::AddressPatterns;
pub use matching::condition::Condition;
pub use matching::pattern::Patterns;
pub use matching::predicate::Predicate;
pub use matching::request::{Argument, Peer, RequestView, Scheme, cookies, decode_query, parse_arguments};
pub use read::destination::Destination;
pub use read::scope::Context;
pub use routing::action::{Action, ActionKind, RedirectTarget};
pub use routing::pass::Pass;
pub use routing::response_headers::HeaderChange;
pub use routing::routes::{Route, Routes};
pub use routing::share::Share;
pub use routing::step::RouteStep;
pub use routing::upstream::{Upstream, UpstreamServer};
pub use schema::SCHEMA;
pub use settings::Settings;
pub use settings::access_log::{AccessLog, LogDestination, LogFormat};
pub use settings::compression::{Compression, Compressor, Encoding};
pub use settings::http::Http;
pub use settings::mime_types::MimeTypes;
pub use settings::telemetry::{Telemetry, TelemetryProtocol};
pub use template::path::PathTemplate;
pub use template::text::{Template, TemplatePart};
pub use template::variable::{TemplateVariable, Variables};
pub use tls::policy::{CipherSuite, KeyExchangeGroup, TlsPolicy, TlsVersions};
pub use tls::{TicketKey, Tickets, Tls, TlsSession};
