//! The names to which a `pass` may lead: the routes, applications, targets and upstreams of one configuration.
//!
//! The names are collected before anything else is read, because the steps of routes may refer to each other. A name is
//! looked up for each `pass` of a listener or an action, and for a `pass` with variables once for each request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::error::{Error, did_you_mean, quoted};
use crate::read::node::{Node, Object};
use crate::read::percent;

/// A destination of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// The steps of the route with this name: `routes`, `routes/NAME`.
    Routes(Option<String>),
    /// An application: `applications/NAME`, `applications/NAME/TARGET`.
    Application {
        /// A key of [`Configuration::applications`](crate::Configuration::applications).
        name: String,
        /// One of its targets; `None` if and only if it has no named ones.
        target: Option<String>,
    },
    /// The servers of an upstream, a key of [`Configuration::upstreams`](crate::Configuration::upstreams):
    /// `upstreams/NAME`.
    Upstream(String),
}

/// All names to which a pass may lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassNames {
    /// The names of the applications with those of their targets, in the order of the text.
    applications: BTreeMap<String, Vec<String>>,
    routes: RouteNames,
    upstreams: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum RouteNames {
    #[default]
    None,
    /// `routes` is one array.
    Unnamed,
    Named(BTreeSet<String>),
}

/// The destination that a text names, with a warning if the text is incomplete.
pub(crate) struct FoundDestination {
    pub destination: Destination,
    pub warning: Option<String>,
}

// === impl Destination ===

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = match self {
            Self::Routes(name) => ["routes", name.as_deref().unwrap_or_default(), ""],
            Self::Application { name, target } => ["applications", name, target.as_deref().unwrap_or_default()],
            Self::Upstream(name) => ["upstreams", name, ""],
        };
        f.write_str(segments[0])?;
        for segment in segments[1..].iter().filter(|segment| !segment.is_empty()) {
            write!(f, "/{}", escape(segment))?;
        }
        Ok(())
    }
}

/// Escapes a name to be one segment of a pass.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F").replace('$', "%24")
}

pub(crate) fn leads_nowhere() -> String {
    "leads nowhere; write \"routes\", \"routes/NAME\", \"applications/NAME\", \"applications/NAME/TARGET\" or \
     \"upstreams/NAME\" (a slash in a name is %2F)"
        .into()
}

// === impl PassNames ===

impl PassNames {
    /// Collects the names of a whole configuration. Values of a wrong type are errors here already.
    pub fn read(configuration: &Object<'_>) -> Result<Self, Error> {
        let names = |node: &Node<'_>| Ok(node.named()?.map(|(name, _)| name.to_owned()).collect());
        let applications = configuration.read("applications", |node| {
            let targets = |node: &Node<'_>| match node.member("targets") {
                Some(targets) => targets.named().map(|named| named.map(|(name, _)| name.to_owned()).collect()),
                None => Ok(Vec::new()),
            };
            node.named()?.map(|(name, node)| Ok((name.to_owned(), targets(&node)?))).collect()
        })?;
        Ok(Self {
            applications: applications.unwrap_or_default(),
            routes: configuration.read("routes", RouteNames::read)?.unwrap_or_default(),
            upstreams: configuration.read("upstreams", names)?.unwrap_or_default(),
        })
    }

    /// Looks the text up. The error is what is wrong with the text, to follow the text in a message.
    pub fn find(&self, text: &str) -> Result<FoundDestination, String> {
        let segments: Vec<String> = text.split('/').map(percent::decode).collect::<Result<_, _>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["routes"] => self.routes.find(None),
            ["routes", name] if !name.is_empty() => self.routes.find(Some(name)),
            ["applications", name] if !name.is_empty() => self.application(name, None),
            ["applications", name, target] if !name.is_empty() && !target.is_empty() => {
                self.application(name, Some(target))
            }
            ["upstreams", name] if !name.is_empty() => self.upstream(name),
            [name] if self.applications.contains_key(name) => {
                Err(format!("leads nowhere; write {}", quoted(&format!("applications/{text}"))))
            }
            _ => Err(leads_nowhere()),
        }
    }

    fn application(&self, name: &str, target: Option<&str>) -> Result<FoundDestination, String> {
        let Some(targets) = self.applications.get(name) else {
            let similar = did_you_mean(name, self.applications.keys().map(String::as_str));
            let otherwise = or(similar, "; add it to \"applications\"");
            return Err(format!("names an application that does not exist{otherwise}"));
        };
        let found = |target: Option<&String>, warning| {
            let destination = Destination::Application { name: name.to_owned(), target: target.cloned() };
            Ok(FoundDestination { destination, warning })
        };
        match (targets.first(), target) {
            (None, None) => found(None, None),
            (None, Some(_)) => Err("names a target, but the application has no \"targets\"; remove the target".into()),
            (Some(first), None) => {
                let example = quoted(&format!("applications/{}/{}", escape(name), escape(first)));
                found(Some(first), Some(format!("no target is named, so the first one is used; write {example}")))
            }
            (Some(_), Some(target)) => match targets.iter().find(|name| *name == target) {
                Some(target) => found(Some(target), None),
                None => {
                    let similar = did_you_mean(target, targets.iter().map(String::as_str));
                    let otherwise = or(similar, "; add it to the application's \"targets\"");
                    Err(format!("names a target that does not exist{otherwise}"))
                }
            },
        }
    }

    fn upstream(&self, name: &str) -> Result<FoundDestination, String> {
        if self.upstreams.contains(name) {
            return Ok(FoundDestination::plain(Destination::Upstream(name.to_owned())));
        }
        let similar = did_you_mean(name, self.upstreams.iter().map(String::as_str));
        Err(format!("names an upstream that does not exist{}", or(similar, "; add it to \"upstreams\"")))
    }
}

// === impl FoundDestination ===

impl FoundDestination {
    fn plain(destination: Destination) -> Self {
        Self { destination, warning: None }
    }
}

// === impl RouteNames ===

impl RouteNames {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        if node.is_array() {
            return Ok(Self::Unnamed);
        }
        if !node.is_object() {
            return Err(node.expected("an array of steps, or an object of named arrays"));
        }
        Ok(Self::Named(node.named()?.map(|(name, _)| name.to_owned()).collect()))
    }

    fn find(&self, name: Option<&str>) -> Result<FoundDestination, String> {
        match (self, name) {
            (Self::Unnamed, None) => Ok(FoundDestination::plain(Destination::Routes(None))),
            (Self::Named(names), Some(name)) if names.contains(name) => {
                Ok(FoundDestination::plain(Destination::Routes(Some(name.to_owned()))))
            }
            (Self::None, _) => Err("leads nowhere, because there are no \"routes\"; add them".into()),
            (Self::Unnamed, Some(_)) => {
                Err("names a route, but \"routes\" is an array without names; write \"routes\"".into())
            }
            (Self::Named(names), None) => {
                let example = names.first().map_or("NAME".to_owned(), |name| escape(name));
                let example = quoted(&format!("routes/{example}"));
                Err(format!("names no route, but \"routes\" is an object of named routes; write {example}"))
            }
            (Self::Named(names), Some(name)) => {
                let similar = did_you_mean(name, names.iter().map(String::as_str));
                Err(format!("names a route that does not exist{}", or(similar, "; add it to \"routes\"")))
            }
        }
    }
}

fn or(suggestion: String, otherwise: &str) -> String {
    if suggestion.is_empty() { otherwise.to_owned() } else { suggestion }
}
