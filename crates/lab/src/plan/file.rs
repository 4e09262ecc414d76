//! The fields of lab.json, as they are written. [`super::read`] gives them their meaning.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Reads a part of lab.json.
///
/// # Errors
/// The message begins with the path of the wrong value, if it is not the part itself.
pub fn part<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
        "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })
}

/// lab.json.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabFile {
    /// The title of the report.
    pub title: String,
    /// A text about the lab.
    #[serde(default)]
    pub description: String,
    /// The application.
    pub application: ApplicationFile,
    /// The stacks: names of manifests, or [`StackObject`]s.
    pub stacks: Vec<Value>,
    /// The loads.
    pub loads: Vec<LoadFile>,
    /// The requests: a list of paths and [`TargetObject`]s, or a [`RecordedFile`]. A load can have its own.
    #[serde(default)]
    pub targets: Option<Value>,
    /// The checks of all responses. A target can have its own.
    #[serde(default)]
    pub checks: ChecksFile,
    /// The number of PHP processes of each stack; the number of cores if it is missing.
    #[serde(default)]
    pub workers: Option<u32>,
    /// The number of rounds.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// The seed of the random order.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The cores of the load generator and of the stacks.
    #[serde(default)]
    pub cores: CoresFile,
    /// The number of threads of the load generator.
    #[serde(default)]
    pub threads: Option<usize>,
    /// Helpers of the application that run during the lab, such as Redis.
    #[serde(default)]
    pub services: Vec<ServiceFile>,
    /// Regular expressions of parts of bodies that differ from response to response, or from stack to stack.
    #[serde(default)]
    pub varies: Vec<String>,
    /// `--quick`: what is different then.
    #[serde(default)]
    pub quick: QuickFile,
    /// The capacity that rates in percent refer to: `const(60%, 3s)`.
    #[serde(default)]
    pub capacity: Option<CapacityFile>,
    /// Whether each run is followed by another one in which perf counts system calls and instructions.
    #[serde(default)]
    pub counts: bool,
    /// The promises of the lab: `--check` fails unless they are kept.
    #[serde(default)]
    pub bars: Vec<BarFile>,
}

/// The application.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationFile {
    /// The document root.
    pub root: String,
    /// The script below it that answers all URLs that are neither a file nor a script.
    #[serde(default)]
    pub front_controller: Option<String>,
    /// Scripts of stacks that keep the application in memory, by the names of their manifests.
    #[serde(default)]
    pub scripts: BTreeMap<String, String>,
    /// The environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// PHP's version, such as `8.2`; the newest one with PHP-FPM or the command line if it is missing.
    #[serde(default)]
    pub php: Option<String>,
    /// php.ini settings.
    #[serde(default)]
    pub ini: BTreeMap<String, String>,
    /// A php.ini instead of the distribution's.
    #[serde(default)]
    pub php_ini: Option<String>,
    /// PHP's user if the lab runs as root.
    #[serde(default)]
    pub user: Option<String>,
}

/// A stack with settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackObject {
    /// Its name in the lab.
    pub name: String,
    /// The name of its manifest; its own name if it is missing.
    #[serde(default)]
    pub stack: Option<String>,
    /// Its name for people; the manifest's if it is missing.
    #[serde(default)]
    pub label: Option<String>,
    /// The settings of its manifest.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// The number of its PHP processes.
    #[serde(default)]
    pub workers: Option<u32>,
    /// Its environment beside the application's.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// php.ini settings of this stack only: the report states them.
    #[serde(default)]
    pub ini: BTreeMap<String, String>,
    /// Its script; that of `application/scripts` if it is missing.
    #[serde(default)]
    pub script: Option<String>,
    /// Without a manifest: a command that listens on 127.0.0.1 and the port `{{ port }}`.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Without a manifest: a server that runs already, `http://127.0.0.1:8080`.
    #[serde(default)]
    pub url: Option<String>,
}

