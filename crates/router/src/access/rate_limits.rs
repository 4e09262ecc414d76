//! Counts the requests of clients for `rate_limit`, for all threads together.
//!
//! For each client and limit, one time is kept: when the client would be back at an unused limit (GCRA, ITU-T I.371). A
//! client is an IPv4 address, or the /64 of an IPv6 address. Clients on Unix sockets are not limited. The memory is
//! bounded: beyond that, first the clients that may send freely are forgotten, then all of a shard.

use crate::access::client::{ClientMap, LimitedClient};
use crate::report::OncePerMinute;
use crate::response::failure::Failure;
use howdah_config::RateLimit;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The clients of all limits of a configuration.
#[derive(Debug, Default)]
pub struct RateLimits {
    /// When the limit is unused again.
    unused: ClientMap<Instant>,
}

/// The number of clients that one shard keeps.
const MAX_CLIENTS: usize = 8192;

static REFUSED: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

// === impl RateLimits ===

impl RateLimits {
    /// Counts a request of this client.
    ///
    /// # Errors
    /// 429 with the time after which the client may send the next one.
    pub fn count(&self, limit: &RateLimit, client: &str) -> Result<(), Failure> {
        match client.parse() {
            Ok(address) => self.count_at(limit, address, Instant::now()).inspect_err(|_| {
                if REFUSED.is_due(LimitedClient::new(address, limit.index).network) {
                    let (requests, per) = (limit.requests, limit.per.as_secs_f64());
                    tracing::warn!(requests, per, "a client exceeds \"rate_limit\"; answering 429");
                }
            }),
            Err(_) => Ok(()),
        }
    }

    fn count_at(&self, limit: &RateLimit, client: IpAddr, now: Instant) -> Result<(), Failure> {
        let client = LimitedClient::new(client, limit.index);
        let mut clients = self.unused.shard(&client);
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, unused| *unused > now);
            if clients.len() >= MAX_CLIENTS {
                clients.clear();
            }
        }
        let interval = limit.per / limit.requests;
        let unused = clients.entry(client).or_insert(now);
        let after = (*unused).max(now) + interval;
        let wait = (after - now).saturating_sub(limit.per);
        if wait > Duration::ZERO {
            return Err(Failure::TooManyRequests { retry_after: wait.as_secs_f64().ceil() as u32 });
        }
        *unused = after;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_MINUTE: RateLimit = RateLimit { index: 0, requests: 3, per: Duration::from_secs(60) };

    #[test]
    fn a_client_may_send_all_requests_at_once_and_then_one_by_one() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let count =
            |seconds: u64| limits.count_at(&PER_MINUTE, [192, 0, 2, 1].into(), start + Duration::from_secs(seconds));
        let refused = |retry_after| Err(Failure::TooManyRequests { retry_after });
        for (seconds, expected) in [
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, refused(20)),
            (5, refused(15)),
            (20, Ok(())),
            (20, refused(20)),
            (120, Ok(())),
            (120, Ok(())),
            (120, Ok(())),
            (121, refused(19)),
        ] {
            assert_eq!(count(seconds), expected, "after {seconds} s");
        }
    }

    #[test]
    fn clients_and_limits_are_counted_separately() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        let one = RateLimit { requests: 1, ..PER_MINUTE };
        let other = RateLimit { index: 1, ..one };
        let count = |limit, client: &str| limits.count_at(limit, client.parse().unwrap(), now).is_ok();
        assert!(count(&one, "192.0.2.1") && !count(&one, "192.0.2.1"));
        assert!(count(&one, "192.0.2.2") && count(&other, "192.0.2.1"));
        assert!(count(&one, "2001:db8::1") && !count(&one, "2001:db8::2") && count(&one, "2001:db8:0:1::1"));
        assert_eq!(limits.count(&one, "unix:"), Ok(()));
        assert_eq!(limits.count(&one, "unix:"), Ok(()));
    }

    #[test]
    fn the_memory_is_bounded() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        for client in 0..200_000_u32 {
            let _ = limits.count_at(&PER_MINUTE, IpAddr::V4(client.into()), now);
        }
        assert!(limits.unused.shard_lengths().all(|length| length <= MAX_CLIENTS));
    }
}
