//! The whole configuration: its parts are read in an order in which the names that they refer to are known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::address::Address;
use crate::application::Application;
use crate::document::Document;
use crate::error::Error;
use crate::json::JsonValue;
use crate::listener::Listener;
use crate::read::destination::{Destination, PassNames};
use crate::read::node::{Node, Options};
use crate::read::scope::{Context, Scope};
use crate::routing::action::ActionKind;
use crate::routing::pass::Pass;
use crate::routing::proxy::settings::ProxySettings;
use crate::routing::proxy::upstream::{self, Upstream};
use crate::routing::routes::Routes;
use crate::settings::Settings;
use crate::settings::access_log::AccessLog;
use crate::template::variable::Variables;
use crate::{application, json, listener};

pub(crate) const OPTIONS: Options = Options {
    known: &["listeners", "routes", "applications", "upstreams", "settings", "access_log"],
    unsupported: &[],
};

/// A whole, valid configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// The sockets that accept requests, in the order of the text. No two have the same address.
    pub listeners: Vec<Listener>,
    /// The routes to which listeners and steps pass requests.
    pub routes: Routes,
    /// The applications by name.
    pub applications: BTreeMap<String, Application>,
    /// The applications that drain: they have no processes, and their requests are answered 503.
    pub drained: BTreeSet<String>,
    /// Groups of servers by name.
    pub upstreams: BTreeMap<String, Upstream>,
    /// The settings of all listeners.
    pub settings: Settings,
    /// How requests are logged; `None`: they are not logged.
    pub access_log: Option<AccessLog>,
    /// Notes about valid values that may not do what their author expects, each with its path.
    pub warnings: Vec<String>,
    /// The names to which a pass with variables may lead.
    names: PassNames,
}