/// A load: a schedule, or a number of connections with a duration or a number of requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadFile {
    /// Its name in the lab.
    pub name: String,
    /// Its name for people.
    #[serde(default)]
    pub label: Option<String>,
    /// Open loop: `line(1, 1000, 60s) const(1000, 540s)`.
    #[serde(default)]
    pub schedule: Option<String>,
    /// Closed loop: the number of clients. Open loop: the limit of connections.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Closed loop: `30s`.
    #[serde(default)]
    pub duration: Option<String>,
    /// Closed loop: the number of requests.
    #[serde(default)]
    pub requests: Option<u64>,
    /// Whether connections are used again; yes if it is missing.
    #[serde(default)]
    pub keep_alive: Option<bool>,
    /// The time-out of a request; `10s` if it is missing.
    #[serde(default)]
    pub timeout: Option<String>,
    /// The time before the measurement; `2s` if it is missing.
    #[serde(default)]
    pub warm_up: Option<String>,
    /// Conditions that end a run before its time.
    #[serde(default)]
    pub autostop: Vec<String>,
    /// The objective: `p99 < 200ms, errors < 0.1%`.
    #[serde(default)]
    pub objective: Option<String>,
    /// The requests of this load.
    #[serde(default)]
    pub targets: Option<Value>,
    /// Whether each client returns the cookies that it received.
    #[serde(default)]
    pub cookies: bool,
    /// A file with values of `Cookie`, one a line, for the clients in turn.
    #[serde(default)]
    pub sessions: Option<String>,
    /// Whether the stack is started again before this load.
    #[serde(default)]
    pub fresh: bool,
}

/// How the capacity is measured, once before the race: by clients that wait for a response before their next request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacityFile {
    /// The stack; the first one if it is missing.
    #[serde(default)]
    pub stack: Option<String>,
    /// The requests, as those of a load.
    pub targets: Value,
    /// The number of clients.
    pub connections: u32,
    /// `3s`
    pub duration: String,
}

/// A bar: a figure of a stack, by itself, or divided by that of other stacks or of another load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BarFile {
    /// The loads.
    pub loads: Vec<String>,
    /// The stack.
    pub stack: String,
    /// The figure: [`crate::statistics::bars::Figure`].
    pub figure: String,
    /// The other stacks: the best one of them counts.
    #[serde(default)]
    pub than: Vec<String>,
    /// The other load.
    #[serde(default)]
    pub than_load: Option<String>,
    /// The least value.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// The highest value.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// A difference up to this value does not count, whatever the ratio; in the figure's unit.
    #[serde(default)]
    pub grain: f64,
    /// Whether it may stay without a measurement.
    #[serde(default)]
    pub optional: bool,
}

/// A recording.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFile {
    /// An access log.
    #[serde(default)]
    pub access_log: Option<String>,
    /// A HAR file.
    #[serde(default)]
    pub har: Option<String>,
}

/// A request with details.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetObject {
    /// `/index.php?a=b`
    pub path: String,
    /// `GET` if it is missing.
    #[serde(default)]
    pub method: Option<String>,
    /// Its share, relative to the sum of all weights; 1 if it is missing.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Header fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(default)]
    pub body: Option<String>,
    /// A file with the body.
    #[serde(default)]
    pub body_file: Option<String>,
    /// Its checks, instead of those of all responses.
    #[serde(default)]
    pub checks: Option<ChecksFile>,
}

/// Checks of responses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChecksFile {
    /// The right statuses; 200 to 399 if it is empty.
    #[serde(default)]
    pub status: Vec<u16>,
    /// Header fields and what their values contain.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A text that the body contains.
    #[serde(default)]
    pub contains: Option<String>,
    /// A text that the body does not contain.
    #[serde(default)]
    pub lacks: Option<String>,
    /// A regular expression that the body matches.
    #[serde(default)]
    pub matches: Option<String>,
    /// The length of the body.
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// Cores.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoresFile {
    /// The cores of the load generator.
    #[serde(default)]
    pub generator: Vec<u32>,
    /// The cores of the stacks.
    #[serde(default)]
    pub stacks: Vec<u32>,
}

/// A helper of the application.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceFile {
    /// Its name: `{{ port }}` in its command and `{{ services.NAME.port }}` in php.ini settings and the environment are
    /// its port; `{{ folder }}` is a folder of its own, `{{ lab }}` that of lab.json.
    pub name: String,
    /// Its command.
    pub command: Vec<String>,
    /// A command that is run before its start.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// How to install it.
    #[serde(default)]
    pub install: String,
}

/// The differences with `--quick`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickFile {
    /// The number of rounds; 3 if it is missing.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// The longest duration of a load; `5s` if it is missing. Schedules become shorter at the same rates.
    #[serde(default)]
    pub duration: Option<String>,
    /// The highest number of requests of a closed load; a tenth if it is missing.
    #[serde(default)]
    pub requests: Option<u64>,
}
