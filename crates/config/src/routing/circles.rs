//! Rejects routes that pass requests in a circle.
//!
//! The steps that match a request stay the same while it is passed on, so a request that returns to a route would never
//! leave the circle. Two kinds of pass are ignored here, because the request may leave after all: a pass that rewrites
//! the path, and a pass with variables. The router limits the number of those for each request.

use std::collections::BTreeMap;

use crate::error::{Error, quoted};
use crate::read::destination::Destination;
use crate::read::node::Node;
use crate::routing::action::{Action, ActionKind};
use crate::routing::pass::Pass;
use crate::routing::step::RouteStep;

/// The number of routes that the error names.
const CIRCLE_NAMES: usize = 5;

/// Returns an error if a route passes requests back to itself, directly or through other routes. The unnamed route is
/// `""`.
///
/// The search does not recurse: the number of routes in a chain is limited only by the configuration's size.
pub(crate) fn reject(node: &Node<'_>, routes: &BTreeMap<&str, &[RouteStep]>) -> Result<(), Error> {
    let next: BTreeMap<&str, Vec<&str>> = routes
        .iter()
        .map(|(name, steps)| (*name, steps.iter().flat_map(|step| passes(&step.action)).collect()))
        .collect();
    // The routes that were visited. Everything after a done one is known to end; a circle returns to one in progress.
    let mut seen = BTreeMap::new();
    for start in next.keys() {
        let mut followed = vec![(*start, 0)];
        while let Some((name, position)) = followed.last_mut() {
            seen.insert(*name, Visit::InProgress);
            let Some(target) = next.get(name).and_then(|targets| targets.get(*position)) else {
                seen.insert(*name, Visit::Done);
                followed.pop();
                continue;
            };
            *position += 1;
            match seen.get(target) {
                Some(Visit::Done) => {}
                Some(Visit::InProgress) => {
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
enum Visit {
    InProgress,
    Done,
}

/// The name of the route to which the action passes requests unchanged, fallbacks included.
fn passes(action: &Action) -> Option<&str> {
    if action.rewrite.is_some() {
        return None;
    }
    match &action.kind {
        ActionKind::Pass(Pass::To(Destination::Routes(name))) => Some(name.as_deref().unwrap_or_default()),
        ActionKind::Share { fallback, .. } => fallback.as_deref().and_then(passes),
        ActionKind::Pass(_) | ActionKind::Proxy(..) | ActionKind::Return { .. } => None,
    }
}

/// The error for the routes `followed`, the last of which passes requests back to `target`.
fn circle_error(node: &Node<'_>, followed: &[&str], target: &str) -> Error {
    let advice = "a request would never leave it; remove one of the passes";
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
    use crate::Configuration;

    fn parse(routes: &str) -> Result<(), String> {
        let parsed = Configuration::parse(&format!(r#"{{"routes": {routes}}}"#));
        parsed.map(|_| ()).map_err(|error| error.to_string())
    }

    fn pass(name: &str) -> String {
        format!(r#"{{"action": {{"pass": "routes/{name}"}}}}"#)
    }

    #[test]
    fn routes_may_share_targets_but_not_form_a_circle() {
        let fallback =
            r#"{"action": {"share": "/x$uri", "fallback": {"share": "/y$uri", "fallback": {"pass": "routes/a"}}}}"#;
        let diamond = format!(r#"{{"a": [{}, {}], "b": [{}], "c": [{2}], "d": []}}"#, pass("b"), pass("c"), pass("d"));
        assert_eq!(parse(&diamond), Ok(()));
        let advice = "a request would never leave it; remove one of the passes";
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
    fn a_circle_that_a_request_may_leave_is_accepted() {
        let rewriting = r#"[{"match": {"uri": "/x"}, "action": {"rewrite": "/y", "pass": "routes"}}]"#;
        assert_eq!(parse(rewriting), Ok(()));
        assert_eq!(parse(r#"{"a": [{"action": {"pass": "routes/$host"}}]}"#), Ok(()));
    }

    #[test]
    fn a_long_chain_of_routes_is_followed() {
        let chain = |last: usize| {
            let routes: Vec<String> = (0..20_000)
                .map(|i| format!(r#""{i:05}": [{{"action": {{"pass": "routes/{:05}"}}}}]"#, (i + 1).min(last)))
                .collect();
            format!(r#"{{{}, "20000": []}}"#, routes.join(","))
        };
        assert_eq!(parse(&chain(20_000)), Ok(()));
        let error = parse(&chain(10_000)).expect_err("a circle");
        assert!(error.contains("\"10000\" → \"10000\""), "{error}");
    }
}
