//! The handshake with a worker of RoadRunner: it answers the first frame when its application has booted.
//!
//! The supervisor reads the answer, and not one byte more. Text that PHP prints to standard output, such as an error
//! message before the library of the worker is loaded, is quoted in the failure.

use howdah_goridge::frame::quoted;
use howdah_goridge::handshake::{HandshakeAnswer, question};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A handshake in progress. Dropping it ends it.
#[derive(Debug)]
pub struct Handshake {
    task: JoinHandle<Result<(), HandshakeFailure>>,
    /// All that the process has written.
    received: Arc<Mutex<Vec<u8>>>,
}

/// Why a handshake failed, as a phrase about the process.
#[derive(Debug)]
pub enum HandshakeFailure {
    /// Its pipes are closed: it probably exits.
    Closed(String),
    /// It is not a worker of RoadRunner.
    Wrong(String),
}

/// How long more text is read for the failure.
const TEXT_TIMEOUT: Duration = Duration::from_millis(200);
/// How much text is read for the failure.
const TEXT_BYTES: usize = 256;

// === impl Handshake ===

impl Handshake {
    /// Begins a handshake over these pipes.
    pub fn begin(requests: OwnedFd, answers: OwnedFd) -> Handshake {
        let received = Arc::default();
        Handshake { task: tokio::spawn(shake_hands(requests, answers, Arc::clone(&received))), received }
    }

    /// The text that the process has written in place of an answer; `None` if it is not text.
    pub fn text(&self) -> Option<Vec<u8>> {
        let received = lock(&self.received);
        is_text(&received).then(|| received.clone())
    }

    /// Its result, once.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeFailure>> {
        let result = Pin::new(&mut self.task).poll(cx);
        result.map(|result| result.unwrap_or_else(|error| Err(HandshakeFailure::Wrong(error.to_string()))))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn shake_hands(
    requests: OwnedFd,
    answers: OwnedFd,
    received: Arc<Mutex<Vec<u8>>>,
) -> Result<(), HandshakeFailure> {
    let closed =
        |error: io::Error| HandshakeFailure::Closed(format!("it closed its standard input or output: {error}"));
    let mut requests = Sender::from_owned_fd(requests).map_err(closed)?;
    let mut answers = Receiver::from_owned_fd(answers).map_err(closed)?;
    requests.write_all(&question(std::process::id())).await.map_err(closed)?;
    let mut answer = HandshakeAnswer::default();
    loop {
        let missing = match answer.missing() {
            Ok(0) => return Ok(()),
            Ok(missing) => missing,
            Err(violation) => {
                return Err(HandshakeFailure::Wrong(explain(&violation.0, &mut answers, &received).await));
            }
        };
        let mut bytes = Vec::with_capacity(missing);
        if (&mut answers).take(missing as u64).read_buf(&mut bytes).await.map_err(closed)? == 0 {
            let problem = match answer.received() {
                [] => "it closed its standard output".to_owned(),
                text => format!("it closed its standard output after {}", quoted(text)),
            };
            return Err(HandshakeFailure::Closed(problem));
        }
        answer.push(&bytes);
        lock(&received).extend_from_slice(&bytes);
    }
}

/// The violation, with the text that followed its first bytes if they are text.
async fn explain(violation: &str, answers: &mut Receiver, received: &Mutex<Vec<u8>>) -> String {
    if !is_text(&lock(received)) {
        return violation.to_owned();
    }
    let read_more = async {
        while lock(received).len() < TEXT_BYTES {
            let mut more = Vec::with_capacity(TEXT_BYTES);
            match answers.read_buf(&mut more).await {
                Ok(length) if length > 0 => lock(received).extend_from_slice(&more),
                _ => break,
            }
        }
    };
    let _ = timeout(TEXT_TIMEOUT, read_more).await;
    format!("it is not a worker of RoadRunner: it wrote {} to its standard output", quoted(&lock(received)))
}

/// The bytes are complete at any time.
fn lock(received: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame begins with another byte.
fn is_text(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}