impl Configuration {
    /// Reads a configuration from JSON text, in which `//` and `/* */` comments and a byte-order mark are allowed. The
    /// names of certificates are not checked.
    ///
    /// # Errors
    ///
    /// The first problem. [`Error::location`] is set if the text is not JSON; otherwise
    /// [`Error::detail`] begins with the path of the option in the configuration.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_in(text, Context::default())
    }

    /// Like [`Configuration::parse`], but checks the names of certificates against the context.
    ///
    /// # Errors
    ///
    /// As [`Configuration::parse`].
    pub fn parse_in(text: &str, context: Context<'_>) -> Result<Self, Error> {
        Self::read(&json::parse(text)?, context)
    }

    /// Reads a document. The names of certificates are not checked.
    ///
    /// # Errors
    ///
    /// The first problem; [`Error::detail`] begins with the path of the option.
    pub fn of(document: &Document) -> Result<Self, Error> {
        Self::of_in(document, Context::default())
    }

    /// Like [`Configuration::of`], but checks the names of certificates against the context.
    ///
    /// # Errors
    ///
    /// As [`Configuration::of`].
    pub fn of_in(document: &Document, context: Context<'_>) -> Result<Self, Error> {
        Self::read(document.root(), context)
    }

    fn read(value: &JsonValue, context: Context<'_>) -> Result<Self, Error> {
        let root = Node::root(value);
        if root.is_dump_of_units_api() {
            return Err(
                root.error(r#"this is all that NGINX Unit's control API returns; give only the value of "config""#)
            );
        }
        let object = root.object(&OPTIONS)?;
        let mut scope = Scope::new(context);
        scope.names = PassNames::read(&object)?;

        let configuration = Self {
            // Passes refer to applications and upstreams, so the errors in those come first.
            applications: object.read("applications", |node| application::read_all(node, &scope))?.unwrap_or_default(),
            drained: object.read("applications", application::read_drained)?.unwrap_or_default(),
            upstreams: object.read("upstreams", |node| upstream::read_all(node, &scope))?.unwrap_or_default(),
            listeners: object.read("listeners", |node| listener::read_all(node, &scope))?.unwrap_or_default(),
            routes: object.read("routes", |node| Routes::read(node, &scope))?.unwrap_or_default(),
            settings: object.read("settings", |node| Settings::read(node, &scope))?.unwrap_or_default(),
            access_log: object.read("access_log", |node| AccessLog::read(node, &scope))?,
            names: std::mem::take(&mut scope.names),
            warnings: Vec::new(),
        };
        if let Some(metrics) = &configuration.settings.metrics
            && let Some(listener) =
                configuration.listeners.iter().find(|listener| listener.address == Address::Tcp(metrics.listen))
        {
            let path = "settings/metrics/listen";
            let problem = format!("{path}: listeners/{} has the same address; choose another port", listener.address);
            return Err(Error::configuration(problem));
        }
        Ok(Self { warnings: scope.into_warnings(), ..configuration })
    }

    /// The settings of each upstream and of each action `proxy`.
    pub fn proxy_settings(&self) -> impl Iterator<Item = &ProxySettings> {
        let of_actions = self.routes.actions().filter_map(|action| match &action.kind {
            ActionKind::Proxy(_, settings) => Some(settings),
            _ => None,
        });
        self.upstreams.values().map(|upstream| &upstream.proxy).chain(of_actions)
    }

    /// The destination of a pass for one request. A pass without variables always has one; `None` means that the names
    /// with the request's values filled in do not exist.
    pub fn destination<'p, V: Variables + ?Sized>(
        &self,
        pass: &'p Pass,
        variables: &V,
    ) -> Option<Cow<'p, Destination>> {
        pass.resolve(&self.names, variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogDestination;
    use crate::cpu_clock::CpuClock;
    use crate::matching::test_request::TestRequest;

    /// The example of the operators' guide, in full.
    const EXAMPLE: &str = r#"
{
  // Where requests come in.
  "listeners": { "*:8080": { "pass": "routes" }, "[::1]:8081": {"pass": "applications/shop/front"} },
  "routes": [
    { "match": { "uri": ["*.php", "*.php/*"], "host": "*.example.com", "method": "GET" }, "action": { "pass": "applications/shop/front" } },
    { "match": { "uri": "/old" }, "action": { "return": 301, "location": "/neu ä" } },
    { "action": { "share": ["/srv/shop$uri", "/srv/common/$uri"], "index": ["index.html", "index.htm"], "follow_symlinks": true,
                  "fallback": { "pass": "applications/shop/front" } } }
  ],
  "applications": { "shop": {
      "type": "php 8.2",
      "targets": { "front": { "root": "/srv/shop", "front_controller": "index.php" } },
      "options": { "file": "/etc/php.ini", "admin": { "memory_limit": "256M" }, "user": { "display_errors": "0" } },
      "processes": 2, "environment": { "K": "V" }, "working_directory": "/srv/shop", "user": "www-data", "group": "www-data" } },
  "settings": { "listen_threads": 2, "http": { "max_body_size": 8388608 } },
  "access_log": "/var/log/x.log"
}"#;

    fn error(text: &str) -> String {
        let error = Configuration::parse(text).expect_err(text);
        assert_eq!(error.error, "Invalid configuration.");
        assert_eq!(error.location, None);
        error.to_string()
    }

    #[test]
    fn a_whole_configuration_is_read() {
        let configuration = Configuration::parse(EXAMPLE).expect("configuration");
        let front = Destination::Application { name: "shop".into(), target: Some("front".into()) };
        let addresses: Vec<String> =
            configuration.listeners.iter().map(|listener| listener.address.to_string()).collect();
        assert_eq!(addresses, ["*:8080", "[::1]:8081"]);
        assert_eq!(configuration.listeners[0].pass.clone().expect("pass"), Pass::To(Destination::Routes(None)));
        assert_eq!(configuration.listeners[1].pass.clone().expect("pass"), Pass::To(front.clone()));

        let route = configuration.routes.find(None).expect("routes");
        let steps = route.steps();
        assert_eq!(steps[0].action.kind, ActionKind::Pass(Pass::To(front.clone())));
        assert!(matches!(steps[1].action.kind, ActionKind::Return { status: 301, location: Some(_) }));
        let ActionKind::Share { share, fallback } = &steps[2].action.kind else { panic!("no share") };
        assert_eq!(share.index, ["index.html", "index.htm"]);
        assert_eq!(share.follow_symlinks, Some(true));
        assert_eq!(fallback.as_ref().map(|action| &action.kind), Some(&ActionKind::Pass(Pass::To(front))));

        let decides = |host, uri| {
            let request = TestRequest { host, uri, ..TestRequest::default() };
            route.first_match(&request).and_then(|step| steps.iter().position(|other| std::ptr::eq(step, other)))
        };
        assert_eq!(decides("www.example.com", "/x.php"), Some(0));
        assert_eq!(decides("www.example.org", "/x.php"), Some(2));
        assert_eq!(decides("", "/old"), Some(1));
        let log = configuration.access_log.expect("log");
        assert_eq!(log.destination, LogDestination::Path("/var/log/x.log".into()));
        assert_eq!(configuration.warnings, [""; 0]);
    }

    #[test]
    fn an_empty_configuration_is_the_default() {
        assert_eq!(Configuration::parse("{}"), Ok(Configuration::default()));
    }

    #[test]
    fn an_unknown_part_is_rejected() {
        let cases = [
            (
                "[]",
                "expected an object, found an array; its options are \"listeners\", \"routes\", \"applications\", \"upstreams\", \"settings\", \"access_log\"",
            ),
            (r#"{"listener": {}}"#, "listener: there is no such option; did you mean \"listeners\"?"),
            (r#"{"frobnicate": {}}"#, "frobnicate: there is no such option; remove it"),
            (r#"{"upstreams": []}"#, "upstreams: expected an object, found an array"),
            (
                r#"{"certificates": {}, "config": {}, "status": {}}"#,
                "this is all that NGINX Unit's control API returns; give only the value of \"config\"",
            ),
            (
                r#"{"listeners": null}"#,
                "listeners: expected an object, found null; remove the option to get its default",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(error(text), expected);
        }
    }

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let long = "x\\n".repeat(100_000);
        for text in [
            format!(r#"{{"{long}": 1}}"#),
            format!(r#"{{"listeners": {{"*:80": {{"pass": "{long}"}}}}}}"#),
            format!(r#"{{"applications": {{"{long}": {{}}}}}}"#),
            format!(r#"{{"applications": {{"a": {{"type": "{long}"}}}}}}"#),
            format!(r#"{{"routes": [{{"action": {{"share": "/$"}}, "{long}": 1}}]}}"#),
            format!(r#"{{"routes": [{{"action": {{"share": "/${{{long}}}"}}}}]}}"#),
            format!(r#"{{"routes": [{{"match": {{"uri": "{long}"}}, "action": {{"share": "/x"}}}}]}}"#),
        ] {
            let error = error(&text);
            assert!(error.len() < 1000 && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_huge_configuration_is_read_or_rejected_quickly() {
        let clock = CpuClock::start();
        let key = "k".repeat(1 << 20);
        let environment: Vec<String> = (0..100_000).map(|i| format!(r#""{i}":"""#)).collect();
        let text = format!(
            r#"{{"applications":{{"{key}":{{"type":"php","root":"/x","environment":{{{}}}}}}}}}"#,
            environment.join(",")
        );
        assert_eq!(Configuration::parse(&text).map(|configuration| configuration.applications.len()), Ok(1));
        assert!(Configuration::parse(&"[".repeat(4 << 20)).is_err());
        assert!(Configuration::parse(&format!("[{}0]", "0,".repeat((2 << 20) - 2))).is_err());
        let fallbacks =
            format!(r#"{{"routes":[{{"action":{}{}}}]}}"#, r#"{"share":"/x","fallback":"#.repeat(200), "}".repeat(200));
        assert!(Configuration::parse(&fallbacks).is_err());
        assert!(clock.elapsed() < std::time::Duration::from_secs(20), "{:?}", clock.elapsed());
    }
}
