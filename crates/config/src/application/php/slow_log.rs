//! `slow_log`: the log of an application's slow requests.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};

pub(crate) const OPTIONS: Options = Options { known: &["threshold", "path", "samples"], unsupported: &[] };

const THRESHOLD_SECONDS: std::ops::RangeInclusive<f64> = 0.01..=86400.0;
const MAX_SAMPLES: u32 = 100;
const DEFAULT_SAMPLES: u32 = 3;

/// The slow log of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowLog {
    /// The time after which a request is slow: 10 ms to a day.
    pub threshold: Duration,
    /// The file, an absolute path; `None`: a file in the state directory.
    pub path: Option<PathBuf>,
    /// The number of samples of PHP's stack for each request: 1 to 100.
    pub samples: u32,
}

// === impl SlowLog ===

impl SlowLog {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let threshold = object.require("threshold", "\"threshold\": 1, in seconds")?;
        Ok(Self {
            threshold: duration::seconds(&threshold, THRESHOLD_SECONDS)?,
            path: object.read("path", Node::absolute_path)?,
            samples: object
                .read("samples", |node| node.integer(1..=MAX_SAMPLES, "samples"))?
                .unwrap_or(DEFAULT_SAMPLES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<SlowLog, String> {
        let value = json::parse(json).expect("JSON");
        SlowLog::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_threshold_is_required() {
        let slow = SlowLog { threshold: Duration::from_millis(500), path: None, samples: 3 };
        assert_eq!(read(r#"{"threshold": 0.5}"#), Ok(slow));
        let slow = SlowLog { threshold: Duration::from_secs(2), path: Some("/var/log/slow".into()), samples: 1 };
        assert_eq!(read(r#"{"threshold": 2, "path": "/var/log/slow", "samples": 1}"#), Ok(slow));
    }

    #[test]
    fn an_error_names_the_value() {
        let cases = [
            ("{}", "\"threshold\" is missing; add \"threshold\": 1, in seconds"),
            (r#"{"threshold": 0}"#, "threshold: 0 is out of range; write 0.01 to 86400 seconds"),
            (
                r#"{"threshold": "1x"}"#,
                "threshold: \"1x\" is not a time; write 0.01 to 86400 seconds, as a number or with a unit: \"30s\"",
            ),
            (r#"{"threshold": 1, "samples": 0}"#, "samples: 0 is out of range; write 1 to 100 samples"),
            (r#"{"threshold": 1, "path": "slow"}"#, "path: \"slow\" is not an absolute path; begin it with \"/\""),
            (r#"{"treshold": 1}"#, "treshold: there is no such option; did you mean \"threshold\"?"),
            ("1", "expected an object, found the number 1; its options are \"threshold\", \"path\", \"samples\""),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected.to_owned()), "{json}");
        }
    }
}
