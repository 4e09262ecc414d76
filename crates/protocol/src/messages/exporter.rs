//! The messages between the supervisor and the process of the metrics listener.

use crate::child::identity::Identity;
use serde::{Deserialize, Serialize};

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToExporter {
    /// Become a user, and answer clients. The first message. Descriptors: the listening socket.
    Boot(ExporterBoot),
    /// The text for a request. Descriptors: the text.
    Text {
        /// The number of the request.
        id: u64,
    },
    /// There is no text now.
    NoText {
        /// The number of the request.
        id: u64,
    },
}

/// The boot message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExporterBoot {
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
    /// A configuration that has only `settings/metrics`.
    pub configuration: String,
}

/// To the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromExporter {
    /// A client asks for the numbers.
    Scrape {
        /// The number of the request.
        id: u64,
        /// Whether it accepts OpenMetrics.
        is_openmetrics: bool,
    },
}
