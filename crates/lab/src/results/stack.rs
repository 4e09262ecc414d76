//! The servers of a lab: their versions, configuration files and commands; those that were skipped.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One server, or several that work together, in one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// Its name in the lab: unique, `[a-z0-9-]`.
    pub name: String,
    /// Its name for people: `nginx + PHP-FPM, static, unix socket`.
    pub label: String,
    /// The folder of its manifest: `nginx-fpm`.
    pub manifest: String,
    /// The settings with which its templates were filled: `{"pm": "static", "socket": "unix"}`.
    pub settings: BTreeMap<String, String>,
    /// Its programs and their versions.
    pub versions: Vec<Version>,
    /// Its PHP processes.
    pub workers: Workers,
    /// Its PHP as it reported itself; `None` if it never answered.
    pub php: Option<PhpFacts>,
    /// The configuration files that the lab wrote for it.
    pub files: Vec<StackFile>,
    /// The commands that started it, in their order.
    pub commands: Vec<CommandUsed>,
    /// Remarks of its manifest: what it needs of the application, what it cannot do.
    pub notes: Vec<String>,
    /// The time from its start to its first right answer; median of all starts.
    pub ready_after_seconds: Option<f64>,
}

/// A program and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// `nginx`, `PHP-FPM`.
    pub program: String,
    /// `1.22.1`; `unknown` if the program does not print it.
    pub version: String,
}

/// The number of PHP processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    /// The number that the lab asked for; `None` if the stack chooses it.
    pub count: Option<u32>,
    /// The policy in words: `2, as for all stacks`, `chosen by howdah`.
    pub policy: String,
}

/// A stack's PHP, as the probe page reported it through the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhpFacts {
    /// `8.2.29`
    pub version: String,
    /// `fpm-fcgi`
    pub sapi: String,
    /// Whether opcache is on.
    pub opcache: bool,
    /// SHA-256 of all settings that matter to scripts, in hexadecimal digits.
    pub ini_digest: String,
    /// The loaded extensions, sorted.
    pub extensions: Vec<String>,
}

/// A configuration file that the lab wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFile {
    /// Its path inside of the stack's folder: `nginx.conf`.
    pub path: String,
    /// Its text.
    pub content: String,
    /// Whether a reader who chooses this stack pastes it: a php.ini is common to all, a configuration is not.
    pub is_configuration: bool,
}

/// A command that the lab ran for a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandUsed {
    /// Its purpose: `start`, `prepare`.
    pub purpose: String,
    /// Its words.
    pub command: Vec<String>,
    /// The environment that it got.
    pub environment: BTreeMap<String, String>,
}

/// A stack of the lab that could not be raced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedStack {
    /// Its name in the lab.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// The folder of its manifest.
    pub manifest: String,
    /// The reason: `nginx is not installed`.
    pub reason: String,
    /// A remedy: `apt-get install nginx-light`; empty if the lab knows nothing.
    pub remedy: String,
    /// The last lines of its log, if it was started; else empty.
    pub log: Vec<String>,
}
