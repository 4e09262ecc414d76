//! `routes`: lists of steps. The first step that matches a request decides what is done with it.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::matching::request::RequestView;
use crate::read::node::Node;
use crate::read::scope::Scope;
use crate::routing::action::{self, Action};
use crate::routing::circles;
use crate::routing::route_index::RouteIndex;
use crate::routing::step::RouteStep;

/// All routes: one without a name, or several with names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes(RouteTable);

#[derive(Clone, Debug, Default, PartialEq)]
enum RouteTable {
    #[default]
    None,
    Unnamed(Route),
    Named(BTreeMap<String, Route>),
}

/// A route: a list of steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    steps: Vec<RouteStep>,
    index: RouteIndex,
}

// === impl Routes ===

impl Routes {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        if node.is_array() {
            let route = Route::read(node, scope)?;
            circles::reject(node, &BTreeMap::from([("", route.steps())]))?;
            return Ok(Self(RouteTable::Unnamed(route)));
        }
        let mut routes = BTreeMap::new();
        for (name, node) in node.named()? {
            routes.insert(name.to_owned(), Route::read(&node, scope)?);
        }
        circles::reject(node, &routes.iter().map(|(name, route)| (name.as_str(), route.steps())).collect())?;
        Ok(Self(RouteTable::Named(routes)))
    }

    /// The route with this name. It exists for every [`Destination`](crate::Destination).
    pub fn find(&self, name: Option<&str>) -> Option<&Route> {
        match (&self.0, name) {
            (RouteTable::Unnamed(route), None) => Some(route),
            (RouteTable::Named(routes), Some(name)) => routes.get(name),
            _ => None,
        }
    }

    /// All routes with their names.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &Route)> {
        let (unnamed, named) = match &self.0 {
            RouteTable::None => (None, None),
            RouteTable::Unnamed(route) => (Some((None, route)), None),
            RouteTable::Named(routes) => (None, Some(routes.iter().map(|(name, route)| (Some(name.as_str()), route)))),
        };
        unnamed.into_iter().chain(named.into_iter().flatten())
    }

    /// The actions of all steps, and their fallbacks.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.iter().flat_map(|(_, route)| route.steps()).flat_map(|step| action::with_fallbacks(&step.action))
    }
}

// === impl Route ===

