//! The state of one server: whether it gets requests.
//!
//! Failed requests make it *down* for a while. After this while it gets requests again, and the first of them decides:
//! a response makes it up, another failure makes it down again. Failed checks make it *unhealthy*, until checks pass.
//! Each change is one line of the log.

use howdah_config::{Endpoint, FailureLimit, HealthCheck};
use howdah_protocol::messages::router::ServerTrouble;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a server that accepts no connections is down, without `max_fails`.
const DOWN_TIME: Duration = Duration::from_secs(5);

/// A server of an upstream.
pub struct ServerHealth {
    /// The name of the upstream.
    upstream: String,
    endpoint: Endpoint,
    /// Whether `troubles` has any: the common case needs no lock.
    has_trouble: AtomicBool,
    /// Its requests, of all threads.
    active: AtomicU64,
    /// Whether its weight is 0.
    drains: AtomicBool,
    troubles: Mutex<Troubles>,
}

/// A request of a server, until the end of its response.
pub struct ServerRequest(Arc<ServerHealth>);

/// The kind of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The server accepted no connection.
    Connection,
    /// It accepted a connection, but there is no response.
    Response,
}

#[derive(Default)]
struct Troubles {
    /// The latest failed requests, the oldest first.
    failures: VecDeque<Instant>,
    down: Option<Down>,
    /// The latest checks with the same result: how many.
    checks_in_row: u32,
    last_check_passed: bool,
    /// The reason that it is unhealthy.
    unhealthy: Option<String>,
}

/// Requests have failed, and none has succeeded since.
struct Down {
    since: Instant,
    until: Instant,
    reason: String,
}

// === impl ServerHealth ===

impl ServerHealth {
    /// A server that is up.
    pub fn new(upstream: &str, endpoint: &Endpoint) -> ServerHealth {
        ServerHealth {
            upstream: upstream.to_owned(),
            endpoint: endpoint.clone(),
            has_trouble: AtomicBool::new(false),
            active: AtomicU64::new(0),
            drains: AtomicBool::new(false),
            troubles: Mutex::default(),
        }
    }

    /// Counts a request that is sent to it.
    pub fn begin(self: &Arc<Self>) -> ServerRequest {
        self.active.fetch_add(1, Ordering::Relaxed);
        ServerRequest(Arc::clone(self))
    }

    /// The number of its requests.
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether it finishes its requests, and gets no others.
    pub fn drains(&self) -> bool {
        self.drains.load(Ordering::Relaxed)
    }

    /// The next configuration has it with this weight.
    pub fn set_weight(&self, weight: f64) {
        self.drains.store(weight == 0.0, Ordering::Relaxed);
    }

    /// Whether it gets requests while other servers do, too.
    pub fn is_up(&self) -> bool {
        if !self.has_trouble.load(Ordering::Acquire) {
            return true;
        }
        let troubles = self.troubles();
        let is_down = troubles.down.as_ref().is_some_and(|down| Instant::now() < down.until);
        !is_down && troubles.unhealthy.is_none()
    }

    /// A request, which began at this time, got a response.
    pub fn succeeded(&self, began: Instant) {
        if !self.has_trouble.load(Ordering::Acquire) {
            return;
        }
        let mut troubles = self.troubles();
        // A response to an earlier request does not show that it works now.
        if troubles.down.take_if(|down| down.since <= began).is_some() {
            troubles.failures.clear();
            self.note(&troubles);
            drop(troubles);
            tracing::info!(upstream = %self.endpoint, group = self.upstream, "a server of an upstream answers again");
        }
    }

    /// A request failed. Returns whether the server was up until now, and is down.
    pub fn failed(&self, failure: RequestFailure, limit: FailureLimit, reason: &str) -> bool {
        let now = Instant::now();
        let mut troubles = self.troubles();
        let time = match limit {
            FailureLimit::Never => return false,
            FailureLimit::Connections if failure == RequestFailure::Response => return false,
            FailureLimit::Connections => DOWN_TIME,
            FailureLimit::Requests { count, timeout } => {
                troubles.failures.retain(|failed| now.duration_since(*failed) < timeout);
                troubles.failures.push_back(now);
                if troubles.down.is_none() && troubles.failures.len() < count as usize {
                    return false;
                }
                timeout
            }
        };
        troubles.failures.clear();
        let before = troubles.down.replace(Down { since: now, until: now + time, reason: reason.to_owned() });
        self.note(&troubles);
        drop(troubles);
        if before.is_none() {
            let seconds = time.as_secs_f64();
            tracing::warn!(
                upstream = %self.endpoint, group = self.upstream, reason,
                "a server of an upstream is down; it gets no requests for {seconds} s"
            );
        }
        before.is_none()
    }

