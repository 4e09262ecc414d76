//! A client's connection: hyper on a socket that keeps time.
//!
//! No timer is armed for a request. The socket notes when something last happened ([`Clock`]), and the thread looks over
//! its connections four times a second ([`Clock::is_overdue`]): silent between requests (`idle_timeout`), a head that
//! does not come to its end (`header_read_timeout`), a client that does not take its response (`send_timeout`). An
//! overdue connection is closed. hyper answers broken requests itself (400, 431) and closes too.

use crate::access_log::Entry;
use crate::response_body::ResponseBody;
use crate::service;
use crate::thread::Thread;
use howdah_config::Http;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connection as it was accepted.
pub enum Accepted {
    /// Over TCP, not blocking, with the client's address.
    Tcp(std::net::TcpStream, SocketAddr),
    /// Over a unix socket, not blocking, with the listener's path.
    Unix(std::os::unix::net::UnixStream, String),
}

/// Both ends' names, as CGI variables say them.
pub struct Peer {
    /// REMOTE_ADDR; `unix:` for a unix socket.
    pub remote_addr: Rc<str>,
    /// REMOTE_PORT.
    pub remote_port: String,
    /// SERVER_ADDR.
    pub server_addr: String,
    /// SERVER_PORT.
    pub server_port: String,
    /// The listener's place in the configuration.
    pub listener: usize,
}

/// What a connection does, and since when.
pub struct Clock {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    write_blocked_since: Cell<Option<Instant>>,
    overdue: Cell<bool>,
    draining: Cell<bool>,
    /// Whether a request has come: a connection that was just accepted is owed an answer to its first.
    used: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// A head has begun.
    Head,
    /// A request is being answered.
    Busy,
}

/// The most bytes of a request's head, and of what is read ahead.
const BUFFER_BYTES: usize = 64 * 1024;
/// The most headers of a request.
const MAX_HEADERS: usize = 256;

/// How long a new connection may take to its first request while the router ends.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub async fn serve(thread: Rc<Thread>, accepted: Accepted, listener: usize) {
    let Ok((socket, peer)) = Socket::new(accepted, listener) else { return };
    let clock = Rc::new(Clock {
        phase: Cell::new(Phase::Idle),
        since: Cell::new(Instant::now()),
        write_blocked_since: Cell::new(None),
        overdue: Cell::new(false),
        draining: Cell::new(thread.is_draining()),
        used: Cell::new(false),
        waker: RefCell::default(),
    });
    let _registered = thread.register(&clock);
    let remote = Rc::clone(&peer.remote_addr);
    let peer = Rc::new(peer);
    let service = {
        let (thread, clock) = (Rc::clone(&thread), Rc::clone(&clock));
        service_fn(move |request| {
            clock.enter(Phase::Busy);
            clock.used.set(true);
            let answer = Box::pin(service::answer(Rc::clone(&thread), Rc::clone(&peer), Rc::clone(&clock), request));
            async move { Ok::<hyper::Response<ResponseBody>, std::convert::Infallible>(answer.await) }
        })
    };
    let io = TokioIo::new(Watched { socket, clock: Rc::clone(&clock) });
    let mut connection = pin!(
        http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .max_headers(MAX_HEADERS)
            .header_read_timeout(None)
            .serve_connection(io, service)
    );
    let mut told = false;
    let result = poll_fn(|context| {
        if clock.overdue.get() {
            return Poll::Ready(Ok(()));
        }
        if clock.draining.get() && clock.may_close() && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        match &mut *clock.waker.borrow_mut() {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        connection.as_mut().poll(context)
    })
    .await;
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
        // hyper has answered, or could not: the request never came to a line of its own.
        if error.is_parse() && thread.logs_access() {
            Entry::of_no_request(remote).write();
        }
    }
}

// === impl Clock ===

impl Clock {
    /// The response has been handed out: the connection waits for the next request.
    pub fn request_ended(&self) {
        self.enter(Phase::Idle);
    }

    /// Closes the connection if its time is over.
    pub fn check(&self, now: Instant, limits: &Http) {
        let overdue = self.is_overdue(now, limits);
        self.overdue.set(overdue);
        if overdue || self.draining.get() {
            self.wake();
        }
    }

    /// Finishes the request under way, and closes.
    pub fn drain(&self) {
        self.draining.set(true);
        self.wake();
    }

    fn may_close(&self) -> bool {
        self.used.get() || self.since.get().elapsed() > FIRST_REQUEST
    }

    fn is_overdue(&self, now: Instant, limits: &Http) -> bool {
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        let phase = match self.phase.get() {
            Phase::Idle => late(self.since.get(), limits.idle_timeout),
            Phase::Head => late(self.since.get(), limits.header_read_timeout),
            Phase::Busy => false,
        };
        phase || self.write_blocked_since.get().is_some_and(|since| late(since, limits.send_timeout))
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(Instant::now());
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that tells its connection's clock.
struct Watched {
    socket: Socket,
    clock: Rc<Clock>,
}

// === impl Socket ===

impl Socket {
    fn new(accepted: Accepted, listener: usize) -> io::Result<(Socket, Peer)> {
        match accepted {
            Accepted::Tcp(stream, remote) => {
                let local = stream.local_addr()?;
                let peer = Peer {
                    remote_addr: remote.ip().to_canonical().to_string().into(),
                    remote_port: remote.port().to_string(),
                    server_addr: local.ip().to_canonical().to_string(),
                    server_port: local.port().to_string(),
                    listener,
                };
                Ok((Socket::Tcp(TcpStream::from_std(stream)?), peer))
            }
            Accepted::Unix(stream, path) => {
                let peer = Peer {
                    remote_addr: "unix:".into(),
                    remote_port: String::new(),
                    server_addr: format!("unix:{path}"),
                    server_port: String::new(),
                    listener,
                };
                Ok((Socket::Unix(UnixStream::from_std(stream)?), peer))
            }
        }
    }
}

// === impl Watched ===

impl Watched {
    fn note_write<T>(&self, result: Poll<T>) -> Poll<T> {
        if result.is_ready() {
            self.clock.write_blocked_since.set(None);
        } else if self.clock.write_blocked_since.get().is_none() {
            self.clock.write_blocked_since.set(Some(Instant::now()));
        }
        result
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before && self.clock.phase.get() == Phase::Idle {
            self.clock.enter(Phase::Head);
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.note_write(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
        };
        self.note_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
