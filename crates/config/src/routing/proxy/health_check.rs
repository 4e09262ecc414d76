//! `health_check` of `upstreams`: requests by which howdah itself finds out which servers of a group work.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::{Error, quoted};
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::read::status;

pub(crate) const OPTIONS: Options =
    Options { known: &["path", "host", "interval", "timeout", "status", "fails", "passes"], unsupported: &[] };

const SECONDS: RangeInclusive<f64> = 0.1..=86400.0;
const MAX_COUNT: u32 = 1000;

/// How the servers of an upstream are checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    /// The target of the request: a path with a slash at its beginning, and perhaps a query. Default: `/`.
    pub path: String,
    /// The header `Host`; `None`: the server's address.
    pub host: Option<String>,
    /// The time from the end of one check of a server to its next check. Default: 5 s.
    pub interval: Duration,
    /// The time in which the head of a response must have arrived. Default: 2 s.
    pub timeout: Duration,
    /// The statuses of a healthy server. Default: 200 to 399.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// How many failed checks in a row make a server unhealthy. Default: 3.
    pub fails: u32,
    /// How many passed checks in a row make a server healthy again. Default: 1.
    pub passes: u32,
}

// === impl HealthCheck ===

impl HealthCheck {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let seconds = |key, default| {
            let read = object.read(key, |node| duration::seconds(node, SECONDS));
            read.map(|read| read.unwrap_or(Duration::from_secs(default)))
        };
        let count = |key, default| {
            let read = object.read(key, |node| node.integer(1..=MAX_COUNT, "checks"));
            read.map(|read| read.unwrap_or(default))
        };
        Ok(Self {
            path: object.read("path", read_path)?.unwrap_or_else(|| "/".to_owned()),
            host: object.read("host", read_host)?,
            interval: seconds("interval", 5)?,
            timeout: seconds("timeout", 2)?,
            statuses: object.read("status", status::ranges)?.unwrap_or_else(|| vec![200..=399]),
            fails: count("fails", 3)?,
            passes: count("passes", 1)?,
        })
    }

    /// Whether a healthy server may answer with this status.
    pub fn accepts(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

fn read_path(node: &Node<'_>) -> Result<String, Error> {
    let path = node.nonempty_string()?;
    let is_target = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    match is_target {
        true => Ok(path),
        false => Err(node.error(format_args!(
            "{} cannot be requested; write a path such as \"/health\", percent-encoded",
            quoted(&path)
        ))),
    }
}

fn read_host(node: &Node<'_>) -> Result<String, Error> {
    let host = node.nonempty_string()?;
    match host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte)) {
        true => Ok(host),
        false => Err(node.error(format_args!("{} is not a host; write one such as \"example.com\"", quoted(&host)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn read(json: &str) -> Result<HealthCheck, String> {
        let text =
            format!(r#"{{"upstreams": {{"u": {{"servers": {{"127.0.0.1:1": {{}}}}, "health_check": {json}}}}}}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        Ok(configuration.upstreams["u"].health_check.clone().expect("check"))
    }

    #[test]
    fn every_option_has_a_default() {
        let expected = HealthCheck {
            path: "/".into(),
            host: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            statuses: vec![200..=399],
            fails: 3,
            passes: 1,
        };
        assert_eq!(read("{}"), Ok(expected));
    }

    #[test]
    fn every_option_is_read() {
        let json = r#"{"path": "/health?full=1", "host": "shop.example:8080", "interval": "1m", "timeout": 0.5,
            "status": [204, "300-302"], "fails": 1, "passes": 2}"#;
        let check = read(json).expect("check");
        let expected = HealthCheck {
            path: "/health?full=1".into(),
            host: Some("shop.example:8080".into()),
            interval: Duration::from_secs(60),
            timeout: Duration::from_millis(500),
            statuses: vec![204..=204, 300..=302],
            fails: 1,
            passes: 2,
        };
        assert_eq!(check, expected);
        assert_eq!([200, 204, 301, 303].map(|status| check.accepts(status)), [false, true, true, false]);
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (json, expected) in [
            (r#"{"path": "health"}"#, "/path: \"health\" cannot be requested; write a path such as \"/health\""),
            (r#"{"path": "/a b"}"#, "/path: \"/a b\" cannot be requested"),
            (r#"{"host": "a b"}"#, "/host: \"a b\" is not a host"),
            (r#"{"interval": 0}"#, "/interval: 0 is out of range; write 0.1 to 86400 seconds"),
            (r#"{"status": "2xx"}"#, "/status: \"2xx\" is not a range of statuses"),
            (r#"{"status": []}"#, "/status: the array is empty; write a status such as 200"),
            (r#"{"fails": 0}"#, "/fails: 0 is out of range; write 1 to 1000 checks"),
            (r#"{"uri": "/"}"#, "/uri: there is no such option"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(&format!("upstreams/u/health_check{expected}")), "{error}");
        }
    }
}
