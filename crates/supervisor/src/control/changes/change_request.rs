//! A change that the control API requested, and the report of its end: to the client, and in the log.

use howdah_config::Document;
use std::time::Instant;
use tokio::sync::oneshot;

/// A change that the control API requested.
#[derive(Debug)]
pub struct ChangeRequest {
    /// The kind of change.
    pub kind: ChangeKind,
    /// When it began.
    pub since: Instant,
    /// Gets the result.
    pub outcome: oneshot::Sender<ChangeOutcome>,
}

/// The kind of change that a request makes.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// The configuration, by this method and path.
    Configuration(String),
    /// Nothing of the configuration: this application is restarted.
    Restart(String),
}

/// The result of a change: the ETag of the configuration that is active now, or why the change failed.
pub type ChangeOutcome = Result<String, String>;

// === impl ChangeRequest ===

impl ChangeRequest {
    /// The change is complete: this is the active configuration.
    pub fn succeed(self, active: &Document) {
        let took = self.since.elapsed().as_millis();
        match &self.kind {
            ChangeKind::Configuration(how) => {
                tracing::info!("the configuration is active ({how}) after {took} ms");
            }
            ChangeKind::Restart(name) => tracing::info!("the application {name:?} was restarted after {took} ms"),
        }
        let _ = self.outcome.send(Ok(active.etag()));
    }

    /// The change has failed, and nothing has happened.
    pub fn fail(self, reason: &str) {
        let line = first_line(reason);
        match &self.kind {
            ChangeKind::Configuration(how) => {
                tracing::error!("the configuration change failed ({how}): {line}");
            }
            ChangeKind::Restart(name) => {
                tracing::error!("the application {name:?} was not restarted; what ran before goes on: {line}");
            }
        }
        let _ = self.outcome.send(Err(reason.to_owned()));
    }
}

/// Without the output of an application: that is on standard error already.
pub fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default().trim_end_matches(':')
}
