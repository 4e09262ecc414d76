//! `processes`: the number of workers of an application.

use std::time::Duration;

use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::read::size;

pub(crate) const OPTIONS: Options = Options { known: &["max", "spare", "idle_timeout", "auto"], unsupported: &[] };
pub(crate) const AUTO_OPTIONS: Options = Options { known: &["max", "memory"], unsupported: &[] };

/// A typing error must not exhaust the machine with processes.
const MAX_PROCESSES: u32 = 1024;
const MAX_IDLE_SECONDS: u64 = i32::MAX as u64 / 1000;
const DEFAULT_IDLE_SECONDS: u64 = 15;
/// Every PHP process needs more than this.
const LEAST_MEMORY: u64 = 1 << 20;

/// The number of workers of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// howdah chooses the number that suits the application and the machine.
    Automatic {
        /// The maximum, from 1 to 1024; `None`: howdah's own maximum.
        max: Option<u32>,
        /// The memory that all workers together may use, in bytes; `None`: what the machine can spare.
        memory: Option<u64>,
    },
    /// A fixed number, from 1 to 1024.
    Fixed(u32),
    /// A number that follows the load.
    Dynamic {
        /// The maximum, from 1 to 1024. Default: 1.
        max: u32,
        /// The number of idle workers kept ready, at most `max`. Default: 0.
        spare: u32,
        /// An idle worker beyond the spare ones exits after this time. Default: 15 s.
        idle_timeout: Duration,
    },
}

// === impl Processes ===

impl Processes {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        if node.is_string() && node.string()? == "auto" {
            return Ok(Self::default());
        }
        if !node.is_object() {
            return node.integer(1..=MAX_PROCESSES, "processes, or \"auto\"").map(Self::Fixed);
        }
        let object = node.object(&OPTIONS)?;
        if let Some(automatic) = object.read("auto", Self::read_automatic)? {
            if let Some(other) = OPTIONS.known.iter().find(|name| **name != "auto" && object.get(name).is_some()) {
                let advice = match AUTO_OPTIONS.known.contains(other) {
                    true => "move it into \"auto\", or remove one of them",
                    false => "\"auto\" chooses it; remove one of them",
                };
                return Err(node.error(format!("\"{other}\" cannot be combined with \"auto\"; {advice}")));
            }
            return Ok(automatic);
        }
        let max = object.read("max", |node| node.integer(1..=MAX_PROCESSES, "processes"))?.unwrap_or(1);
        let spare = object.read("spare", |node| node.integer(0..=MAX_PROCESSES, "processes"))?.unwrap_or(0);
        if spare > max {
            let problem = format!("\"spare\" is {spare}, but \"max\" is only {max}; raise \"max\"");
            return Err(node.error(problem));
        }
        let idle_timeout = object.read("idle_timeout", |node| duration::whole_seconds(node, 0..=MAX_IDLE_SECONDS))?;
        let idle_timeout = idle_timeout.unwrap_or(Duration::from_secs(DEFAULT_IDLE_SECONDS));
        Ok(Self::Dynamic { max, spare, idle_timeout })
    }

    fn read_automatic(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&AUTO_OPTIONS)?;
        Ok(Self::Automatic {
            max: object.read("max", |node| node.integer(1..=MAX_PROCESSES, "processes"))?,
            memory: object.read("memory", |node| size::read(node, LEAST_MEMORY))?.filter(|bytes| *bytes > 0),
        })
    }

    /// The maximum number of workers; `None`: howdah's own maximum.
    pub fn max(self) -> Option<u32> {
        match self {
            Self::Automatic { max, .. } => max,
            Self::Fixed(max) | Self::Dynamic { max, .. } => Some(max),
        }
    }
}

impl Default for Processes {
    fn default() -> Self {
        Self::Automatic { max: None, memory: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<Processes, String> {
        let value = json::parse(json).expect("JSON");
        Processes::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn processes_are_a_number_or_follow_the_load() {
        let dynamic =
            |max, spare, seconds| Ok(Processes::Dynamic { max, spare, idle_timeout: Duration::from_secs(seconds) });
        let cases = [
            ("3", Ok(Processes::Fixed(3))),
            (r#"{"max": 120, "spare": 5, "idle_timeout": 20}"#, dynamic(120, 5, 20)),
            (r#"{"max": 5, "spare": 5, "idle_timeout": 0}"#, dynamic(5, 5, 0)),
            ("{}", dynamic(1, 0, 15)),
            ("\"auto\"", Ok(Processes::default())),
            (r#"{"auto": {}}"#, Ok(Processes::default())),
            (
                r#"{"auto": {"max": 50, "memory": 1073741824}}"#,
                Ok(Processes::Automatic { max: Some(50), memory: Some(1 << 30) }),
            ),
            (r#"{"auto": {"memory": "1G"}}"#, Ok(Processes::Automatic { max: None, memory: Some(1 << 30) })),
            (r#"{"auto": {"memory": 0}}"#, Ok(Processes::default())),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), expected, "{json}");
        }
        assert_eq!(dynamic(9, 0, 0).map(Processes::max), read("9").map(Processes::max));
    }

    #[test]
    fn an_error_names_the_number() {
        let cases = [
            ("0", "0 is out of range; write 1 to 1024 processes, or \"auto\""),
            ("1025", "1025 is out of range; write 1 to 1024 processes, or \"auto\""),
            ("\"3\"", "expected a whole number (write 1 to 1024 processes, or \"auto\"), found the string \"3\""),
            (r#"{"auto": {"max": 0}}"#, "auto/max: 0 is out of range; write 1 to 1024 processes"),
            (
                r#"{"auto": {"memory": 5}}"#,
                "auto/memory: 5 bytes are too few; \
                 write 1048576 bytes or more, such as 1048576 or \"128M\", or 0 for no limit",
            ),
            (r#"{"auto": {"spare": 5}}"#, "auto/spare: there is no such option; remove it"),
            (
                r#"{"auto": {}, "max": 5}"#,
                "\"max\" cannot be combined with \"auto\"; move it into \"auto\", or remove one of them",
            ),
            (
                r#"{"auto": {}, "spare": 5}"#,
                "\"spare\" cannot be combined with \"auto\"; \"auto\" chooses it; remove one of them",
            ),
            (r#"{"max": 0}"#, "max: 0 is out of range; write 1 to 1024 processes"),
            (r#"{"spare": -1}"#, "spare: -1 is out of range; write 0 to 1024 processes"),
            (r#"{"spare": 2}"#, "\"spare\" is 2, but \"max\" is only 1; raise \"max\""),
            (r#"{"idle_timeout": -1}"#, "idle_timeout: -1 is out of range; write 0 to 2147483 seconds"),
            (r#"{"maxx": 1}"#, "maxx: there is no such option; did you mean \"max\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected.to_owned()), "{json}");
        }
    }
}
