//! A request of the control API.

use crate::api::answer::ApiAnswer;
use crate::api::reply::Reply;
use howdah_config::{DocumentPath, Refusal};
use howdah_metrics::exposition::Format;
use tokio::sync::oneshot;

/// A request.
#[derive(Debug)]
pub struct ControlRequest {
    /// Its method.
    pub method: String,
    /// Its path, still encoded.
    pub path: String,
    /// The header `If-Match`.
    pub if_match: Option<String>,
    /// The format of an exposition that it accepts.
    pub format: Format,
    /// Its body.
    pub body: Vec<u8>,
    /// Gets the reply.
    pub reply: oneshot::Sender<Reply>,
}

/// The subject of a recording, as the path names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingKind {
    /// PHP's stacks.
    Profile,
    /// The memory that worker scripts keep.
    Memory,
}

// === impl RecordingKind ===

impl RecordingKind {
    /// The last segment of its path.
    fn name(self) -> &'static str {
        match self {
            RecordingKind::Profile => "profile",
            RecordingKind::Memory => "memory",
        }
    }
}

// === impl ControlRequest ===

impl ControlRequest {
    /// A request of the metrics listener, and where its reply arrives.
    pub fn scrape(format: Format) -> (ControlRequest, oneshot::Receiver<Reply>) {
        let (reply, receiver) = oneshot::channel();
        let (method, path) = ("GET".to_owned(), "/metrics".to_owned());
        (ControlRequest { method, path, if_match: None, format, body: Vec::new(), reply }, receiver)
    }

    /// Whether it changes something, and waits for the change before it.
    pub fn is_change(&self) -> bool {
        self.method != "GET" || self.path.starts_with("/control/")
    }

    /// Whether it is useless once its client has left. A change is not: a script may not wait for its end.
    pub fn needs_client(&self) -> bool {
        self.recording().is_some()
    }

    /// The application to record, and what.
    pub fn recording(&self) -> Option<(String, RecordingKind)> {
        let of = |kind: RecordingKind| Some((self.application_in("control", kind.name())?, kind));
        of(RecordingKind::Profile).or_else(|| of(RecordingKind::Memory))
    }

    /// The NAME in `/prefix/applications/NAME/suffix`.
    pub fn application_in(&self, prefix: &str, suffix: &str) -> Option<String> {
        match DocumentPath::parse(self.below(prefix)?.strip_prefix("/applications")?).ok()?.segments() {
            [application, last] if last == suffix => Some(application.clone()),
            _ => None,
        }
    }

    /// The rest of the path, if it begins with this name.
    pub fn below(&self, name: &str) -> Option<&str> {
        let rest = self.path.strip_prefix('/')?.strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Sends the answer. A client that has left gets none.
    pub fn answer(self, answer: impl Into<ApiAnswer>) {
        let _ = self.reply.send(Reply::Answer(answer.into()));
    }

    /// Refuses the request, because howdah starts or shuts down.
    pub fn refuse(self) {
        self.answer(Refusal::new(503, "howdah is not ready.", "it starts or shuts down; ask again"));
    }
}
