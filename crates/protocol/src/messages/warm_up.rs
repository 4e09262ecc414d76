//! The requests of a warm-up: a new generation answers them before the requests of clients. The supervisor sends them to
//! the router, because only the router sends requests to PHP.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The limit of the time of all requests together.
pub const LONGEST_WARM_UP: Duration = Duration::from_secs(60);

/// A GET.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUpRequest {
    /// The target that answers it.
    pub target: Option<String>,
    /// Path and query.
    pub uri: String,
    /// The header `Host`.
    pub host: String,
    /// Whether the request counts as one over TLS.
    pub https: bool,
    /// Other headers.
    pub headers: Vec<(String, String)>,
}
