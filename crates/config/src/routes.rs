//! `routes`: the steps among which a request finds its action.
//!
//! The first step that matches decides. Steps may pass a request to other routes, but never in a circle: what a step
//! matches does not change on the way, so that a request that came back to a route would never leave it.

use std::collections::BTreeMap;

use crate::action::Action;
use crate::condition::Condition;
use crate::error::{Error, quoted};
use crate::node::{Node, Options};
use crate::pass::{Destinations, Pass};

const STEP_OPTIONS: Options = Options { known: &["match", "action"], not_yet: &[] };

/// How many routes of a circle its error names.
const CIRCLE_NAMES: usize = 5;

/// All routes: one without a name, or any number with names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes(Table);

#[derive(Clone, Debug, Default, PartialEq)]
enum Table {
    #[default]
    None,
    Unnamed(Vec<Route>),
    Named(BTreeMap<String, Vec<Route>>),
}

/// A step: what to do with which requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// `match`: which requests the step is for.
    pub condition: Condition,
    /// What to do with them.
    pub action: Action,
}

// === impl Routes ===

impl Routes {
    pub(crate) fn read(node: &Node<'_>, destinations: &Destinations<'_>) -> Result<Self, Error> {
        if node.is_array() {
            let steps = read_steps(node, destinations)?;
            refuse_circles(node, &BTreeMap::from([("", steps.as_slice())]))?;
            return Ok(Self(Table::Unnamed(steps)));
        }
        let mut routes = BTreeMap::new();
        for (name, node) in node.named()? {
            routes.insert(name.to_owned(), read_steps(&node, destinations)?);
        }
        refuse_circles(node, &routes.iter().map(|(name, steps)| (name.as_str(), steps.as_slice())).collect())?;
        Ok(Self(Table::Named(routes)))
    }

    /// The steps of a route; `None` if there is no such route, which cannot be for the name in a [`Pass::Routes`].
    pub fn steps(&self, name: Option<&str>) -> Option<&[Route]> {
        match (&self.0, name) {
            (Table::Unnamed(steps), None) => Some(steps),
            (Table::Named(routes), Some(name)) => routes.get(name).map(Vec::as_slice),
            _ => None,
        }
    }
}

fn read_steps(node: &Node<'_>, destinations: &Destinations<'_>) -> Result<Vec<Route>, Error> {
    node.elements()?
        .map(|node| {
            let object = node.object(&STEP_OPTIONS)?;
            let condition = object.read("match", Condition::read)?.unwrap_or_default();
            let action = object.require("action", "what to do, as in \"action\": {\"pass\": \"applications/NAME\"}")?;
            Ok(Route { condition, action: Action::read(&action, destinations)? })
        })
        .collect()
}

