//! The configuration language: NGINX Unit's JSON, parsed into types in which a wrong configuration cannot be written down.
//!
//! [`Configuration::parse`] reads a text once and answers with a [`Configuration`] or with the first [`Error`].
//! Whoever holds a `Configuration` need not check it: names in a `pass` exist, paths are absolute, numbers are in
//! range, routes do not lead in a circle. What only the machine can tell (does this folder exist? this user?) is not
//! checked here: the crate does no I/O.
//!
//! Nothing is ignored in silence. An option that is unknown, or that NGINX Unit has and howdah does not have yet, is
//! an error that names it.
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
pub mod answer;
mod application;
mod condition;
mod document;
mod document_path;
mod error;
pub mod etag;
mod json;
mod listener;
mod node;
mod pass;
mod pattern;
mod percent;
mod php;
mod print;
mod routes;
mod schema;
mod scope;
mod settings;
mod share;
mod target;
mod template;
mod tls;
mod tls_policy;

use std::collections::BTreeMap;

pub use access_log::AccessLog;
pub use action::Action;
pub use address::Address;
pub use answer::Refusal;
pub use application::Application;
pub use condition::{Condition, RequestView};
pub use document::Document;
pub use document_path::DocumentPath;
pub use error::{Error, Location};
pub use listener::Listener;
pub use pass::Pass;
pub use pattern::{Pattern, Patterns};
pub use php::{PhpOptions, PhpVersion};
pub use routes::{Route, Routes};
pub use schema::SCHEMA;
pub use scope::Context;
pub use settings::{Http, Settings};
pub use share::Share;
pub use target::{Target, Targets};
pub use template::Template;
pub use tls::{TicketKey, Tickets, Tls, TlsSession};
pub use tls_policy::{CipherSuite, KeyExchangeGroup, TlsPolicy, TlsVersions};

use node::{Node, Options};
use pass::{Destinations, RouteNames};

const OPTIONS: Options =
    Options { known: &["listeners", "routes", "applications", "settings", "access_log"], not_yet: &["upstreams"] };

/// A whole configuration, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// Where requests come in, in the order of the text. No two have the same address.
    pub listeners: Vec<Listener>,
    /// What happens to a request that a listener or a step passes to `routes`.
    pub routes: Routes,
    /// The PHP applications by name.
    pub applications: BTreeMap<String, Application>,
    /// Limits and time-outs that hold for every listener.
    pub settings: Settings,
    /// Where each request is logged; `None` is nowhere.
    pub access_log: Option<AccessLog>,
}

impl Configuration {
    /// Reads a configuration from JSON text, in which `//` and `/* */` comments and a byte-order mark are allowed.
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

    /// Reads a document.
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

    fn read(value: &json::Value, context: Context<'_>) -> Result<Self, Error> {
        let root = Node::root(value);
        if root.is_dump_of_units_api() {
            return Err(root
                .error(r#"this is everything that NGINX Unit's control API holds; give only the value of "config""#));
        }
        let object = root.object(&OPTIONS)?;

        let applications = object.read("applications", application::read_all)?.unwrap_or_default();
        let route_names = object.read("routes", RouteNames::read)?.unwrap_or_default();
        let destinations = Destinations { applications: &applications, routes: &route_names };
        let scope = scope::Scope { context };
        let listeners = object.read("listeners", |node| listener::read_all(node, &destinations, &scope))?;
        let routes = object.read("routes", |node| Routes::read(node, &destinations))?;

        Ok(Self {
            listeners: listeners.unwrap_or_default(),
            routes: routes.unwrap_or_default(),
            settings: object.read("settings", Settings::read)?.unwrap_or_default(),
            access_log: object.read("access_log", AccessLog::read)?,
            applications,
        })
    }
}

#[cfg(test)]
mod tests;
