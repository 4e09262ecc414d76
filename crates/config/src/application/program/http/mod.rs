//! An HTTP application: `"type": "http"`, a program that is an HTTP server. howdah starts it, and forwards requests to it.

pub(crate) mod address;

use crate::application::program::http::address::HttpAddress;
use crate::application::program::{self, Program};
use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::routing::proxy::health_check::HealthCheck;
use crate::routing::proxy::settings::ProxySettings;
use std::time::Duration;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "type",
        "drain",
        "command",
        "address",
        "processes",
        "working_directory",
        "environment",
        "inherit_environment",
        "user",
        "group",
        "stdout",
        "stderr",
        "isolation",
        "health_check",
        "forwarded_headers",
        "connect_timeout",
        "response_timeout",
        "drain_timeout",
        "stop_timeout",
        "send_file",
    ],
    unsupported: &[],
};

/// Up to a day.
const DRAIN_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86400.0;

/// Its `type`.
pub(crate) const TYPE: &str = "http";

/// A program that is an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpApplication {
    /// The program. Default of `processes`: 1.
    pub program: Program,
    /// How a process gets its address. Default: a Unix socket.
    pub address: HttpAddress,
    /// How howdah checks its processes; `None`: only whether they accept a connection when they start.
    pub health_check: Option<HealthCheck>,
    /// How requests are forwarded to it, without TLS.
    pub proxy: ProxySettings,
    /// How long the processes of an old generation may go on with their responses; `None`: until the last one ends.
    pub drain_timeout: Option<Duration>,
}

// === impl HttpApplication ===

impl HttpApplication {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        program::reject_php_options(node, TYPE, &OPTIONS, advice)?;
        let object = node.object(&OPTIONS)?;
        let address = object.read("address", HttpAddress::read)?.unwrap_or_default();
        let command = object.require("command", "the program and its arguments, as in \"php server.php\"")?;
        let health_check = object.read("health_check", HealthCheck::read)?;
        if address == HttpAddress::ListenFds && health_check.is_none() {
            return Err(node.error(
                "\"address\": \"listen_fds\" needs \"health_check\": {}, because howdah's socket accepts connections \
                 before the program is ready",
            ));
        }
        Ok(Self {
            program: Program::read(&object, TYPE, &command, |variable| address.check(variable))?,
            address,
            health_check,
            proxy: ProxySettings::read_without_tls(&object)?,
            drain_timeout: object.read("drain_timeout", |node| duration::seconds(node, DRAIN_SECONDS))?,
        })
    }
}

/// The advice for an option of PHP applications.
fn advice(option: &str) -> &'static str {
    match option {
        "root" => "write \"working_directory\", and the files that the program needs into \"command\"",
        "options" => "write the settings of PHP into \"command\", as in \"php -d memory_limit=1G server.php\"",
        "limits" => "write \"response_timeout\", or limit the program itself, as with \"isolation\": {\"cgroup\": …}",
        "warm_up" => "write \"health_check\": a process gets requests when that succeeds",
        _ => "remove it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Application, Configuration};

    fn parse(options: &str) -> Result<HttpApplication, String> {
        let text = format!(r#"{{"applications": {{"x": {{"type": "http", {options}}}}}}}"#);
        let mut configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        match configuration.applications.remove("x") {
            Some(Application::Http(application)) => Ok(*application),
            other => panic!("no HTTP application: {other:?}"),
        }
    }

    #[test]
    fn an_http_application_needs_only_a_command() {
        let application = parse(r#""command": "php server.php""#).expect("application");
        let program = application.program;
        assert_eq!((program.processes, application.address), (None, HttpAddress::Unix));
        assert_eq!((application.health_check, program.cgroup, application.drain_timeout), (None, None, None));
        assert_eq!((application.proxy, program.stop_timeout), (ProxySettings::default(), Duration::from_secs(30)));
    }

    #[test]
    fn every_option_is_read() {
        let application = parse(
            r#""command": ["a", "b c"], "address": "port", "processes": 3, "working_directory": "/srv",
               "environment": {"A": "1"}, "inherit_environment": true, "user": "u", "group": "g", "stdout": "/o", "stderr": "/e",
               "isolation": {"cgroup": {"path": "shop"}}, "health_check": {"path": "/health"}, "forwarded_headers": true,
               "connect_timeout": 1, "response_timeout": "1h", "stop_timeout": "5s", "drain_timeout": "1h""#,
        )
        .expect("application");
        let program = application.program;
        assert_eq!((program.processes, application.address), (Some(3), HttpAddress::Port));
        assert_eq!(program.working_directory, Some("/srv".into()));
        let settings = program.process_settings;
        assert!(settings.inherit_environment && settings.environment["A"] == "1");
        assert_eq!((settings.user.as_deref(), settings.group.as_deref()), (Some("u"), Some("g")));
        assert_eq!((settings.stdout, settings.stderr), (Some("/o".into()), Some("/e".into())));
        assert_eq!(program.cgroup.map(|group| group.path), Some("shop".into()));
        assert_eq!(application.health_check.map(|check| check.path), Some("/health".to_owned()));
        let seconds = |number| Duration::from_secs(number);
        assert!(application.proxy.forwarded_headers && program.stop_timeout == seconds(5));
        assert_eq!(application.drain_timeout, Some(seconds(3600)));
        assert_eq!(
            (application.proxy.connect_timeout, application.proxy.response_timeout),
            (seconds(1), seconds(3600))
        );
    }

    #[test]
    fn an_error_names_the_option_and_the_remedy() {
        let cases = [
            (
                r#""processes": 2"#,
                "\"command\" is missing; add the program and its arguments, as in \"php server.php\"",
            ),
            (
                r#""command": "x", "processes": "auto""#,
                "howdah does not choose the number of processes of the type \"http\"; write a number, 1 to 256",
            ),
            (r#""command": "x", "processes": 257"#, "257 is out of range"),
            (
                r#""command": "x", "root": "/srv""#,
                "root: an application of the type \"http\" does not have it; write \"wor",
            ),
            (
                r#""command": "x", "limits": {}"#,
                "limits: an application of the type \"http\" does not have it; write \"res",
            ),
            (
                r#""command": "x", "worker": {}"#,
                "worker: an application of the type \"http\" does not have it; remove it",
            ),
            (
                r#""command": "x", "isolation": {"rootfs": "/x"}"#,
                "isolation/rootfs: an application of the type \"http\" can",
            ),
            (r#""command": "x", "address": "listen_fds""#, "\"address\": \"listen_fds\" needs \"health_check\": {}"),
            (r#""command": "x", "tls": {}"#, "tls: there is no such option"),
        ];
        for (options, expected) in cases {
            let error = parse(options).expect_err(options);
            assert!(error.starts_with("applications/x") && error.contains(expected), "{options}: {error}");
        }
    }
}
