//! The configuration language: NGINX Unit's JSON, parsed into types that cannot hold an invalid configuration.
//!
//! [`Configuration::parse`] reads a text once and returns a [`Configuration`] or the first [`Error`]. A `Configuration`
//! needs no further checks: the names in a `pass` exist, paths are absolute, numbers are in range, and routes do not
//! form a circle. The crate does no I/O; the supervisor checks what depends on the machine (whether a folder or a user
//! exists).
//!
//! Nothing is ignored silently. An unknown option, and an option of NGINX Unit that howdah does not have, is an error
//! that names the option.
//!
//! Reading goes through these folders, each of which imports only the ones below it:
//!
//! - `configuration` is the whole; `listener/`, `routing/`, `application/`, `settings/` and `tls/` are its parts. Each
//!   part has one module for each object of the language, which reads that object from a node.
//! - `matching/` (patterns and conditions) and `template/` (texts with variables) are shared by the parts.
//! - `read/` has the nodes: values with their paths, which begin every error.
//! - `json/` turns text into values: comments, duplicate keys, limits.
//!
//! Editing: a [`Document`] is the configuration as it was written, without its comments. An edit at a [`DocumentPath`]
//! makes another document, which is then read as a `Configuration`; [`answer`] is the control API's answer in NGINX
//! Unit's form. [`SCHEMA`] describes the language to editors; the tables of docs/configuration.md are generated from
//! it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod application;
mod configuration;
#[cfg(test)]
#[path = "../tests/support/cpu_clock.rs"]
mod cpu_clock;
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
pub use application::fastcgi::FastCgiApplication;
pub use application::fastcgi::limits::FastCgiLimits;
pub use application::fastcgi::target::FastCgiTarget;
pub use application::isolation::{Automount, Cgroup, CgroupBase, IdRange, Isolation, Namespaces};
pub use application::limits::Limits;
pub use application::php::PhpApplication;
pub use application::php::options::{PhpOptions, PhpVersion};
pub use application::php::processes::Processes;
pub use application::php::reload::Reload;
pub use application::php::retry::Retry;
pub use application::php::send_file::{SendFile, SentFile};
pub use application::php::slow_log::SlowLog;
pub use application::php::target::{ScriptTarget, Targets};
pub use application::php::warm_up::WarmUp;
pub use application::php::worker_mode::{MAX_CONCURRENCY, WorkerMode};
pub use application::php::worker_scripts::{MAX_WORKER_SCRIPTS, MatchedScript};
pub use application::process_settings::ProcessSettings;
pub use application::program::Program;
pub use application::program::command::{AddressVariable, ProgramCommand};
pub use application::program::http::HttpApplication;
pub use application::program::http::address::HttpAddress;
pub use application::program::roadrunner::{ContextCodec, Relay, RoadRunnerApplication};
pub use configuration::Configuration;
pub use document::answer::Refusal;
pub use document::path::DocumentPath;
pub use document::{Document, answer, etag};
pub use error::{Error, Location};
pub use listener::Listener;
pub use listener::fastcgi::FastCgiListener;
pub use listener::forwarded::Forwarded;
pub use listener::http3::Http3;
pub use listener::redirect::HttpsRedirect;
pub use listener::unix_socket::UnixSocketAccess;
pub use matching::address_pattern::AddressPatterns;
pub use matching::condition::Condition;
pub use matching::pattern::Patterns;
pub use matching::predicate::Predicate;
pub use matching::request::{Argument, Peer, RequestView, Scheme, cookies, decode_query, parse_arguments};
pub use read::destination::Destination;
pub use read::scope::{CertificateNames, Context};
pub use routing::action::{Action, ActionKind, RedirectTarget};
pub use routing::basic_auth::BasicAuth;
pub use routing::connection_limit::ConnectionLimit;
pub use routing::pass::Pass;
pub use routing::password_hash::{PasswordHash, PasswordScheme};
pub use routing::proxy::failures::FailureLimit;
pub use routing::proxy::health_check::HealthCheck;
pub use routing::proxy::settings::ProxySettings;
pub use routing::proxy::tls::ProxyTls;
pub use routing::proxy::upstream::{Upstream, UpstreamServer};
pub use routing::rate_limit::RateLimit;
pub use routing::response_headers::HeaderChange;
pub use routing::routes::{Route, Routes};
pub use routing::share::Share;
pub use routing::step::RouteStep;
pub use schema::SCHEMA;
pub use settings::Settings;
pub use settings::access_log::{AccessLog, LogFormat};
pub use settings::compression::{Compression, Compressor, Encoding};
pub use settings::error_pages::{ErrorPage, ErrorPages};
pub use settings::http::Http;
pub use settings::log_destination::{LogDaemon, LogDestination, Syslog, SyslogServer};
pub use settings::log_skip::LogSkip;
pub use settings::metrics::MetricsSettings;
pub use settings::mime_types::MimeTypes;
pub use settings::request_id::RequestIdSettings;
pub use settings::telemetry::{CollectorUrl, Telemetry, TelemetryProtocol};
pub use template::path::PathTemplate;
pub use template::text::{Template, TemplatePart};
pub use template::variable::{TemplateVariable, Variables};
pub use tls::acme::{
    Acme, AcmeAuthority, AcmeChallenge, AcmeIssuance, AcmeKey, DnsHook, ExternalAccount, OnDemand, is_domain_name,
};
pub use tls::clients::ClientCertificates;
pub use tls::conf_commands::{CipherSuite, KeyExchangeGroup, TlsPolicy, TlsVersions};
pub use tls::hsts::Hsts;
pub use tls::{TicketKey, Tickets, Tls, TlsSession};
