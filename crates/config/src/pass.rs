//! `pass`: the name of where a request goes next. A pass that exists leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::application::Application;
use crate::error::{Error, did_you_mean, quoted};
use crate::node::Node;
use crate::percent;
use crate::target::Targets;

/// Where a request goes next. What it names is in the [`Configuration`](crate::Configuration).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The steps of the route with this name: `routes`, `routes/NAME`.
    Routes(Option<String>),
    /// An application: `applications/NAME`, `applications/NAME/TARGET`.
    Application {
        /// A key of [`Configuration::applications`](crate::Configuration::applications).
        name: String,
        /// One of its targets; `None` if and only if it has no named ones.
        target: Option<String>,
    },
}

/// What a `pass` may name.
pub(crate) struct Destinations<'a> {
    pub applications: &'a BTreeMap<String, Application>,
    pub routes: &'a RouteNames,
}

/// The names of the routes, known before the routes are read, since their steps may name each other.
#[derive(Default)]
pub(crate) enum RouteNames {
    #[default]
    None,
    /// `routes` is one array.
    Unnamed,
    Named(BTreeSet<String>),
}

// === impl Pass ===

impl Pass {
    pub(crate) fn read(node: &Node<'_>, destinations: &Destinations<'_>) -> Result<Self, Error> {
        let text = node.nonempty_string()?;
        parse(&text, destinations).map_err(|problem| node.error(format_args!("{} {problem}", quoted(&text))))
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = match self {
            Self::Routes(name) => ["routes", name.as_deref().unwrap_or_default(), ""],
            Self::Application { name, target } => ["applications", name, target.as_deref().unwrap_or_default()],
        };
        f.write_str(segments[0])?;
        for segment in segments[1..].iter().filter(|segment| !segment.is_empty()) {
            write!(f, "/{}", escape(segment))?;
        }
        Ok(())
    }
}

/// The pass, or what is wrong with the text, said of the text.
fn parse(text: &str, destinations: &Destinations<'_>) -> Result<Pass, String> {
    if text.contains('$') {
        return Err(r#"has a variable, which howdah does not support in "pass" yet; write a fixed name"#.into());
    }
    let segments: Vec<String> = text.split('/').map(percent::decode).collect::<Result<_, _>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments[..] {
        ["routes"] => destinations.routes.find(None),
        ["routes", name] if !name.is_empty() => destinations.routes.find(Some(name)),
        ["applications", name] if !name.is_empty() => destinations.application(name, None),
        ["applications", name, target] if !name.is_empty() && !target.is_empty() => {
            destinations.application(name, Some(target))
        }
        ["upstreams", ..] => Err("is an upstream, which howdah does not support yet".into()),
        [name] if destinations.applications.contains_key(name) => {
            Err(format!("leads nowhere; write {}", quoted(&format!("applications/{text}"))))
        }
        _ => Err(r#"leads nowhere; write "routes", "routes/NAME", "applications/NAME" or "applications/NAME/TARGET" (a slash in a name is %2F)"#.into()),
    }
}

/// A name as one segment of a pass.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F").replace('$', "%24")
}

// === impl Destinations ===

impl Destinations<'_> {
    fn application(&self, name: &str, target: Option<&str>) -> Result<Pass, String> {
        let Some(application) = self.applications.get(name) else {
            let similar = did_you_mean(name, self.applications.keys().map(String::as_str));
            return Err(format!(
                "names an application that does not exist{}",
                or(similar, "; add it to \"applications\"")
            ));
        };
        match (&application.targets, target) {
            (Targets::Single(_), Some(_)) => {
                Err("names a target, but the application has no \"targets\"; leave the target out".into())
            }
            (Targets::Named(targets), None) => {
                // The first one by name is as good an example as any.
                let example = targets.keys().next().map(|target| escape(target)).unwrap_or_default();
                let example = format!("applications/{}/{example}", escape(name));
                Err(format!("names no target, but the application has \"targets\"; write {}", quoted(&example)))
            }
            (Targets::Named(targets), Some(target)) if !targets.contains_key(target) => {
                let similar = did_you_mean(target, targets.keys().map(String::as_str));
                Err(format!(
                    "names a target that does not exist{}",
                    or(similar, "; add it to the application's \"targets\"")
                ))
            }
            _ => Ok(Pass::Application { name: name.to_owned(), target: target.map(str::to_owned) }),
        }
    }
}

// === impl RouteNames ===

impl RouteNames {
    pub fn read(node: &Node<'_>) -> Result<Self, Error> {
        if node.is_array() {
            return Ok(Self::Unnamed);
        }
        if !node.is_object() {
            return Err(node.expected("an array of steps, or an object of named arrays"));
        }
        Ok(Self::Named(node.named()?.map(|(name, _)| name.to_owned()).collect()))
    }

    fn find(&self, name: Option<&str>) -> Result<Pass, String> {
        match (self, name) {
            (Self::Unnamed, None) => Ok(Pass::Routes(None)),
            (Self::Named(names), Some(name)) if names.contains(name) => Ok(Pass::Routes(Some(name.to_owned()))),
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

    #[test]
    fn a_pass_names_what_exists() {
        let named = r#""routes": {"main": [], "x/y": []},"#;
        let application = |name: &str, target: Option<&str>| Pass::Application {
            name: name.to_owned(),
            target: target.map(str::to_owned),
        };
        let cases = [
            (r#""routes": [],"#, "routes", Pass::Routes(None)),
            (named, "routes/main", Pass::Routes(Some("main".into()))),
            (named, "routes/x%2Fy", Pass::Routes(Some("x/y".into()))),
            ("", "applications/shop", application("shop", None)),
            ("", "applications/a%2Fb%25%24/front", application("a/b%$", Some("front"))),
            ("", "applications/a%2Fb%25%24/x%2Fy", application("a/b%$", Some("x/y"))),
        ];
        for (routes, pass, expected) in cases {
            assert_eq!(expected.to_string(), pass);
            assert_eq!(parse(routes, pass), Ok(expected), "{pass}");
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
            ("", "applications/a%2fb%25%24", "write \"applications/a%2Fb%25%24/front\""),
            ("", "applications/a%2fb%25%24/fron", "names a target that does not exist; did you mean \"front\"?"),
            ("", "applications/shop/front/x", "leads nowhere; write"),
            ("", "applications//front", "leads nowhere; write"),
            ("", "applications/%zz", "has a \"%\" without two hexadecimal digits"),
            ("", "shop", "leads nowhere; write \"applications/shop\""),
            ("", "upstreams/x", "is an upstream, which howdah does not support yet"),
            ("", "applications/$host", "has a variable, which howdah does not support in \"pass\" yet"),
            ("", "", "listeners/*:80/pass: the string is empty"),
        ];
        for (routes, pass, expected) in cases {
            let error = parse(routes, pass).expect_err(pass);
            assert!(error.starts_with("listeners/*:80/pass: ") && error.contains(expected), "{pass}: {error}");
        }
    }
}
