//! A FastCGI application: `"type": "fastcgi"`, PHP-FPM or another FastCGI server that runs already. howdah starts nothing,
//! and sends it requests.

pub(crate) mod limits;
pub(crate) mod parameters;
pub(crate) mod target;

use crate::address::{Endpoint, parse_endpoint};
use crate::application::fastcgi::limits::FastCgiLimits;
use crate::application::fastcgi::target::FastCgiTarget;
use crate::application::php::retry::Retry;
use crate::application::php::send_file::SendFile;
use crate::application::php::{self as php_application};
use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "type",
        "drain",
        "address",
        "root",
        "remote_root",
        "script",
        "index",
        "front_controller",
        "targets",
        "parameters",
        "connections",
        "keep_alive",
        "limits",
        "retry",
        "send_file",
    ],
    unsupported: &[],
};

/// Its `type`.
pub(crate) const TYPE: &str = "fastcgi";
/// A typing error must not exhaust the descriptors of the router.
const MAX_CONNECTIONS: u16 = 4096;
/// A quarter of FPM's default backlog: connections that FPM has not accepted yet never fill it.
const DEFAULT_CONNECTIONS: u16 = 128;
const KEEP_ALIVE_SECONDS: std::ops::RangeInclusive<f64> = 0.0..=60.0;
const DEFAULT_KEEP_ALIVE: Duration = Duration::from_millis(250);

/// A FastCGI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiApplication {
    /// Where it listens; if there are several addresses, requests go to the one with the fewest. There is at least one,
    /// and none twice.
    pub addresses: Vec<Endpoint>,
    /// The scripts that it runs, with their names: there is one without a name, or several with names.
    pub targets: Vec<(Option<String>, FastCgiTarget)>,
    /// Further variables of its requests, which replace those that howdah sets.
    pub parameters: BTreeMap<String, String>,
    /// The most connections to each address. Default: 128.
    pub connections: u16,
    /// How long a connection may wait for another request; zero: each request has a connection of its own. Default:
    /// 250 ms.
    pub keep_alive: Duration,
    /// How long a request may take or wait.
    pub limits: FastCgiLimits,
    /// Whether a request whose process died is run again.
    pub retry: Retry,
    /// Folders whose files its scripts may have howdah send.
    pub send_file: SendFile,
}

// === impl FastCgiApplication ===

impl FastCgiApplication {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        for name in php_application::OPTIONS.known.iter().filter(|name| !OPTIONS.known.contains(name)) {
            if let Some(option) = node.member(name) {
                let advice = advice(name);
                return Err(
                    option.error(format_args!("an application of the type \"{TYPE}\" does not have it; {advice}"))
                );
            }
        }
        let object = node.object(&OPTIONS)?;
        let address = object.require("address", "where PHP-FPM listens, as in \"unix:/run/php/php8.2-fpm.sock\"")?;
        Ok(Self {
            addresses: read_addresses(&address)?,
            targets: target::read_all(&object)?,
            parameters: object.read("parameters", parameters::read)?.unwrap_or_default(),
            connections: object
                .read("connections", |node| node.integer(1..=MAX_CONNECTIONS, "connections"))?
                .unwrap_or(DEFAULT_CONNECTIONS),
            keep_alive: object
                .read("keep_alive", |node| duration::seconds(node, KEEP_ALIVE_SECONDS))?
                .unwrap_or(DEFAULT_KEEP_ALIVE),
            limits: object.read("limits", FastCgiLimits::read)?.unwrap_or_default(),
            retry: object.read("retry", Retry::read)?.unwrap_or_default(),
            send_file: object.read("send_file", SendFile::read)?.unwrap_or_default(),
        })
    }
}

fn read_addresses(node: &Node<'_>) -> Result<Vec<Endpoint>, Error> {
    let read = |node: &Node<'_>| {
        let text = node.nonempty_string()?;
        // As nginx and FPM write a socket.
        if text.starts_with('/') {
            return Err(node.error(format_args!("write \"unix:{text}\" for a Unix socket")));
        }
        parse_endpoint(&text).map_err(|problem| node.error(problem))
    };
    let addresses = node.one_or_many(read)?;
    if addresses.is_empty() {
        return Err(node.error("the array is empty; add an address, as in \"unix:/run/php/php8.2-fpm.sock\""));
    }
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            return Err(node.error(format_args!("\"{address}\" is there twice; remove one of them")));
        }
    }
    Ok(addresses)
}

