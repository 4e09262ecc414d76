//! `max_fails` and `fail_timeout` of `upstreams`: when a server of a group counts as down.

use std::time::Duration;

use crate::error::Error;
use crate::read::duration;
use crate::read::node::Object;

const MAX_FAILS: u32 = 1_000_000;
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86400.0;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// When a server counts as down: it gets no requests while another server is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureLimit {
    /// For 5 seconds after a connection that it did not accept.
    #[default]
    Connections,
    /// `"max_fails": 0`: never.
    Never,
    /// For `timeout`, after this number of requests without a response within this time.
    Requests {
        /// `max_fails`, at least 1.
        count: u32,
        /// `fail_timeout`. Default: 10 s.
        timeout: Duration,
    },
}

// === impl FailureLimit ===

impl FailureLimit {
    /// Reads the options of an object that has further ones.
    pub(crate) fn read(object: &Object<'_>) -> Result<Self, Error> {
        let timeout = object.read("fail_timeout", |node| duration::seconds(node, SECONDS))?;
        match object.read("max_fails", |node| node.integer(0..=MAX_FAILS, "requests"))? {
            Some(0) => Ok(Self::Never),
            Some(count) => Ok(Self::Requests { count, timeout: timeout.unwrap_or(DEFAULT_TIMEOUT) }),
            None => match object.get("fail_timeout") {
                Some(node) => Err(node.error("it has no effect without \"max_fails\"; add it")),
                None => Ok(Self::default()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn read(json: &str) -> Result<FailureLimit, String> {
        let text = format!(r#"{{"upstreams": {{"u": {{"servers": {{"127.0.0.1:1": {{}}}}{json}}}}}}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        Ok(configuration.upstreams["u"].failure_limit)
    }

    #[test]
    fn failures_are_counted_or_not() {
        let requests = |count, seconds| FailureLimit::Requests { count, timeout: Duration::from_secs(seconds) };
        for (json, expected) in [
            ("", FailureLimit::Connections),
            (r#", "max_fails": 0"#, FailureLimit::Never),
            (r#", "max_fails": 3"#, requests(3, 10)),
            (r#", "max_fails": 1, "fail_timeout": "1m""#, requests(1, 60)),
        ] {
            assert_eq!(read(json), Ok(expected), "{json}");
        }
        for (json, expected) in [
            (r#", "fail_timeout": 5"#, "fail_timeout: it has no effect without \"max_fails\"; add it"),
            (r#", "max_fails": -1"#, "max_fails: -1 is out of range; write 0 to 1000000 requests"),
        ] {
            let error = read(json).expect_err(json);
            assert_eq!(error, format!("upstreams/u/{expected}"));
        }
    }
}
