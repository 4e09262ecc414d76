//! The supervisor's end of a child's control socket: messages are queued when the child does not read.
//!
//! Code of an application can send anything over the socket of its prototype. A message with descriptors breaks the
//! protocol, and no end of a descriptor blocks the supervisor.

use howdah_protocol::sockets::control_socket::ControlSocket;
use howdah_protocol::sockets::refused_descriptors::{close_elsewhere, refuse_descriptors};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// The socket to a child that receives `Out` and sends `In`.
#[derive(Debug)]
pub struct ChildLink<Out, In> {
    /// `None` only while this is dropped.
    socket: Option<AsyncFd<ControlSocket>>,
    /// The kernel refuses descriptors of the child. Otherwise the end of the socket could block.
    refuses_descriptors: bool,
    /// Messages that the child has not read yet.
    queue: VecDeque<(Out, Vec<OwnedFd>)>,
    closed: bool,
    /// The child has sent something that is no message.
    is_broken: bool,
    /// Why a message could not be sent. The child lacks information then.
    failure: Option<io::Error>,
    incoming: PhantomData<fn() -> In>,
}

// === impl ChildLink ===

impl<Out: Serialize, In: DeserializeOwned> ChildLink<Out, In> {
    /// Wraps the socket.
    pub fn new(socket: ControlSocket) -> io::Result<Self> {
        let refuses_descriptors = refuse_descriptors(&socket);
        #[expect(deprecated, reason = "its successor is unsafe; a ControlSocket owns the one descriptor that it names")]
        let socket = Some(AsyncFd::new(socket)?);
        Ok(ChildLink {
            socket,
            refuses_descriptors,
            queue: VecDeque::new(),
            closed: false,
            is_broken: false,
            failure: None,
            incoming: PhantomData,
        })
    }

    /// Sends a message, now or when the child reads again. Messages to a dead child are lost.
    pub fn send(&mut self, message: Out, descriptors: Vec<OwnedFd>) {
        self.queue.push_back((message, descriptors));
        self.flush();
    }

    /// Whether all messages could be sent so far.
    ///
    /// # Errors
    /// If a message could not be sent to a living child. The child lacks information, and must be replaced.
    pub fn check(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// The next message; `None`, once, when the child has closed its end or broken the protocol. Also sends queued
    /// messages.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<In>> {
        if self.closed {
            return Poll::Pending;
        }
        while !self.queue.is_empty() {
            let Poll::Ready(Ok(mut guard)) = self.socket().poll_write_ready(cx) else {
                break;
            };
            guard.clear_ready();
            self.flush();
        }
        loop {
            let Ok(mut guard) = ready!(self.socket().poll_read_ready(cx)) else {
                self.closed = true;
                return Poll::Ready(None);
            };
            if let Ok(received) = guard.try_io(|socket| socket.get_ref().receive::<In>()) {
                return Poll::Ready(self.taken(received));
            }
        }
    }

    /// Ignores all further messages of the child.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// A message that has arrived already.
    pub fn try_receive(&mut self) -> Option<In> {
        if self.closed {
            return None;
        }
        match self.socket().get_ref().receive::<In>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            received => self.taken(received),
        }
    }

    /// The message, if the child has sent one.
    fn taken(&mut self, received: io::Result<Option<In>>) -> Option<In> {
        let message = received.unwrap_or_else(|error| {
            tracing::warn!("cannot read a control message: {error}");
            self.is_broken = true;
            None
        });
        self.closed = message.is_none();
        message
    }

    /// Whether the child has sent something that is no message. Nothing is read after that.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sends queued messages.
    pub fn flush(&mut self) {
        while let Some((message, descriptors)) = self.queue.front() {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match self.socket().get_ref().send_long(message, &descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // There is no memory for it now. It is sent with the next message, or when the next timer fires.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOBUFS | Errno::NOMEM)) => return,
                // The child is dead. Its death is noticed elsewhere.
                Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    tracing::error!("cannot send a control message: {error}");
                    self.failure = Some(error);
                }
                Ok(()) => {}
            }
            self.queue.pop_front();
        }
    }
}

impl<Out, In> ChildLink<Out, In> {
    fn socket(&self) -> &AsyncFd<ControlSocket> {
        self.socket.as_ref().expect("only the drop takes it")
    }
}

impl<Out, In> Drop for ChildLink<Out, In> {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take().filter(|_| !self.refuses_descriptors) {
            close_elsewhere(socket.into_inner());
        }
    }
}
