//! A RoadRunner application: `"type": "roadrunner"`, a program that is a worker of RoadRunner. howdah starts its
//! processes, and sends them requests over pipes or sockets.

use crate::application::limits::Limits;
use crate::application::program::{self, Program};
use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "type",
        "drain",
        "command",
        "processes",
        "limits",
        "relay",
        "codec",
        "ttl",
        "idle_ttl",
        "raw_body",
        "working_directory",
        "environment",
        "inherit_environment",
        "user",
        "group",
        "stderr",
        "isolation",
        "stop_timeout",
        "send_file",
    ],
    unsupported: &[],
};

/// `ttl` and `idle_ttl`, in seconds.
const AGES: RangeInclusive<f64> = 1.0..=31_536_000.0;
/// Its `type`.
pub(crate) const TYPE: &str = "roadrunner";

/// A program that is a worker of RoadRunner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoadRunnerApplication {
    /// The program. Without `processes`, there is one for each processor.
    pub program: Program,
    /// How long a request may take or wait, and when a process is replaced.
    pub limits: Limits,
    /// How its processes get requests.
    pub relay: Relay,
    /// The encoding of the contexts of its requests.
    pub codec: ContextCodec,
    /// The age at which a process is replaced.
    pub ttl: Option<Duration>,
    /// The time without requests after which a process is replaced.
    pub idle_ttl: Option<Duration>,
    /// Whether forms and uploads are passed on as they came.
    pub raw_body: bool,
}

/// How a worker gets requests, and sends its responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relay {
    /// Over its standard input and output.
    #[default]
    Pipes,
    /// It connects to a port of 127.0.0.1.
    Tcp,
    /// It connects to a Unix socket.
    Unix,
}

/// The encoding of the context of a request: its method, URL and headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextCodec {
    /// All libraries understand it.
    #[default]
    Json,
    /// Messages of protobuf.
    Proto,
}

// === impl RoadRunnerApplication ===

impl RoadRunnerApplication {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        program::reject_php_options(node, TYPE, &OPTIONS, advice)?;
        let object = node.object(&OPTIONS)?;
        let command = object.require("command", "the worker, as in \"php worker.php\"")?;
        let no_address = |_| Err("a worker has no address: requests come over its standard input".to_owned());
        Ok(Self {
            program: Program::read(&object, TYPE, &command, no_address)?,
            limits: object.read("limits", Limits::read)?.unwrap_or_default(),
            relay: object.read("relay", Relay::read)?.unwrap_or_default(),
            codec: object.read("codec", read_codec)?.unwrap_or_default(),
            ttl: object.read("ttl", |node| duration::seconds(node, AGES))?,
            idle_ttl: object.read("idle_ttl", |node| duration::seconds(node, AGES))?,
            raw_body: object.read("raw_body", Node::boolean)?.unwrap_or(false),
        })
    }
}

// === impl Relay ===

impl Relay {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        if node.is_string() && node.string()?.contains("://") {
            return Err(node.error(
                "howdah chooses the address, because old and new processes run at the same time; write \"tcp\" or \"unix\": \
                 a worker gets its address in RR_RELAY",
            ));
        }
        node.one_of(&[("pipes", Self::Pipes), ("tcp", Self::Tcp), ("unix", Self::Unix)])
    }
}

fn read_codec(node: &Node<'_>) -> Result<ContextCodec, Error> {
    node.one_of(&[("json", ContextCodec::Json), ("proto", ContextCodec::Proto)])
}

