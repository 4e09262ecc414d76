//! The requests that a new generation answers before anybody else's: from the supervisor, which knows them, to the router,
//! which alone speaks to PHP.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long all of them may take together.
pub const LONGEST_WARM_UP: Duration = Duration::from_secs(60);

/// A GET.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUpRequest {
    /// The target that it is for.
    pub target: Option<String>,
    /// Path and query.
    pub uri: String,
    /// The header `Host`.
    pub host: String,
    /// Whether the client claims to have come over TLS.
    pub https: bool,
    /// Other headers.
    pub headers: Vec<(String, String)>,
}