    /// A check has passed, or failed for this reason.
    pub fn checked(&self, result: Result<(), String>, check: &HealthCheck) {
        let mut troubles = self.troubles();
        let passed = result.is_ok();
        if troubles.last_check_passed != passed {
            troubles.checks_in_row = 0;
        }
        troubles.last_check_passed = passed;
        troubles.checks_in_row = troubles.checks_in_row.saturating_add(1);
        let count = troubles.checks_in_row;
        let (upstream, group) = (&self.endpoint, &self.upstream);
        match result {
            Err(reason) if troubles.unhealthy.is_none() && count >= check.fails => {
                troubles.unhealthy = Some(reason.clone());
                self.note(&troubles);
                drop(troubles);
                tracing::warn!(
                    %upstream, group, reason, failed_checks = count,
                    "a server of an upstream is unhealthy; it gets no requests until checks pass"
                );
            }
            Err(reason) => {
                if let Some(known) = &mut troubles.unhealthy {
                    *known = reason;
                }
            }
            Ok(()) if count >= check.passes && troubles.unhealthy.take().is_some() => {
                self.note(&troubles);
                drop(troubles);
                tracing::info!(%upstream, group, "a server of an upstream is healthy again");
            }
            Ok(()) => {}
        }
    }

    /// Forgets the checks: the configuration has none any more.
    pub fn forget_checks(&self) {
        let mut troubles = self.troubles();
        troubles.unhealthy = None;
        troubles.checks_in_row = 0;
        self.note(&troubles);
    }

    /// Why it gets no requests; `None` if it does.
    pub fn trouble(&self) -> Option<ServerTrouble> {
        let troubles = self.troubles();
        let unhealthy = troubles.unhealthy.clone().map(ServerTrouble::Unhealthy);
        unhealthy.or_else(|| troubles.down.as_ref().map(|down| ServerTrouble::Down(down.reason.clone())))
    }

    fn note(&self, troubles: &Troubles) {
        self.has_trouble.store(troubles.down.is_some() || troubles.unhealthy.is_some(), Ordering::Release);
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        // Consistent between any two statements.
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const THREE: FailureLimit = FailureLimit::Requests { count: 3, timeout: Duration::from_secs(10) };

    fn server() -> ServerHealth {
        ServerHealth::new("u", &"127.0.0.1:81".parse().expect("endpoint"))
    }

    fn fail(server: &ServerHealth, limit: FailureLimit) -> bool {
        server.failed(RequestFailure::Response, limit, "no response for 1 s")
    }

    async fn wait(seconds: u64) {
        advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_not_accepted_makes_a_server_down_for_a_while() {
        let server = server();
        assert!(!fail(&server, FailureLimit::Connections) && server.is_up(), "only connections count");
        assert!(server.failed(RequestFailure::Connection, FailureLimit::Connections, "refused"));
        assert!(!server.is_up());
        assert_eq!(server.trouble(), Some(ServerTrouble::Down("refused".into())));
        wait(5).await;
        assert!(server.is_up());
        let again = server.failed(RequestFailure::Connection, FailureLimit::Connections, "refused");
        assert!(!again && !server.is_up(), "it was never up in between");
        wait(5).await;
        server.succeeded(Instant::now());
        assert_eq!((server.is_up(), server.trouble()), (true, None));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_count_within_their_time() {
        let server = server();
        assert!(!fail(&server, THREE) && !fail(&server, THREE));
        wait(10).await;
        assert!(!fail(&server, THREE) && !fail(&server, THREE) && server.is_up());
        wait(9).await;
        assert!(fail(&server, THREE) && !server.is_up());
        wait(9).await;
        assert!(!server.is_up());
        wait(1).await;
        assert!(server.is_up());
        assert!(!fail(&server, THREE) && !server.is_up(), "after its time, the first request decides");
        wait(10).await;
        server.succeeded(Instant::now());
        assert!(!fail(&server, THREE) && server.is_up(), "it is counted from 0 again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_to_an_earlier_request_changes_nothing() {
        let server = server();
        let began = Instant::now();
        wait(1).await;
        server.failed(RequestFailure::Connection, FailureLimit::Connections, "refused");
        server.succeeded(began);
        assert!(!server.is_up());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_may_never_be_down() {
        let server = server();
        assert!(!server.failed(RequestFailure::Connection, FailureLimit::Never, "refused"));
        assert_eq!((server.is_up(), server.trouble()), (true, None));
    }

    #[tokio::test(start_paused = true)]
    async fn checks_in_a_row_change_the_health() {
        let text = r#"{"upstreams": {"u": {"servers": {}, "health_check": {"fails": 2, "passes": 3}}}}"#;
        let configuration = howdah_config::Configuration::parse(text).expect("configuration");
        let check = configuration.upstreams["u"].health_check.as_ref().expect("check");
        let server = server();
        let mut states = String::new();
        for result in "+-+--+-+++-".chars() {
            server.checked(if result == '+' { Ok(()) } else { Err("answered 500".into()) }, check);
            states.push(if server.is_up() { 'u' } else { '-' });
        }
        assert_eq!(states, "uuuu-----uu");
        server.checked(Err("answered 503".into()), check);
        assert_eq!(server.trouble(), Some(ServerTrouble::Unhealthy("answered 503".into())));
        server.succeeded(Instant::now());
        assert!(!server.is_up(), "only checks make it healthy");
        server.forget_checks();
        assert!(server.is_up());
    }
}
