//! The texts that requests wait for. The supervisor makes them.
//!
//! It makes one of each format at a time, however many requests wait: clients may leave, and ask again, faster than it makes
//! texts. A request gets a text that was begun after it came: requests that come meanwhile share the next one.

use bytes::Bytes;
use howdah_metrics::exposition::Format;
use howdah_protocol::messages::exporter::FromExporter;
use howdah_protocol::sockets::control_socket::ControlSocket;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
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
    /// The texts that the supervisor makes, by number.
    making: HashMap<u64, Making>,
    /// The requests that came meanwhile.
    next: HashMap<Format, Vec<Request>>,
}

#[derive(Debug)]
struct Making {
    format: Format,
    since: Instant,
    requests: Vec<Request>,
}

/// A request that waits. A client that has left needs no text.
type Request = oneshot::Sender<Option<Bytes>>;

/// How long the supervisor may take: it waits for the router for two seconds.
const TIMEOUT: Duration = Duration::from_secs(5);

// === impl Texts ===

impl Texts {
    /// Without requests.
    pub fn new(control: Arc<ControlSocket>) -> Texts {
        Texts { control, waiting: Mutex::default() }
    }

    /// A text of now; `None` if the supervisor has none, or does not answer in time.
    pub async fn text(&self, format: Format) -> Option<Bytes> {
        let (sender, text) = oneshot::channel();
        {
            let mut waiting = self.lock();
            let next = waiting.next.entry(format).or_default();
            next.retain(|request| !request.is_closed());
            next.push(sender);
            if !waiting.is_made(format) {
                self.ask(&mut waiting, format);
            }
        }
        tokio::time::timeout(TIMEOUT, text).await.ok().and_then(Result::ok).flatten()
    }

    /// The answer of the supervisor has arrived.
    pub fn arrived(&self, id: u64, text: Option<Vec<u8>>) {
        let mut waiting = self.lock();
        let Some(Making { format, requests, .. }) = waiting.making.remove(&id) else { return };
        answer(requests, text.map(Bytes::from).as_ref());
        if !waiting.is_made(format) {
            self.ask(&mut waiting, format);
        }
    }

    /// Asks for the text that the requests of this format wait for, if there are any.
    fn ask(&self, waiting: &mut Waiting, format: Format) {
        let mut requests = waiting.next.remove(&format).unwrap_or_default();
        requests.retain(|request| !request.is_closed());
        if requests.is_empty() {
            return;
        }
        waiting.last += 1;
        let id = waiting.last;
        match self.control.send(&FromExporter::Scrape { id, format }, &[]) {
            Ok(()) => drop(waiting.making.insert(id, Making { format, since: Instant::now(), requests })),
            Err(_) => answer(requests, None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Waiting ===

impl Waiting {
    /// Whether the supervisor makes a text of this format. One that takes too long is forgotten: nothing waits for it any more.
    fn is_made(&mut self, format: Format) -> bool {
        self.making.retain(|_, making| making.since.elapsed() < TIMEOUT);
        self.making.values().any(|making| making.format == format)
    }
}

fn answer(requests: Vec<Request>, text: Option<&Bytes>) {
    for request in requests {
        let _ = request.send(text.cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_share_the_next_text() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let texts = Texts::new(Arc::new(theirs));
        let asked = || match ours.receive::<FromExporter>() {
            Ok(Some(FromExporter::Scrape { id, format })) => Some((id, format)),
            _ => None,
        };
        let mut poll = std::task::Context::from_waker(std::task::Waker::noop());
        let mut begin = |format| {
            let mut request = Box::pin(texts.text(format));
            assert!(request.as_mut().poll(&mut poll).is_pending());
            request
        };
        let first = begin(Format::Prometheus);
        assert_eq!((asked(), asked()), (Some((1, Format::Prometheus)), None));
        let (second, third) = (begin(Format::Prometheus), begin(Format::Prometheus));
        (0..1000).for_each(|_| drop(begin(Format::Prometheus)));
        let other = begin(Format::Protobuf);
        assert_eq!((asked(), asked()), (Some((2, Format::Protobuf)), None));
        assert_eq!(texts.lock().next[&Format::Prometheus].len(), 3);
        texts.arrived(1, Some(b"first".to_vec()));
        assert_eq!(first.await.as_deref(), Some(&b"first"[..]));
        assert_eq!((asked(), asked()), (Some((3, Format::Prometheus)), None));
        texts.arrived(3, Some(b"second".to_vec()));
        assert_eq!((second.await.as_deref(), third.await.as_deref()), (Some(&b"second"[..]), Some(&b"second"[..])));
        texts.arrived(2, None);
        assert_eq!((other.await, asked()), (None, None));
        let waiting = texts.lock();
        assert!(waiting.making.is_empty() && waiting.next.is_empty());
    }
}
