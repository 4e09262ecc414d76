//! `limits`: how long a request may take or wait, and when a worker is replaced.

use std::time::Duration;

use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::read::size;

pub(crate) const OPTIONS: Options = Options {
    known: &["timeout", "requests", "memory", "queue_timeout"],
    unsupported: &[("shm", "the channel's size follows from \"processes\"; remove it")],
};

const MAX_TIMEOUT_SECONDS: u64 = i32::MAX as u64 / 1000;
const MAX_REQUESTS: u32 = i32::MAX as u32;
/// Every worker grows by more than this, so each would be replaced after each request.
const LEAST_MEMORY: u64 = 1 << 20;
const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// In seconds. Clients do not wait longer than the maximum.
const QUEUE_TIMEOUTS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// The limits of an application's requests and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time after which a running request is answered 504 and its worker is killed; `None`: no limit.
    pub timeout: Option<Duration>,
    /// The number of requests after which a worker is replaced; `None`: no limit.
    pub requests: Option<u32>,
    /// The growth since its start, in bytes, after which a worker is replaced when its request is finished; `None`: no
    /// limit.
    pub memory: Option<u64>,
    /// The time that a request may wait for a worker before it is answered 503.
    pub queue_timeout: Duration,
}

// === impl Limits ===

impl Limits {
    /// Reads the limits. A value of 0 is no limit.
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let timeout = object.read("timeout", |node| duration::whole_seconds(node, 0..=MAX_TIMEOUT_SECONDS))?;
        let requests = object.read("requests", |node| node.integer(0..=MAX_REQUESTS, "requests"))?;
        let memory = object.read("memory", |node| size::read(node, LEAST_MEMORY))?;
        let queue_timeout = object.read("queue_timeout", |node| duration::seconds(node, QUEUE_TIMEOUTS))?;
        Ok(Self {
            queue_timeout: queue_timeout.unwrap_or(DEFAULT_QUEUE_TIMEOUT),
            timeout: timeout.filter(|timeout| !timeout.is_zero()),
            requests: requests.filter(|requests| *requests > 0),
            memory: memory.filter(|bytes| *bytes > 0),
        })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: None, requests: None, memory: None, queue_timeout: DEFAULT_QUEUE_TIMEOUT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<Limits, String> {
        let value = json::parse(json).expect("JSON");
        Limits::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_limit_of_0_is_no_limit() {
        let limits = Limits {
            timeout: Some(Duration::from_secs(10)),
            requests: Some(500),
            memory: Some(64 << 20),
            ..Limits::default()
        };
        assert_eq!(read(r#"{"timeout": 10, "requests": 500, "memory": "64M"}"#), Ok(limits));
        assert_eq!(read(r#"{"timeout": 0, "requests": 0, "memory": 0}"#), Ok(Limits::default()));
        assert_eq!(read("{}"), Ok(Limits::default()));
        let waits = Limits { queue_timeout: Duration::from_millis(2500), ..Limits::default() };
        assert_eq!(read(r#"{"queue_timeout": 2.5}"#), Ok(waits));
    }

    #[test]
    fn an_error_names_the_limit() {
        let cases = [
            (r#"{"timeout": -1}"#, "timeout: -1 is out of range; write 0 to 2147483 seconds"),
            (r#"{"queue_timeout": 0}"#, "queue_timeout: 0 is out of range; write 0.1 to 3600 seconds"),
            (r#"{"requests": 1.5}"#, "requests: 1.5 is not a whole number; write 0 to 2147483647 requests"),
            (
                r#"{"memory": 128}"#,
                "memory: 128 bytes are too few; \
                 write 1048576 bytes or more, such as 1048576 or \"128M\", or 0 for no limit",
            ),
            (
                r#"{"memory": "128MB"}"#,
                "memory: \"128MB\" is not a number of bytes; \
                 write 1048576 bytes or more, such as 1048576 or \"128M\", or 0 for no limit",
            ),
            (
                r#"{"shm": 1048576}"#,
                "shm: howdah does not have this option of NGINX Unit; \
                 the channel's size follows from \"processes\"; remove it",
            ),
            (r#"{"request": 1}"#, "request: there is no such option; did you mean \"requests\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected.to_owned()), "{json}");
        }
    }
}
