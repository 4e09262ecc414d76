//! `pass`: where a request goes next.
//!
//! The destination of a pass without variables is known to exist. A pass with variables is looked up for each request.

use std::borrow::Cow;
use std::fmt;

use crate::error::{Error, quoted};
use crate::read::destination::{Destination, PassNames, leads_nowhere};
use crate::read::node::Node;
use crate::read::scope::Scope;
use crate::template::text::{self, Template};
use crate::template::variable::Variables;

/// The beginnings of every pass.
const KINDS: [&str; 4] = ["applications/", "routes/", "upstreams/", "routes"];

/// Where a request goes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// To one destination for all requests, which the [`Configuration`](crate::Configuration) has.
    To(Destination),
    /// To a destination that depends on the request: see
    /// [`Configuration::destination`](crate::Configuration::destination).
    Computed(Template),
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

    /// The destination for one request; `None` if it does not exist.
    pub(crate) fn resolve<V: Variables + ?Sized>(
        &self,
        names: &PassNames,
        variables: &V,
    ) -> Option<Cow<'_, Destination>> {
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
            .map(|configuration| configuration.listeners[0].pass.clone().expect("pass"))
            .map_err(|error| error.to_string())
    }

    fn application(name: &str, target: Option<&str>) -> Destination {
        Destination::Application { name: name.to_owned(), target: target.map(str::to_owned) }
    }

    #[test]
    fn a_pass_leads_to_an_existing_name() {
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
    fn a_pass_that_leads_nowhere_is_rejected_with_advice() {
        let named = r#""routes": {"main": []},"#;
        let array = r#""routes": [],"#;
        let cases = [
            ("", "routes", "leads nowhere, because there are no \"routes\"; add them"),
            (array, "routes/main", "names a route, but \"routes\" is an array without names; write \"routes\""),
            (named, "routes", "names no route, but \"routes\" is an object of named routes; write \"routes/main\""),
            (named, "routes/mian", "names a route that does not exist; did you mean \"main\"?"),
            (named, "routes/", "leads nowhere; write"),
            (named, "routes/main/x", "leads nowhere; write"),
            ("", "/routes", "leads nowhere; write"),
            ("", "applications/shp", "names an application that does not exist; did you mean \"shop\"?"),
            ("", "applications/other", "names an application that does not exist; add it to \"applications\""),
            ("", "applications/shop/front", "the application has no \"targets\"; remove the target"),
            ("", "applications/a%2fb%25%24/fron", "names a target that does not exist; did you mean \"front\"?"),
            ("", "applications/shop/front/x", "leads nowhere; write"),
            ("", "applications//front", "leads nowhere; write"),
            ("", "applications/%zz", "has a \"%\" without two hexadecimal digits"),
            ("", "shop", "leads nowhere; write \"applications/shop\""),
            ("", "upstreams/x", "names an upstream that does not exist; add it to \"upstreams\""),
            ("", "upstreams/x/y", "leads nowhere; write"),
            ("", "applications/$url", "has the unknown variable \"url\"; did you mean \"uri\"?"),
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
        assert_eq!(
            configuration.listeners[0].pass.clone().expect("pass"),
            Pass::To(application("a/b%$", Some("front")))
        );
        let expected = "listeners/*:80/pass: no target is named, so the first one is used; \
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
            let pass_to = configuration.listeners[0].pass.as_ref().expect("pass");
            let found = configuration.destination(pass_to, &request);
            assert_eq!(found.map(Cow::into_owned), expected, "{pass}");
            assert_eq!(pass_to.to_string(), pass);
        }
    }
}
