//! `rate_limit`: how many requests a client may send to an action.

use std::time::Duration;

use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;

pub(crate) const OPTIONS: Options = Options { known: &["requests", "per"], unsupported: &[] };

const MAX_REQUESTS: u32 = 1_000_000;
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86400.0;

/// The limit of each client of an action: this number of requests at once, and then one each `per / requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Distinguishes it from the other limits of the configuration, in the order of the text.
    pub index: usize,
    /// The number of requests, from 1.
    pub requests: u32,
    /// The time in which they may come. Default: 1 s.
    pub per: Duration,
}

// === impl RateLimit ===

impl RateLimit {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let requests = object.require("requests", "\"requests\": 10")?;
        Ok(Self {
            index: scope.next_rate_limit(),
            requests: requests.integer(1..=MAX_REQUESTS, "requests")?,
            per: object.read("per", |node| duration::seconds(node, SECONDS))?.unwrap_or(Duration::from_secs(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn limits(routes: &str) -> Result<Vec<Option<RateLimit>>, String> {
        let configuration = Configuration::parse(&format!(r#"{{"routes": [{routes}]}}"#));
        let configuration = configuration.map_err(|error| error.to_string())?;
        let route = configuration.routes.find(None).expect("routes");
        Ok(route.steps().iter().map(|step| step.action.rate_limit).collect())
    }

    #[test]
    fn every_limit_has_its_own_index() {
        let step = |limit: &str| format!(r#"{{"action": {{"return": 200, "rate_limit": {limit}}}}}"#);
        let routes = [r#"{"requests": 5, "per": "1m"}"#, r#"{"requests": 100}"#].map(step).join(", ");
        let limit = |index, requests, seconds| Some(RateLimit { index, requests, per: Duration::from_secs(seconds) });
        assert_eq!(limits(&routes), Ok(vec![limit(0, 5, 60), limit(1, 100, 1)]));
        assert_eq!(limits(r#"{"action": {"return": 200}}"#), Ok(vec![None]));
        for (wrong, expected) in [
            ("{}", "rate_limit: \"requests\" is missing; add \"requests\": 10"),
            (r#"{"requests": 0}"#, "rate_limit/requests: 0 is out of range; write 1 to 1000000 requests"),
            (r#"{"requests": 1, "per": 0}"#, "rate_limit/per: 0 is out of range; write 0.1 to 86400 seconds"),
            ("5", "rate_limit: expected an object, found the number 5; its options are \"requests\", \"per\""),
        ] {
            let error = limits(&step(wrong)).expect_err(wrong);
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
