//! `settings` and `access_log`: what applies to every listener.

pub(crate) mod access_log;
pub(crate) mod compression;
pub(crate) mod error_pages;
pub(crate) mod http;
pub(crate) mod log_destination;
pub(crate) mod log_skip;
pub(crate) mod metrics;
pub(crate) mod mime_types;
pub(crate) mod request_id;
pub(crate) mod telemetry;

use crate::error::Error;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::settings::http::Http;
use crate::settings::metrics::MetricsSettings;
use crate::settings::telemetry::Telemetry;

pub(crate) const OPTIONS: Options = Options {
    known: &["listen_threads", "http", "metrics", "telemetry", "user", "group"],
    unsupported: &[(
        "js_module",
        "it does not run JavaScript; use texts with variables, such as \"/srv/$host$uri\", and \"match\" instead, \
         and remove it",
    )],
};

const MAX_THREADS: u32 = 1024;

/// The settings of all listeners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The number of threads of the router, from 1 to 1024; `None`: one for each core.
    pub listen_threads: Option<u32>,
    /// Limits and timeouts of HTTP.
    pub http: Http,
    /// Where Prometheus reads the numbers of howdah.
    pub metrics: Option<MetricsSettings>,
    /// Where traces are sent.
    pub telemetry: Option<Telemetry>,
    /// The user of applications without a user, and of a router without its own, if howdah starts as root.
    pub user: Option<String>,
    /// Their group.
    pub group: Option<String>,
}

// === impl Settings ===

impl Settings {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        Ok(Self {
            listen_threads: object.read("listen_threads", |node| node.integer(1..=MAX_THREADS, "threads"))?,
            http: object.read("http", |node| Http::read(node, scope))?.unwrap_or_default(),
            metrics: object.read("metrics", MetricsSettings::read)?,
            telemetry: object.read("telemetry", Telemetry::read)?,
            user: object.read("user", Node::nonempty_string)?,
            group: object.read("group", Node::nonempty_string)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(settings: &str) -> Result<Settings, String> {
        let parsed = Configuration::parse(&format!(r#"{{"settings": {settings}}}"#));
        parsed.map(|configuration| configuration.settings).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_is_read() {
        assert_eq!(parse("{}"), Ok(Settings::default()));
        let settings = parse(r#"{"listen_threads": 2, "http": {"log_route": true}, "user": "a", "group": "b"}"#)
            .expect("settings");
        assert_eq!((settings.listen_threads, settings.http.log_route), (Some(2), true));
        assert_eq!((settings.user.as_deref(), settings.group.as_deref()), (Some("a"), Some("b")));
    }

    #[test]
    fn an_error_names_the_setting() {
        let cases = [
            (r#"{"listen_threads": 0}"#, "listen_threads: 0 is out of range; write 1 to 1024 threads"),
            (r#"{"user": ""}"#, "user: the string is empty; write a value or remove the option"),
            (r#"{"threads": 1}"#, "threads: there is no such option; remove it"),
            (
                r#"{"js_module": "next"}"#,
                "js_module: howdah does not have this option of NGINX Unit; it does not run JavaScript; \
                 use texts with variables, such as \"/srv/$host$uri\", and \"match\" instead, and remove it",
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("settings/{expected}")), "{json}");
        }
    }
}
