//! Counts the requests of clients that are being answered, for `connection_limit`, for all threads together.
//!
//! A request is counted from its action to the end of its response, and a WebSocket to its end. A client is an IPv4
//! address, or the /64 of an IPv6 address. Clients on Unix sockets are not limited.

use crate::access::client::{ClientMap, CountedRequest, LimitedClient};
use crate::report::OncePerMinute;
use crate::response::failure::Failure;
use howdah_config::ConnectionLimit;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

/// The clients of all limits of a configuration.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLimits {
    /// The number of requests. It is at least 1.
    counts: Arc<ClientMap<u32>>,
}

/// `Retry-After`, in seconds: when a request will have ended is not known.
const RETRY_AFTER: u32 = 1;

static REFUSED: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

// === impl ConnectionLimits ===

impl ConnectionLimits {
    /// Counts a request of this client until the result is dropped; `None` for a client that is not limited.
    ///
    /// # Errors
    /// 429 if this client has as many requests already.
    pub fn count(&self, limit: &ConnectionLimit, client: &str) -> Result<Option<CountedRequest>, Failure> {
        let Ok(address) = client.parse::<IpAddr>() else { return Ok(None) };
        let client = LimitedClient::new(address, limit.index);
        match CountedRequest::begin(&self.counts, client, limit.requests) {
            Some(counted) => Ok(Some(counted)),
            None => {
                if REFUSED.is_due(client.network) {
                    tracing::warn!(limit = limit.requests, "a client exceeds \"connection_limit\"; answering 429");
                }
                Err(Failure::TooManyRequests { retry_after: RETRY_AFTER })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: ConnectionLimit = ConnectionLimit { index: 0, requests: 2 };

    #[test]
    fn a_client_may_have_some_requests_at_the_same_time() {
        let limits = ConnectionLimits::default();
        let count = |limit, client: &str| limits.count(limit, client);
        let refused = Failure::TooManyRequests { retry_after: RETRY_AFTER };
        let first = count(&TWO, "192.0.2.1").expect("free");
        let second = count(&TWO, "192.0.2.1").expect("free");
        assert_eq!(count(&TWO, "192.0.2.1").expect_err("refused"), refused);
        let other = ConnectionLimit { index: 1, ..TWO };
        assert!(count(&TWO, "192.0.2.2").is_ok() && count(&other, "192.0.2.1").is_ok(), "each has a count of its own");
        drop(second);
        let third = count(&TWO, "192.0.2.1").expect("free again");
        assert_eq!(count(&TWO, "192.0.2.1").expect_err("refused"), refused);
        drop((first, third));
        assert!(limits.counts.shard_lengths().all(|length| length == 0), "nothing is left");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client_and_unix_sockets_are_not_limited() {
        let limits = ConnectionLimits::default();
        let one = ConnectionLimit { index: 0, requests: 1 };
        let held = limits.count(&one, "2001:db8::1").expect("free");
        assert!(limits.count(&one, "2001:db8::2").is_err() && limits.count(&one, "2001:db8:0:1::1").is_ok());
        assert!(matches!(limits.count(&one, "unix:"), Ok(None)));
        drop(held);
        assert!(limits.count(&one, "2001:db8::2").is_ok());
    }
}
