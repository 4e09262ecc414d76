//! `pass`: where a request goes next.
//!
//! A pass without variables leads somewhere: what it names exists. One with variables is looked up for each request.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::error::{Error, did_you_mean, quoted};
use crate::read::node::{Node, Object};
use crate::read::percent;
use crate::read::scope::Scope;
use crate::template::text::{self, Template};
use crate::template::variable::Variables;

/// What a pass may begin with.
const KINDS: [&str; 4] = ["applications/", "routes/", "upstreams/", "routes"];

/// Where a request goes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// To the same destination for all requests. What it names is in the [`Configuration`](crate::Configuration).
    To(Destination),
    /// To what the text says for a request: see [`Configuration::destination`](crate::Configuration::destination).
    Computed(Template),
}

/// What a pass names.
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

/// What a pass may name. Known before anything else is read, since steps of routes may name each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// The names of the applications, and those of their targets in the order of the text.
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

/// What a text names, and what is to be said about it.
struct Found {
    destination: Destination,
    warning: Option<String>,
}

// === impl Pass ===

impl Pass {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let text = node.nonempty_string()?;
        let problem = |problem: String| node.error(format_args!("{} {problem}", quoted(&text)));
        let template = text::parse(&text).map_err(problem)?;
        let Some(constant) = template.as_constant() else {
            let beginning = text.split('$').next().unwrap_or_default();
            if !KINDS.iter().any(|kind| kind.starts_with(beginning) || beginning.starts_with(kind)) {
                return Err(problem(leads_nowhere()));
            }
            return Ok(Self::Computed(template));
        };
        let found = scope.names.find(constant).map_err(problem)?;
        if let Some(warning) = found.warning {
            scope.warn(node, warning);
        }
        Ok(Self::To(found.destination))
    }

    /// The destination for one request; `None` if there is none of this name.
    pub(crate) fn resolve<V: Variables + ?Sized>(&self, names: &Names, variables: &V) -> Option<Cow<'_, Destination>> {
        match self {
            Self::To(destination) => Some(Cow::Borrowed(destination)),
            Self::Computed(template) => {
                names.find(&template.render(variables)).ok().map(|found| Cow::Owned(found.destination))
            }
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(destination) => destination.fmt(f),
            Self::Computed(template) => template.fmt(f),
        }
    }
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

/// A name as one segment of a pass.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F").replace('$', "%24")
}

fn leads_nowhere() -> String {
    "leads nowhere; write \"routes\", \"routes/NAME\", \"applications/NAME\", \"applications/NAME/TARGET\" or \
     \"upstreams/NAME\" (a slash in a name is %2F)"
        .into()
}

// === impl Names ===

impl Names {
    /// Of the whole configuration. What is no name is an error where it is read.
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

