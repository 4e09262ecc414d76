//! A program that is not howdah's own: the options that applications of the types `http` and `roadrunner` have in common.

pub(crate) mod command;
pub(crate) mod http;
pub(crate) mod roadrunner;

use std::path::PathBuf;
use std::time::Duration;

use crate::application::isolation::{self, Cgroup};
use crate::application::php as php_application;
use crate::application::php::send_file::SendFile;
use crate::application::process_settings::ProcessSettings;
use crate::application::program::command::{AddressVariable, ProgramCommand};
use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Object, Options};

pub(crate) const ISOLATION_OPTIONS: Options = Options { known: &["cgroup"], unsupported: &[] };

/// A typing error must not exhaust the machine with processes.
const MAX_PROCESSES: u16 = 256;
const STOP_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A program, and how its processes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub command: ProgramCommand,
    /// How many processes there are, from 1 to 256; `None`: the default of its type.
    pub processes: Option<u16>,
    /// Where they start, an absolute path; `None`: howdah's own.
    pub working_directory: Option<PathBuf>,
    /// Their environment, user and outputs.
    pub process_settings: ProcessSettings,
    /// Its control group; `None`: howdah's own.
    pub cgroup: Option<Cgroup>,
    /// How long a process may take to exit after it was asked to. Default: 30 s.
    pub stop_timeout: Duration,
    /// `send_file`: folders whose files it may have howdah send.
    pub send_file: SendFile,
}

// === impl Program ===

impl Program {
    /// Reads the options of an application of this type. `check` returns the problem of a variable of the command.
    pub(crate) fn read(
        object: &Object<'_>,
        kind: &str,
        command: &Node<'_>,
        check: impl Fn(AddressVariable) -> Result<(), String>,
    ) -> Result<Self, Error> {
        Ok(Self {
            command: ProgramCommand::read(command, check)?,
            processes: object.read("processes", |node| read_processes(node, kind))?,
            working_directory: object.read("working_directory", Node::absolute_path)?,
            process_settings: ProcessSettings::read(object)?,
            cgroup: object.read("isolation", |node| read_isolation(node, kind))?.flatten(),
            stop_timeout: object
                .read("stop_timeout", |node| duration::seconds(node, STOP_SECONDS))?
                .unwrap_or(DEFAULT_STOP_TIMEOUT),
            send_file: object.read("send_file", SendFile::read)?.unwrap_or_default(),
        })
    }
}

/// Rejects an option of PHP applications that this type does not have, with advice.
pub(crate) fn reject_php_options(
    node: &Node<'_>,
    kind: &str,
    options: &Options,
    advice: impl Fn(&str) -> &'static str,
) -> Result<(), Error> {
    for name in php_application::OPTIONS.known.iter().filter(|name| !options.known.contains(name)) {
        if let Some(option) = node.member(name) {
            let advice = advice(name);
            return Err(option.error(format_args!("an application of the type \"{kind}\" does not have it; {advice}")));
        }
    }
    Ok(())
}

fn read_processes(node: &Node<'_>, kind: &str) -> Result<u16, Error> {
    if node.is_string_of("auto") || node.is_object() {
        return Err(node.error(format_args!(
            "howdah does not choose the number of processes of the type \"{kind}\"; write a number, 1 to {MAX_PROCESSES}"
        )));
    }
    node.integer(1..=MAX_PROCESSES, "processes")
}

fn read_isolation(node: &Node<'_>, kind: &str) -> Result<Option<Cgroup>, Error> {
    for name in isolation::OPTIONS.known.iter().filter(|name| !ISOLATION_OPTIONS.known.contains(name)) {
        if let Some(option) = node.member(name) {
            return Err(option.error(format_args!(
                "an application of the type \"{kind}\" can only have its own \"cgroup\"; remove it, or start the program \
                 in a container by its \"command\""
            )));
        }
    }
    node.object(&ISOLATION_OPTIONS)?.read("cgroup", Cgroup::read)
}
