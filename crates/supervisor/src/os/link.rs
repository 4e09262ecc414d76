//! The supervisor's end of a child's control socket: messages are queued when the child does not read.

use howdah_protocol::control_socket::ControlSocket;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// A link to a child that is told `Out` and tells `In`.
#[derive(Debug)]
pub struct Link<Out, In> {
    socket: AsyncFd<ControlSocket>,
    /// What the child has not been told yet.
    queue: VecDeque<(Out, Vec<OwnedFd>)>,
    closed: bool,
    /// Why a message could not be sent: the child does not know what it should.
    failure: Option<io::Error>,
    incoming: PhantomData<fn() -> In>,
}

// === impl Link ===

impl<Out: Serialize, In: DeserializeOwned> Link<Out, In> {
    /// A link over this socket.
    pub fn new(socket: ControlSocket) -> io::Result<Self> {
        #[expect(deprecated, reason = "its successor is unsafe; a ControlSocket owns the one descriptor that it names")]
        let socket = AsyncFd::new(socket)?;
        Ok(Link { socket, queue: VecDeque::new(), closed: false, failure: None, incoming: PhantomData })
    }

    /// Sends a message, now or when the child reads again. A dead child's messages are lost.
    pub fn send(&mut self, message: Out, descriptors: Vec<OwnedFd>) {
        self.queue.push_back((message, descriptors));
        self.flush();
    }

    /// Whether all could be sent so far.
    ///
    /// # Errors
    /// If something could not be sent, though the child lives. It does not know what it should, and must be replaced.
    pub fn check(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// The next message; `None`, once, when the child has closed its end or broken the protocol. Sends what is queued.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<In>> {
        if self.closed {
            return Poll::Pending;
        }
        while !self.queue.is_empty() {
            let Poll::Ready(Ok(mut guard)) = self.socket.poll_write_ready(cx) else {
                break;
            };
            guard.clear_ready();
            self.flush();
        }
        loop {
            let Ok(mut guard) = ready!(self.socket.poll_read_ready(cx)) else {
                self.closed = true;
                return Poll::Ready(None);
            };
            if let Ok(received) = guard.try_io(|socket| socket.get_ref().receive::<In>()) {
                let message = received.unwrap_or_else(|error| {
                    tracing::warn!("a control message cannot be read: {error}");
                    None
                });
                self.closed = message.is_none();
                return Poll::Ready(message.map(|(message, _)| message));
            }
        }
    }

    /// Hears nothing more of what the child says.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// A message that is already there.
    pub fn try_receive(&mut self) -> Option<In> {
        if self.closed {
            return None;
        }
        match self.socket.get_ref().receive::<In>() {
            Ok(message) => message.map(|(message, _)| message),
            Err(_) => None,
        }
    }

    /// Sends what could not be sent before.
    pub fn flush(&mut self) {
        while let Some((message, descriptors)) = self.queue.front() {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match self.socket.get_ref().send_long(message, &descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // No memory for it now: with the next message, or when the supervisor looks at its clock.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOBUFS | Errno::NOMEM)) => return,
                // It is dead: that is somebody else's to see.
                Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    tracing::error!("a control message cannot be sent: {error}");
                    self.failure = Some(error);
                }
                Ok(()) => {}
            }
            self.queue.pop_front();
        }
    }
}