/// The advice for an option of PHP applications.
fn advice(option: &str) -> &'static str {
    match option {
        "root" => "write \"working_directory\", and the script into \"command\", as in \"php worker.php\"",
        "options" => "write the settings of PHP into \"command\", as in \"php -d memory_limit=1G worker.php\"",
        "stdout" => "its standard output has the responses; text that PHP prints goes to \"stderr\"",
        _ => "remove it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Application, Configuration};

    fn parse(options: &str) -> Result<RoadRunnerApplication, String> {
        let text = format!(r#"{{"applications": {{"x": {{"type": "roadrunner", {options}}}}}}}"#);
        let mut configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        match configuration.applications.remove("x") {
            Some(Application::RoadRunner(application)) => Ok(*application),
            other => panic!("no RoadRunner application: {other:?}"),
        }
    }

    #[test]
    fn a_roadrunner_application_needs_only_a_command() {
        let application = parse(r#""command": "php worker.php""#).expect("application");
        assert_eq!(application.program.command.words(|_| String::new()), ["php", "worker.php"]);
        assert_eq!((application.program.processes, application.raw_body), (None, false));
        assert_eq!((application.relay, application.codec), (Relay::Pipes, ContextCodec::Json));
        assert_eq!(application.limits, Limits::default());
    }

    #[test]
    fn every_option_is_read() {
        let application = parse(
            r#""command": ["php", "worker.php"], "processes": 3, "raw_body": true, "relay": "unix", "codec": "proto", "ttl": "1h", "idle_ttl": 60, "working_directory": "/srv",
               "limits": {"timeout": 30, "requests": 1000, "memory": "128M", "queue_timeout": 5}, "user": "u",
               "group": "g", "stderr": "/e", "environment": {"A": "1"}, "inherit_environment": true,
               "isolation": {"cgroup": {"path": "shop"}}, "stop_timeout": 10"#,
        )
        .expect("application");
        let RoadRunnerApplication { program, limits, relay, codec, ttl, idle_ttl, raw_body } = application;
        assert_eq!((ttl, idle_ttl), (Some(Duration::from_secs(3600)), Some(Duration::from_secs(60))));
        assert_eq!((relay, codec), (Relay::Unix, ContextCodec::Proto));
        let settings = program.process_settings;
        assert!(raw_body && settings.inherit_environment && settings.environment["A"] == "1");
        assert_eq!((program.processes, program.stop_timeout), (Some(3), Duration::from_secs(10)));
        assert_eq!((settings.user.as_deref(), settings.group.as_deref()), (Some("u"), Some("g")));
        assert_eq!((program.working_directory, settings.stderr), (Some("/srv".into()), Some("/e".into())));
        assert_eq!(program.cgroup.map(|group| group.path), Some("shop".into()));
        assert_eq!((limits.requests, limits.memory), (Some(1000), Some(128 << 20)));
    }

    #[test]
    fn an_error_names_the_option_and_the_remedy() {
        let cases = [
            (r#""processes": 2"#, "\"command\" is missing; add the worker, as in \"php worker.php\""),
            (r#""command": "php $PORT""#, "command: a worker has no address: requests come over its standard input"),
            (r#""command": "x", "processes": "auto""#, "howdah does not choose the number of processes of the type"),
            (r#""command": "x", "stdout": "/o""#, "stdout: an application of the type \"roadrunner\" does not have it"),
            (r#""command": "x", "root": "/srv""#, "\"roadrunner\" does not have it; write \"working_directory\""),
            (r#""command": "x", "address": "unix""#, "address: there is no such option"),
            (r#""command": "x", "relay": "unix:///run/rr.sock""#, "relay: howdah chooses the address, because old"),
            (r#""command": "x", "relay": "udp""#, "\"udp\" is not possible here; write \"pipes\", \"tcp\" or \"unix\""),
            (r#""command": "x", "ttl": 0"#, "ttl: 0 is out of range; write 1 to 31536000 seconds"),
            (r#""command": "x", "codec": "msgpack""#, "\"msgpack\" is not possible here; write \"json\" or \"proto\""),
            (r#""command": "x", "limits": {"shm": 1}"#, "limits/shm: "),
            (r#""command": "x", "isolation": {"rootfs": "/x"}"#, "\"roadrunner\" can only have its own \"cgroup\""),
        ];
        for (options, expected) in cases {
            let error = parse(options).expect_err(options);
            assert!(error.starts_with("applications/x") && error.contains(expected), "{options}: {error}");
        }
    }
}
