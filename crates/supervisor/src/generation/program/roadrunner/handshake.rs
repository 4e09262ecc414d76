//! The handshake with a worker of RoadRunner: it answers the first frame when its application has booted.
//!
//! The supervisor reads the answer, and not one byte more. Text that PHP prints to standard output, such as an error
//! message before the library of the worker is loaded, is quoted in the failure. Of a worker that connects to a socket,
//! the answer is its first proof: see [`connecting`](super::connecting).

use crate::generation::program::roadrunner::connecting::{Accepted, Accepting, Connection, Listener, WorkerPeer};
use howdah_goridge::frame::quoted;
use howdah_goridge::handshake::{HandshakeAnswer, question};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
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
        Handshake { task: tokio::spawn(over_pipes(requests, answers, Arc::clone(&received))), received }
    }

    /// Begins to wait for the connection of this worker. After the handshake, `connection` has it.
    pub fn begin_connection(listener: Listener, peer: WorkerPeer, connection: Connection) -> Handshake {
        let received = Arc::default();
        let task = over_connection(listener, peer, connection, Arc::clone(&received));
        Handshake { task: tokio::spawn(task), received }
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

async fn over_pipes(
    requests: OwnedFd,
    answers: OwnedFd,
    received: Arc<Mutex<Vec<u8>>>,
) -> Result<(), HandshakeFailure> {
    let closed =
        |error: io::Error| HandshakeFailure::Closed(format!("it closed its standard input or output: {error}"));
    let mut requests = Sender::from_owned_fd(requests).map_err(closed)?;
    let mut answers = Receiver::from_owned_fd(answers).map_err(closed)?;
    shake_hands(&mut requests, &mut answers, "standard output", &received).await.map(drop)
}

async fn over_connection(
    listener: Listener,
    peer: WorkerPeer,
    connection: Connection,
    received: Arc<Mutex<Vec<u8>>>,
) -> Result<(), HandshakeFailure> {
    let failed = |error: io::Error| HandshakeFailure::Closed(format!("its connection cannot be accepted: {error}"));
    let mut accepting = Accepting::begin(listener, peer).map_err(failed)?;
    loop {
        let Accepted { socket, mut writer, mut reader, is_proven } = accepting.next().await.map_err(failed)?;
        // Only what the last connection sent explains a failure.
        lock(&received).clear();
        match shake_hands(&mut writer, &mut reader, "connection", &received).await {
            Ok(pid) if is_proven || accepting.is_process(pid) => {
                connection.keep(socket);
                return Ok(());
            }
            Ok(pid) => accepting.refuse(&format!("a process that names the pid {pid}")).await,
            // The worker may still come.
            Err(HandshakeFailure::Closed(_)) if !is_proven => accepting.refuse("a process that sent no answer").await,
            Err(failure) => return Err(failure),
        }
    }
}

/// Returns the process id that the worker names. `medium` is what carries its answer.
async fn shake_hands(
    requests: &mut (impl AsyncWrite + Unpin),
    answers: &mut (impl AsyncRead + Unpin),
    medium: &str,
    received: &Mutex<Vec<u8>>,
) -> Result<i64, HandshakeFailure> {
    let closed = |error: io::Error| HandshakeFailure::Closed(format!("it closed its {medium}: {error}"));
    requests.write_all(&question(std::process::id())).await.map_err(closed)?;
    let mut answer = HandshakeAnswer::default();
    loop {
        let missing = match (answer.missing(), answer.pid()) {
            (Ok(_), Some(pid)) => return Ok(pid),
            (Ok(missing), None) => missing,
            (Err(violation), _) => {
                return Err(HandshakeFailure::Wrong(explain(&violation.0, answers, medium, received).await));
            }
        };
        let mut bytes = Vec::with_capacity(missing);
        if (&mut *answers).take(missing as u64).read_buf(&mut bytes).await.map_err(closed)? == 0 {
            let problem = match answer.received() {
                [] => format!("it closed its {medium}"),
                text => format!("it closed its {medium} after {}", quoted(text)),
            };
            return Err(HandshakeFailure::Closed(problem));
        }
        answer.push(&bytes);
        lock(received).extend_from_slice(&bytes);
    }
}

/// The violation, with the text that followed its first bytes if they are text.
async fn explain(
    violation: &str,
    answers: &mut (impl AsyncRead + Unpin),
    medium: &str,
    received: &Mutex<Vec<u8>>,
) -> String {
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
    format!("it is not a worker of RoadRunner: it wrote {} to its {medium}", quoted(&lock(received)))
}

/// The bytes are complete at any time.
fn lock(received: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame begins with another byte.
fn is_text(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}
