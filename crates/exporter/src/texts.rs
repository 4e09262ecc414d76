//! The texts that requests wait for. The supervisor makes one for each request.

use howdah_metrics::exposition::Format;
use howdah_protocol::messages::exporter::FromExporter;
use howdah_protocol::sockets::control_socket::ControlSocket;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The requests that wait.
#[derive(Debug)]
pub struct Texts {
    control: Arc<ControlSocket>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    requests: HashMap<u64, oneshot::Sender<Option<Vec<u8>>>>,
}

/// How long the supervisor may take: it waits for the router for two seconds.
const TIMEOUT: Duration = Duration::from_secs(5);

// === impl Texts ===

impl Texts {
    /// Without requests.
    pub fn new(control: Arc<ControlSocket>) -> Texts {
        Texts { control, waiting: Mutex::default() }
    }

    /// A text of now; `None` if the supervisor has none, or does not answer in time.
    pub async fn text(&self, format: Format) -> Option<Vec<u8>> {
        let (sender, text) = oneshot::channel();
        let id = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.last += 1;
            let id = waiting.last;
            waiting.requests.insert(id, sender);
            id
        };
        let sent = self.control.send(&FromExporter::Scrape { id, format }, &[]);
        let text = match sent {
            Ok(()) => tokio::time::timeout(TIMEOUT, text).await.ok().and_then(Result::ok).flatten(),
            Err(_) => None,
        };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).requests.remove(&id);
        text
    }

    /// The answer of the supervisor has arrived.
    pub fn arrived(&self, id: u64, text: Option<Vec<u8>>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(request) = waiting.requests.remove(&id) {
            // A client that has left needs no text.
            let _ = request.send(text);
        }
    }
}