impl Route {
    fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let steps = node.elements()?.map(|node| RouteStep::read(&node, scope)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { index: RouteIndex::new(steps.iter().map(|step| &step.condition)), steps })
    }

    /// The steps in their order.
    pub fn steps(&self) -> &[RouteStep] {
        &self.steps
    }

    /// The first step that matches this request. The time hardly depends on the number of steps, if their conditions
    /// name URIs or hosts, or the beginnings or ends of these.
    pub fn first_match<R: RequestView + ?Sized>(&self, request: &R) -> Option<&RouteStep> {
        let mut first = self.steps.len();
        self.index.candidates(
            || request.uri(),
            || request.host(),
            |candidates| {
                let earlier = candidates.iter().take_while(|step| **step < first);
                if let Some(step) = earlier.copied().find(|step| self.steps[*step].condition.matches(request)) {
                    first = step;
                }
            },
        );
        self.steps.get(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Configuration;
    use crate::matching::test_request::TestRequest;

    fn parse(routes: &str) -> Result<Routes, String> {
        let parsed = Configuration::parse(&format!(r#"{{"routes": {routes}}}"#));
        parsed.map(|configuration| configuration.routes).map_err(|error| error.to_string())
    }

    #[test]
    fn routes_are_found_by_name() {
        let step = r#"{"action": {"return": 200}}"#;
        let unnamed = parse(&format!("[{step}]")).expect("routes");
        let named = parse(&format!(r#"{{"a": [{step}, {step}], "b": []}}"#)).expect("routes");
        let count = |routes: &Routes, name| routes.find(name).map(|route| route.steps().len());
        assert_eq!(count(&unnamed, None), Some(1));
        assert_eq!(count(&unnamed, Some("a")), None);
        assert_eq!(count(&named, None), None);
        assert_eq!(count(&named, Some("a")), Some(2));
        assert_eq!(count(&named, Some("b")), Some(0));
        assert_eq!(count(&Routes::default(), None), None);
        assert_eq!(named.iter().map(|(name, _)| name).collect::<Vec<_>>(), [Some("a"), Some("b")]);
        assert_eq!(unnamed.iter().count(), 1);
    }

    #[test]
    fn an_invalid_step_is_rejected() {
        let cases = [
            ("5", "routes: expected an array of steps, or an object of named arrays, found the number 5"),
            (r#"{"": []}"#, "routes: a name must not be empty"),
            (r#"{"a": {}}"#, "routes/a: expected an array, found an object"),
            (
                "[{}]",
                "routes/0: \"action\" is missing; add what to do, as in \"action\": {\"pass\": \"applications/NAME\"}",
            ),
            (
                r#"[{"match": [], "action": {"return": 200}}]"#,
                "routes/0/match: expected an object, found an array; its options are \"method\", \"host\", \"uri\", \"query\", \"arguments\", \"cookies\" and others",
            ),
            (r#"{"a": [{"actoin": {}}]}"#, "routes/a/0/actoin: there is no such option; did you mean \"action\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(expected.to_owned()), "{json}");
        }
    }

    /// Patterns and texts of few letters, so that they often match.
    fn uri_pattern() -> impl Strategy<Value = String> {
        prop_oneof![
            "/[ab]{0,3}",
            "/[ab]{0,2}\\*",
            "\\*[ab]{0,2}",
            "/[ab]{0,1}\\*[ab]{0,1}",
            "!/[ab]{0,2}\\*?",
            "~\\^/[ab]{0,2}",
            "~[ab]{1,2}\\$",
            "\\*",
        ]
    }

    fn host_pattern() -> impl Strategy<Value = String> {
        prop_oneof!["[xy]{0,2}", "[xy]{0,1}\\*", "\\*[xy]{1,2}", "![xy]{1,2}", "~[xy]"]
    }

    fn condition() -> impl Strategy<Value = String> {
        let patterns = |pattern| prop::option::weighted(0.6, prop::collection::vec(pattern, 1..3));
        (patterns(uri_pattern().boxed()), patterns(host_pattern().boxed())).prop_map(|(uri, host)| {
            let option = |name: &str, patterns: Option<Vec<String>>| patterns.map(|list| format!("{name:?}: {list:?}"));
            let options: Vec<String> = [option("uri", uri), option("host", host)].into_iter().flatten().collect();
            format!("{{{}}}", options.join(", "))
        })
    }

    fn leaked(text: String) -> &'static str {
        text.leak()
    }

    proptest! {
        #[test]
        fn the_first_match_is_the_one_of_a_linear_search(
            conditions in prop::collection::vec(condition(), 0..40),
            requests in prop::collection::vec(("/[ab]{0,4}", "[xy]{0,3}"), 1..30),
        ) {
            let step = |condition: &String| format!(r#"{{"match": {condition}, "action": {{"return": 200}}}}"#);
            let steps: Vec<String> = conditions.iter().map(step).collect();
            let routes = parse(&format!("[{}]", steps.join(","))).expect("routes");
            let route = routes.find(None).expect("route");
            for (uri, host) in requests {
                let request = TestRequest { uri: leaked(uri), host: leaked(host), ..TestRequest::default() };
                let linear = route.steps().iter().find(|step| step.condition.matches(&request));
                let address = |step: Option<&RouteStep>| step.map(std::ptr::from_ref);
                prop_assert_eq!(address(route.first_match(&request)), address(linear));
            }
        }
    }

    #[test]
    fn few_of_a_thousand_steps_are_compared() {
        let options = |i: usize| match i % 5 {
            0 => format!(r#""uri": "/page/{i}""#),
            1 => format!(r#""uri": ["/page/{i}/*", "~^/page-{i}/\\d"]"#),
            2 => format!(r#""uri": "*.ext{i}""#),
            3 => format!(r#""uri": "/*", "host": "h{i}.org""#),
            _ => format!(r#""host": ["h{i}.org", "*.h{i}.org"], "method": "GET""#),
        };
        let step = |i| format!(r#"{{"match": {{{}}}, "action": {{"return": 200}}}}"#, options(i));
        let steps: Vec<String> = (0..1000).map(step).chain([r#"{"action": {"return": 404}}"#.into()]).collect();
        let routes = parse(&format!("[{}]", steps.join(","))).expect("routes");
        let route = routes.find(None).expect("route");
        let cases = [
            ("/none", "example.com", 1000),
            ("/page/500", "example.com", 500),
            ("/page/501/x", "example.com", 501),
            ("/page-501/7", "example.com", 501),
            ("/x.ext502", "example.com", 502),
            ("/", "h503.org", 503),
            ("/", "www.h504.org", 504),
            ("/page/500", "h503.org", 500),
        ];
        for (uri, host, expected) in cases {
            let request = TestRequest { uri, host, ..TestRequest::default() };
            let found = route.first_match(&request).expect("the last step");
            assert!(std::ptr::eq(found, &route.steps()[expected]), "{uri} {host}");
            assert!(request.reads.get() < 10, "{uri} {host}: {}", request.reads.get());
        }
    }
}
