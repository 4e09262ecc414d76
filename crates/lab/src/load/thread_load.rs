//! The requests of one thread of the load generator, and when it sends them.

use super::connection::Endpoint;
use super::target::{Mix, Target};
use std::time::Duration;

/// The requests of a load, ready to be written.
#[derive(Debug)]
pub struct Requests {
    /// The server.
    pub endpoint: Endpoint,
    /// The targets.
    pub targets: Vec<Prepared>,
    /// Their mix.
    pub mix: Mix,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// The time-out of a request.
    pub timeout: Duration,
    /// Whether each client returns the cookies that it received.
    pub keeps_cookies: bool,
    /// The values of `Cookie` of the clients, in turn; empty: none.
    pub sessions: Vec<String>,
}

/// A target and the bytes of its request.
#[derive(Debug)]
pub struct Prepared {
    /// The target.
    pub target: Target,
    /// The head without its empty line.
    pub head: Vec<u8>,
}

/// When a thread sends.
pub enum ThreadPace {
    /// At these times.
    Open {
        /// Since the start.
        moments: Box<dyn Iterator<Item = Duration> + Send>,
        /// The limit of connections.
        connections: usize,
        /// The end of the schedule.
        end: Duration,
    },
    /// After the response to the last request.
    Closed {
        /// The number of clients.
        clients: usize,
        /// No request is sent after this time.
        end: Duration,
        /// The number of requests.
        requests: u64,
    },
}
