//! The connections of one thread to one endpoint that wait for their next request.
//!
//! The one that was used last is used first, so that those too many grow old and are closed. hyper watches an idle
//! connection: one that the upstream closes, or on which it sends something unasked, is known as closed when its turn
//! comes. What is closed in the same moment is left to `retry`.

use crate::proxy::connect::{ConnectError, connect};
use crate::proxy::request_body::RequestBody;
use crate::proxy::retry::IDLE_TIMEOUT;
use crate::proxy::stream::Progress;
use howdah_config::Endpoint;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

/// The most idle connections of one thread to one endpoint.
const MOST_IDLE: usize = 32;
/// How long a server that did not take a connection is not asked, as long as there are others.
const DOWN_TIME: Duration = Duration::from_secs(5);
/// How long the end of a request may take when its response has ended already.
const REQUEST_END_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes of a response's head, and of what is read ahead.
const BUFFER_BYTES: usize = 64 * 1024;
/// The most headers of a response.
const MAX_HEADERS: usize = 256;

/// What a thread knows of an endpoint.
pub struct Pool {
    /// Where it is.
    pub endpoint: Endpoint,
    idle: RefCell<Vec<Connection>>,
    down_until: Cell<Option<Instant>>,
}

/// A connection to an upstream. Dropping it closes it.
pub struct Connection {
    /// hyper's end of it.
    pub sender: SendRequest<RequestBody>,
    /// What happens on its socket.
    pub progress: Arc<Progress>,
    /// How long the upstream says it keeps it when it is idle.
    pub keep_alive: Option<Duration>,
    idle_since: Instant,
}

// === impl Pool ===

impl Pool {
    /// Without connections.
    pub fn new(endpoint: &Endpoint) -> Pool {
        Pool { endpoint: endpoint.clone(), idle: RefCell::default(), down_until: Cell::default() }
    }

    /// An idle connection that was used within this time.
    pub fn take(&self, most_idle: Duration) -> Option<Connection> {
        let now = Instant::now();
        let mut idle = self.idle.borrow_mut();
        while idle.last()?.idle_time(now) <= most_idle {
            let connection = idle.pop()?;
            if connection.is_usable(now) {
                return Some(connection);
            }
        }
        None
    }

    /// A new connection. Whether there is one shows whether the server is down.
    ///
    /// # Errors
    /// When nobody listens, or nobody answers in time.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        let stream = connect(&self.endpoint).await?;
        let progress = stream.progress();
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .max_header_size(BUFFER_BYTES)
            .max_headers(MAX_HEADERS)
            .title_case_headers(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ConnectError::Refused(std::io::Error::other(error)))?;
        // What goes wrong is told to the request on it; without one there is nobody to care.
        spawn_local(async move { drop(connection.with_upgrades().await) });
        self.down_until.set(None);
        Ok(Connection { sender, progress, keep_alive: None, idle_since: Instant::now() })
    }

    /// Keeps a connection whose response has ended for the next request, if it can be kept.
    pub fn give_back(self: &Rc<Self>, mut connection: Connection) {
        if connection.sender.is_ready() {
            self.keep(connection);
        } else if !connection.sender.is_closed() {
            let pool = Rc::clone(self);
            spawn_local(async move {
                if let Ok(Ok(())) = timeout(REQUEST_END_TIMEOUT, connection.sender.ready()).await {
                    pool.keep(connection);
                }
            });
        }
    }

    /// Whether the server did not take a connection, a short while ago.
    pub fn is_down(&self) -> bool {
        self.down_until.get().is_some_and(|until| Instant::now() < until)
    }

    /// It did not take a connection; `true` if that is news.
    pub fn went_down(&self) -> bool {
        let is_news = !self.is_down();
        self.down_until.set(Some(Instant::now() + DOWN_TIME));
        is_news
    }

    /// Closes what has been idle for too long; `false` if there is nothing left to know of the endpoint.
    pub fn sweep(&self) -> bool {
        let now = Instant::now();
        let mut idle = self.idle.borrow_mut();
        idle.retain(|connection| connection.is_usable(now));
        !idle.is_empty() || self.is_down()
    }

    fn keep(&self, mut connection: Connection) {
        connection.idle_since = Instant::now();
        let mut idle = self.idle.borrow_mut();
        if idle.len() == MOST_IDLE {
            idle.remove(0);
        }
        idle.push(connection);
    }
}

// === impl Connection ===

impl Connection {
    fn idle_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.idle_since)
    }

    fn is_usable(&self, now: Instant) -> bool {
        let limit = self.keep_alive.map_or(IDLE_TIMEOUT, |said| IDLE_TIMEOUT.min(said));
        self.sender.is_ready() && self.idle_time(now) < limit
    }
}

#[cfg(test)]
impl Pool {
    /// How many connections wait.
    pub fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }
}