/// The advice for an option of PHP applications.
fn advice(option: &str) -> &'static str {
    match option {
        "processes" => {
            "FPM starts its processes: write pm.max_children there, and the same number as \"connections\" here"
        }
        "options" => {
            "write the settings of PHP into FPM's pool, or into \"parameters\", as in {\"PHP_VALUE\": \"memory_limit=1G\"}"
        }
        "environment" => "write env[NAME] into FPM's pool, or \"parameters\", which scripts see in $_SERVER",
        "user" | "group" | "working_directory" => "write it into FPM's pool, where the scripts run",
        "slow_log" => "write request_slowlog_timeout and slowlog into FPM's pool",
        "worker" => "FPM has no worker mode; the type \"php\" has it",
        "stdout" | "stderr" => "messages of scripts go to howdah's log",
        _ => "remove it, or change the type to \"php\"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Application, Configuration};

    fn parse(options: &str) -> Result<FastCgiApplication, String> {
        let text = format!(r#"{{"applications": {{"x": {{"type": "fastcgi", {options}}}}}}}"#);
        let mut configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        match configuration.applications.remove("x") {
            Some(Application::FastCgi(application)) => Ok(*application),
            other => panic!("no FastCGI application: {other:?}"),
        }
    }

    fn endpoint(text: &str) -> Endpoint {
        text.parse().expect(text)
    }

    #[test]
    fn a_fastcgi_application_needs_an_address_and_a_root() {
        let application = parse(r#""address": "unix:/run/php.sock", "root": "/srv/""#).expect("application");
        assert_eq!(application.addresses, [endpoint("unix:/run/php.sock")]);
        let (name, target) = &application.targets[0];
        assert_eq!((name, target.scripts.root.to_str()), (&None, Some("/srv")));
        assert_eq!((&*target.scripts.index, &target.remote_root), ("index.php", &None));
        assert_eq!((application.connections, application.keep_alive), (128, Duration::from_millis(250)));
        assert_eq!((application.limits, application.retry), (FastCgiLimits::default(), Retry::Never));
        assert!(application.parameters.is_empty() && application.send_file.is_empty());
    }

    #[test]
    fn every_option_is_read() {
        let application = parse(
            r#""address": ["127.0.0.1:9000", "fpm.internal:9000", "unix:@fpm"], "root": "/srv", "remote_root": "/app/",
               "front_controller": "index.php", "parameters": {"APP_ENV": "prod"}, "connections": 5, "keep_alive": 0,
               "limits": {"timeout": 30, "queue_timeout": 5}, "retry": "idempotent", "send_file": {"/p/": "/srv/p"}"#,
        )
        .expect("application");
        assert_eq!(application.addresses.len(), 3);
        let (_, target) = &application.targets[0];
        assert_eq!(target.remote_root, Some("/app".into()));
        assert_eq!(target.scripts.front_controller.as_deref(), Some("index.php"));
        assert_eq!(application.parameters["APP_ENV"], "prod");
        assert_eq!((application.connections, application.keep_alive), (5, Duration::ZERO));
        let limits = application.limits;
        assert_eq!((limits.timeout, limits.queue_timeout), (Some(Duration::from_secs(30)), Duration::from_secs(5)));
        assert!(application.retry == Retry::Idempotent && !application.send_file.is_empty());
    }

    #[test]
    fn targets_have_names_and_roots_of_their_own() {
        let application = parse(
            r#""address": "127.0.0.1:9000", "targets": {"a": {"root": "/a", "remote_root": "/x"}, "b": {"root": "/b", "script": "s.php"}}"#,
        );
        let application = application.expect("application");
        let targets: Vec<_> =
            application.targets.iter().map(|(name, target)| (name.as_deref(), target.remote_root.is_some())).collect();
        assert_eq!(targets, [(Some("a"), true), (Some("b"), false)]);
    }

    #[test]
    fn an_error_names_the_option_and_the_remedy() {
        let cases = [
            (
                r#""root": "/srv""#,
                ": \"address\" is missing; add where PHP-FPM listens, as in \"unix:/run/php/php8.2-fpm.sock\"",
            ),
            (
                r#""address": "127.0.0.1:9000""#,
                ": \"root\" is missing; add the absolute path of the folder of the scripts",
            ),
            (r#""address": [], "root": "/""#, "/address: the array is empty; add an address"),
            (r#""address": "/run/x.sock", "root": "/""#, "/address: write \"unix:/run/x.sock\" for a Unix socket"),
            (r#""address": "9000", "root": "/""#, "/address: \"9000\" is not an address to connect to;"),
            (
                r#""address": ["unix:/x", "unix:/x"], "root": "/""#,
                "/address: \"unix:/x\" is there twice; remove one of them",
            ),
            (
                r#""address": "unix:/x", "root": "/", "connections": 0"#,
                "/connections: 0 is out of range; write 1 to 4096",
            ),
            (
                r#""address": "unix:/x", "root": "/", "keep_alive": 61"#,
                "/keep_alive: 61 is out of range; write 0 to 60",
            ),
            (r#""address": "unix:/x", "root": "/", "remote_root": "x""#, "/remote_root: \"x\" is not an absolute path"),
            (
                r#""address": "unix:/x", "remote_root": "/y", "targets": {"a": {"root": "/"}}"#,
                "/remote_root: this option cannot be combined with \"targets\"; move it into each target",
            ),
            (
                r#""address": "unix:/x", "root": "/", "limits": {"requests": 1}"#,
                "/limits/requests: an application of the type",
            ),
            (
                r#""address": "unix:/x", "root": "/", "processes": 4"#,
                "/processes: an application of the type \"fastcgi\"",
            ),
            (
                r#""address": "unix:/x", "root": "/", "parameters": {"A=B": "x"}"#,
                "/parameters: the name \"A=B\" is not one of a variable; write it with A-Z, 0-9 and \"_\"",
            ),
            (
                r#""address": "unix:/x", "root": "/", "parameters": {"SCRIPT_FILENAME": "x"}"#,
                "/parameters/SCRIPT_FILENAME: howdah finds the script",
            ),
            (
                r#""address": "unix:/x", "root": "/", "adress": 1"#,
                "/adress: there is no such option; did you mean \"address\"?",
            ),
        ];
        for (options, expected) in cases {
            let error = parse(options).expect_err(options);
            assert!(error.starts_with(&format!("applications/x{expected}")), "{options}: {error}");
        }
    }
}
