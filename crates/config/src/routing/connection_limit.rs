//! `connection_limit`: how many requests of a client an action answers at the same time.

use crate::error::Error;
use crate::read::node::Node;
use crate::read::scope::Scope;

const MAX_REQUESTS: u32 = 1_000_000;

/// The limit of each client of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// Distinguishes it from the other limits of the configuration, in the order of the text.
    pub index: usize,
    /// The number of requests that are answered at the same time, from 1. With HTTP/1, this is the number of
    /// connections.
    pub requests: u32,
}

// === impl ConnectionLimit ===

impl ConnectionLimit {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        Ok(Self { index: scope.next_connection_limit(), requests: node.integer(1..=MAX_REQUESTS, "requests")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn limits(routes: &str) -> Result<Vec<Option<ConnectionLimit>>, String> {
        let configuration = Configuration::parse(&format!(r#"{{"routes": [{routes}]}}"#));
        let configuration = configuration.map_err(|error| error.to_string())?;
        Ok(configuration.routes.actions().map(|action| action.connection_limit).collect())
    }

    #[test]
    fn every_limit_has_its_own_index() {
        let step = |limit: &str| format!(r#"{{"action": {{"return": 200, "connection_limit": {limit}}}}}"#);
        let limit = |index, requests| Some(ConnectionLimit { index, requests });
        assert_eq!(limits(&["5", "1"].map(step).join(", ")), Ok(vec![limit(0, 5), limit(1, 1)]));
        assert_eq!(limits(r#"{"action": {"return": 200}}"#), Ok(vec![None]));
        for (wrong, expected) in [
            ("0", "connection_limit: 0 is out of range; write 1 to 1000000 requests"),
            ("{}", "connection_limit: expected a whole number (write 1 to 1000000 requests), found an object"),
        ] {
            let error = limits(&step(wrong)).expect_err(wrong);
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