    /// The destination, or what is wrong with the text, said of the text.
    fn find(&self, text: &str) -> Result<Found, String> {
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

    fn application(&self, name: &str, target: Option<&str>) -> Result<Found, String> {
        let Some(targets) = self.applications.get(name) else {
            let similar = did_you_mean(name, self.applications.keys().map(String::as_str));
            let otherwise = or(similar, "; add it to \"applications\"");
            return Err(format!("names an application that does not exist{otherwise}"));
        };
        let found = |target: Option<&String>, warning| {
            let destination = Destination::Application { name: name.to_owned(), target: target.cloned() };
            Ok(Found { destination, warning })
        };
        match (targets.first(), target) {
            (None, None) => found(None, None),
            (None, Some(_)) => {
                Err("names a target, but the application has no \"targets\"; leave the target out".into())
            }
            (Some(first), None) => {
                let example = quoted(&format!("applications/{}/{}", escape(name), escape(first)));
                found(Some(first), Some(format!("no target is named, so that the first one is used; write {example}")))
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

    fn upstream(&self, name: &str) -> Result<Found, String> {
        if self.upstreams.contains(name) {
            return Ok(Found::plain(Destination::Upstream(name.to_owned())));
        }
        let similar = did_you_mean(name, self.upstreams.iter().map(String::as_str));
        Err(format!("names an upstream that does not exist{}", or(similar, "; add it to \"upstreams\"")))
    }
}

// === impl Found ===

impl Found {
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

    fn find(&self, name: Option<&str>) -> Result<Found, String> {
        match (self, name) {
            (Self::Unnamed, None) => Ok(Found::plain(Destination::Routes(None))),
            (Self::Named(names), Some(name)) if names.contains(name) => {
                Ok(Found::plain(Destination::Routes(Some(name.to_owned()))))
            }
            (Self::None, _) => Err("leads nowhere, since there are no \"routes\"; add them".into()),
            (Self::Unnamed, Some(_)) => {
                Err("names a route, but \"routes\" is an array, without names; write \"routes\"".into())
            }
            (Self::Named(names), None) => {
                let example = names.first().map_or("NAME".to_owned(), |name| escape(name));
                let example = quoted(&format!("routes/{example}"));
                Err(format!("names no route, but \"routes\" is an object of named ones; write {example}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use crate::matching::test_request::TestRequest;

    const APPLICATIONS: &str = r#""applications": {
        "shop": {"type": "php", "root": "/srv/shop"},
        "a/b%$": {"type": "php", "targets": {"front": {"root": "/srv"}, "x/y": {"root": "/srv"}}}
    }"#;

    fn parse(routes: &str, pass: &str) -> Result<Pass, String> {
        let text = format!(r#"{{"listeners": {{"*:80": {{"pass": "{pass}"}}}}, {routes} {APPLICATIONS}}}"#);
        Configuration::parse(&text)
            .map(|configuration| configuration.listeners[0].pass.clone())
            .map_err(|error| error.to_string())
    }

    fn application(name: &str, target: Option<&str>) -> Destination {
        Destination::Application { name: name.to_owned(), target: target.map(str::to_owned) }
    }

    #[test]
    fn a_pass_names_what_exists() {
        let named = r#""routes": {"main": [], "x/y": []},"#;
        let cases = [
            (r#""routes": [],"#, "routes", Destination::Routes(None)),
            (named, "routes/main", Destination::Routes(Some("main".into()))),
            (named, "routes/x%2Fy", Destination::Routes(Some("x/y".into()))),
            ("", "applications/shop", application("shop", None)),
            ("", "applications/a%2Fb%25%24/front", application("a/b%$", Some("front"))),
            ("", "applications/a%2Fb%25%24/x%2Fy", application("a/b%$", Some("x/y"))),
            (
                r#""upstreams": {"u": {"servers": {"127.0.0.1:1": {}}}},"#,
                "upstreams/u",
                Destination::Upstream("u".into()),
            ),
        ];
        for (routes, pass, expected) in cases {
            assert_eq!(expected.to_string(), pass);
            assert_eq!(parse(routes, pass), Ok(Pass::To(expected)), "{pass}");
        }
    }

    #[test]
    fn a_pass_that_leads_nowhere_is_refused_with_what_to_write() {
        let named = r#""routes": {"main": []},"#;
        let array = r#""routes": [],"#;
        let cases = [
            ("", "routes", "leads nowhere, since there are no \"routes\"; add them"),
            (array, "routes/main", "names a route, but \"routes\" is an array, without names; write \"routes\""),
            (named, "routes", "names no route, but \"routes\" is an object of named ones; write \"routes/main\""),
            (named, "routes/mian", "names a route that does not exist; did you mean \"main\"?"),
            (named, "routes/", "leads nowhere; write"),
            (named, "routes/main/x", "leads nowhere; write"),
            ("", "/routes", "leads nowhere; write"),
            ("", "applications/shp", "names an application that does not exist; did you mean \"shop\"?"),
            ("", "applications/other", "names an application that does not exist; add it to \"applications\""),
            ("", "applications/shop/front", "the application has no \"targets\"; leave the target out"),
            ("", "applications/a%2fb%25%24/fron", "names a target that does not exist; did you mean \"front\"?"),
            ("", "applications/shop/front/x", "leads nowhere; write"),
            ("", "applications//front", "leads nowhere; write"),
            ("", "applications/%zz", "has a \"%\" without two hexadecimal digits"),
            ("", "shop", "leads nowhere; write \"applications/shop\""),
            ("", "upstreams/x", "names an upstream that does not exist; add it to \"upstreams\""),
            ("", "upstreams/x/y", "leads nowhere; write"),
            ("", "applications/$url", "has no variable \"url\" to fill in; did you mean \"uri\"?"),
            ("", "application/$host", "leads nowhere; write \"routes\""),
            ("", "`routes/${host}`", "is a JavaScript template, which howdah does not run"),
            ("", "", "listeners/*:80/pass: the string is empty"),
        ];
        for (routes, pass, expected) in cases {
            let error = parse(routes, pass).expect_err(pass);
            assert!(error.starts_with("listeners/*:80/pass: ") && error.contains(expected), "{pass}: {error}");
        }
    }

    #[test]
    fn without_a_target_the_first_one_is_used_with_a_warning() {
        let text = format!(r#"{{"listeners": {{"*:80": {{"pass": "applications/a%2fb%25%24"}}}}, {APPLICATIONS}}}"#);
        let configuration = Configuration::parse(&text).expect("configuration");
        assert_eq!(configuration.listeners[0].pass, Pass::To(application("a/b%$", Some("front"))));
        let expected = "listeners/*:80/pass: no target is named, so that the first one is used; \
                        write \"applications/a%2Fb%25%24/front\"";
        assert_eq!(configuration.warnings, [expected]);
    }

    #[test]
    fn a_pass_with_variables_is_looked_up_for_each_request() {
        let routes =
            r#""routes": {"main": [], "GET_route": []}, "upstreams": {"/x": {"servers": {"127.0.0.1:1": {}}}},"#;
        let cases = [
            ("routes/$host", "main", "/", Some(Destination::Routes(Some("main".into())))),
            ("routes/$host", "none", "/", None),
            ("routes/$host", "", "/", None),
            ("routes/${method}_route", "", "/", Some(Destination::Routes(Some("GET_route".into())))),
            ("applications$uri", "", "/shop", Some(application("shop", None))),
            ("applications$uri", "", "/a%2Fb%25%24/x%2Fy", Some(application("a/b%$", Some("x/y")))),
            ("applications$uri", "", "/a%2Fb%25%24", Some(application("a/b%$", Some("front")))),
            ("applications$uri", "", "/shop/x/y", None),
            ("$host/main", "routes", "/", Some(Destination::Routes(Some("main".into())))),
            ("upstreams/%2F$host", "x", "/", Some(Destination::Upstream("/x".into()))),
        ];
        for (pass, host, uri, expected) in cases {
            let text = format!(r#"{{"listeners": {{"*:80": {{"pass": "{pass}"}}}}, {routes} {APPLICATIONS}}}"#);
            let configuration = Configuration::parse(&text).expect(pass);
            let request = TestRequest { host, uri, ..TestRequest::default() };
            let found = configuration.destination(&configuration.listeners[0].pass, &request);
            assert_eq!(found.map(Cow::into_owned), expected, "{pass}");
            assert_eq!(configuration.listeners[0].pass.to_string(), pass);
        }
    }
}