/// An error if a route passes requests to itself, over however many others. The unnamed route is `""`.
///
/// Without recursion, since a configuration may chain as many routes as its size allows.
fn refuse_circles(node: &Node<'_>, routes: &BTreeMap<&str, &[Route]>) -> Result<(), Error> {
    let next: BTreeMap<&str, Vec<&str>> = routes
        .iter()
        .map(|(name, steps)| (*name, steps.iter().flat_map(|step| passes(&step.action)).collect()))
        .collect();
    // Once a route is in here, everything that it leads to is known to end, or is being followed.
    let mut seen = BTreeMap::new();
    for start in next.keys() {
        let mut followed = vec![(*start, 0)];
        while let Some((name, position)) = followed.last_mut() {
            seen.insert(*name, Following::Yes);
            let Some(target) = next.get(name).and_then(|targets| targets.get(*position)) else {
                seen.insert(*name, Following::Done);
                followed.pop();
                continue;
            };
            *position += 1;
            match seen.get(target) {
                Some(Following::Done) => {}
                Some(Following::Yes) => {
                    let circle: Vec<&str> = followed.iter().map(|(name, _)| *name).collect();
                    return Err(circle_error(node, &circle, target));
                }
                None => followed.push((target, 0)),
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Following {
    Yes,
    Done,
}

/// The names of the routes to which the action passes requests, its fallbacks included.
fn passes(action: &Action) -> Option<&str> {
    match action {
        Action::Pass(Pass::Routes(name)) => Some(name.as_deref().unwrap_or_default()),
        Action::Share(share) => share.fallback.as_deref().and_then(passes),
        Action::Pass(Pass::Application { .. }) | Action::Return { .. } => None,
    }
}

/// `followed` are the routes on the way, of which the last leads back to `target`.
fn circle_error(node: &Node<'_>, followed: &[&str], target: &str) -> Error {
    let advice = "a request would never leave it; remove one of its passes";
    if target.is_empty() {
        return node.error(format_args!("a step passes requests back to \"routes\", a circle: {advice}"));
    }
    let circle = followed.iter().skip_while(|name| **name != target).map(|name| quoted(name));
    let mut names: Vec<String> = circle.take(CIRCLE_NAMES + 1).collect();
    if names.len() > CIRCLE_NAMES {
        names[CIRCLE_NAMES] = "...".to_owned();
    }
    names.push(quoted(target));
    node.error(format_args!("the routes {} pass requests in a circle: {advice}", names.join(" → ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(routes: &str) -> Result<Routes, String> {
        let parsed = Configuration::parse(&format!(r#"{{"routes": {routes}}}"#));
        parsed.map(|configuration| configuration.routes).map_err(|error| error.to_string())
    }

    #[test]
    fn steps_are_found_by_name() {
        let step = r#"{"action": {"return": 200}}"#;
        let unnamed = parse(&format!("[{step}]")).expect("routes");
        let named = parse(&format!(r#"{{"a": [{step}, {step}], "b": []}}"#)).expect("routes");
        let count = |routes: &Routes, name| routes.steps(name).map(<[_]>::len);
        assert_eq!(count(&unnamed, None), Some(1));
        assert_eq!(count(&unnamed, Some("a")), None);
        assert_eq!(count(&named, None), None);
        assert_eq!(count(&named, Some("a")), Some(2));
        assert_eq!(count(&named, Some("b")), Some(0));
        assert_eq!(count(&Routes::default(), None), None);
    }

    #[test]
    fn routes_may_meet_again_but_not_lead_in_a_circle() {
        let pass = |name: &str| format!(r#"{{"action": {{"pass": "routes/{name}"}}}}"#);
        let fallback =
            r#"{"action": {"share": "/x$uri", "fallback": {"share": "/y$uri", "fallback": {"pass": "routes/a"}}}}"#;
        let diamond = format!(r#"{{"a": [{}, {}], "b": [{}], "c": [{2}], "d": []}}"#, pass("b"), pass("c"), pass("d"));
        assert!(parse(&diamond).is_ok());
        let advice = "a request would never leave it; remove one of its passes";
        let cases = [
            (
                format!(r#"{{"a": [{}]}}"#, pass("a")),
                format!("routes: the routes \"a\" → \"a\" pass requests in a circle: {advice}"),
            ),
            (
                format!(r#"{{"0": [{}], "a": [{}], "b": [{fallback}]}}"#, pass("a"), pass("b")),
                format!("routes: the routes \"a\" → \"b\" → \"a\" pass requests in a circle: {advice}"),
            ),
            (
                r#"[{"match": {"uri": "/x"}, "action": {"pass": "routes"}}]"#.to_owned(),
                format!("routes: a step passes requests back to \"routes\", a circle: {advice}"),
            ),
        ];
        for (routes, expected) in cases {
            assert_eq!(parse(&routes), Err(expected), "{routes}");
        }
    }

    #[test]
    fn a_long_chain_of_routes_is_followed() {
        let chain = |last: usize| {
            let routes: Vec<String> = (0..20_000)
                .map(|i| format!(r#""{i:05}": [{{"action": {{"pass": "routes/{:05}"}}}}]"#, (i + 1).min(last)))
                .collect();
            format!(r#"{{{}, "20000": []}}"#, routes.join(","))
        };
        assert!(parse(&chain(20_000)).is_ok());
        let error = parse(&chain(10_000)).expect_err("a circle");
        assert!(error.contains("\"10000\" → \"10000\""), "{error}");
    }

    #[test]
    fn a_wrong_step_is_refused() {
        let cases = [
            ("5", "routes: expected an array of steps, or an object of named arrays, found the number 5"),
            (r#"{"": []}"#, "routes: a name must not be empty"),
            (r#"{"a": {}}"#, "routes/a: expected an array, found an object"),
            (
                "[{}]",
                "routes/0: \"action\" is missing; add what to do, as in \"action\": {\"pass\": \"applications/NAME\"}",
            ),
            (r#"[{"match": [], "action": {"return": 200}}]"#, "routes/0/match: expected an object, found an array"),
            (r#"{"a": [{"actoin": {}}]}"#, "routes/a/0/actoin: there is no such option; did you mean \"action\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(expected.to_owned()), "{json}");
        }
    }
}
