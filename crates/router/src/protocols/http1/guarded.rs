//! The socket that hyper reads through: only bytes that pass the guard arrive.

use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::connection::limits::MAX_HEAD_BYTES;
use crate::protocols::http1::clock::{Clock, GuardProgress};
use crate::protocols::http1::strictness::{Guard, GuardError};
use crate::protocols::http1::watched::Watched;
use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A guarded socket.
///
/// A read that ends with the end of a head or in a body, and that is nearly every one, is judged where it lies.
pub struct Guarded {
    socket: Watched,
    clock: Rc<Clock>,
    guard: Guard,
    /// Bytes that were held back when they were read.
    kept: BytesMut,
    /// How many of them may pass.
    released: usize,
    error: Option<GuardError>,
    /// The rest of the request that replaces a refused head.
    substitute: &'static [u8],
    /// Whether a client of HTTP/2 may come here.
    may_be_http2: bool,
    /// hyper has ended the connection.
    is_shut: bool,
}

/// The request that hyper gets in the place of a refused head. The answer does not depend on it.
const SUBSTITUTE: &[u8] = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
/// The same, for an answer that must not have a body.
const SUBSTITUTE_FOR_HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n";

// === impl Guarded ===

impl Guarded {
    /// Guards a connection from its first byte on. `may_be_http2`: bytes that are no request may be a wrong preface of
    /// HTTP/2, whose client cannot read an answer of HTTP/1 (RFC 9113, 3.4).
    pub fn new(socket: Watched, clock: Rc<Clock>, may_be_http2: bool) -> Guarded {
        Guarded {
            socket,
            clock,
            guard: Guard::new(),
            kept: BytesMut::new(),
            released: 0,
            error: None,
            substitute: b"",
            may_be_http2,
            is_shut: false,
        }
    }

    /// The socket without its guard. Bytes that were held back are read first.
    pub fn into_inner(mut self) -> Watched {
        self.socket.unread(self.kept.freeze());
        self.socket
    }

    /// Puts back bytes that had passed, for a reader without the guard.
    pub fn unread(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut all = BytesMut::from(bytes);
            all.unsplit(std::mem::take(&mut self.kept));
            self.kept = all;
        }
    }

    /// Between requests: ready when another request comes, or the connection has ended.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        debug_assert!(self.between_requests().is_some(), "bytes that were held back would be lost");
        self.socket.poll_readable(context)
    }

    /// Whether hyper has ended the connection, and the client may still be sending.
    pub fn is_shut_too_early(&self) -> bool {
        self.is_shut && !self.between_requests().is_some_and(|requests| self.clock.has_read(requests))
    }

    /// Whether a part of a head has come, and not its end.
    pub fn has_unfinished_head(&self) -> bool {
        self.error.is_none() && self.released == 0 && self.guard.has_begun_head()
    }

    /// Whether the client spoke another protocol, and gets no answer.
    pub fn is_other_protocol(&self) -> bool {
        self.may_be_http2 && self.error == Some(GuardError::Refused(HeadRefusal::OtherProtocol, 0))
    }

    /// Refuses a head that does not come to its end.
    fn give_up(&mut self) {
        let error = self.guard.give_up(HeadRefusal::Late);
        stop(error, &self.kept, &self.clock, &mut self.substitute);
        self.kept = BytesMut::new();
        self.error = Some(error);
    }

    /// How many requests have passed, if nothing follows them.
    fn between_requests(&self) -> Option<u64> {
        let is_clear = self.error.is_none() && self.kept.is_empty();
        self.guard.between_requests().filter(|_| is_clear)
    }

    fn report(&self) {
        let between = self.between_requests().filter(|_| !self.is_shut);
        let holds_head = self.has_unfinished_head();
        self.clock.guard_is_at(GuardProgress { whole: self.guard.whole(), between, holds_head });
    }

    /// Passes bytes that were held back and may pass now; `false` if there are none.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.released > 0 {
            let length = self.released.min(buffer.remaining());
            buffer.put_slice(&self.kept[..length]);
            self.kept.advance(length);
            self.released -= length;
            if self.kept.is_empty() {
                // A connection that waits keeps no buffer.
                self.kept = BytesMut::new();
            }
            self.clock.read(length);
            return true;
        }
        if !self.substitute.is_empty() {
            let (now, later) = self.substitute.split_at(self.substitute.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.substitute = later;
            return true;
        }
        false
    }

    /// Judges the bytes behind `before` in the buffer, and leaves those there that may pass.
    fn judge(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        if self.kept.is_empty() {
            let new = &buffer.filled()[before..];
            let judgement = self.guard.judge(new);
            let rest = &new[judgement.pass..];
            let pass = match judgement.raw_bytes.as_slice() {
                [] => judgement.pass,
                raw_bytes => {
                    self.kept = percent_encoded(&new[..judgement.pass], raw_bytes);
                    self.released = self.kept.len();
                    0
                }
            };
            match judgement.error {
                None => self.kept.extend_from_slice(rest),
                Some(error) => stop(error, rest, &self.clock, &mut self.substitute),
            }
            self.error = judgement.error;
            buffer.set_filled(before + pass);
        } else {
            self.kept.extend_from_slice(&buffer.filled()[before..]);
            buffer.set_filled(before);
            self.judge_kept();
        }
    }

    fn judge_kept(&mut self) {
        let judgement = self.guard.judge(&self.kept);
        if let Some(error) = judgement.error {
            stop(error, &self.kept[judgement.pass..], &self.clock, &mut self.substitute);
            self.kept.truncate(judgement.pass);
        }
        self.error = judgement.error;
        self.released = judgement.pass;
        if !judgement.raw_bytes.is_empty() {
            let rest = self.kept.split_off(judgement.pass);
            self.kept = percent_encoded(&self.kept, &judgement.raw_bytes);
            self.released = self.kept.len();
            self.kept.unsplit(rest);
        }
    }

    /// Whether the guard waits for an answer. Once that has been given, the guard judges the bytes that came meanwhile.
    /// Bytes that may pass already belong to the request before: they pass first.
    fn is_undecided(&mut self) -> bool {
        match self.guard.waits_for() {
            Some(requests) if self.released == 0 && self.clock.has_answered(requests) => {
                self.guard.go_on();
                self.judge_kept();
                false
            }
            waits_for => waits_for.is_some(),
        }
    }

    fn read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            // Without a head to refuse, the notice stays: the next check of the clock then ends the connection.
            if self.has_unfinished_head() && self.clock.take_late_head() {
                self.give_up();
            }
            let is_undecided = self.is_undecided();
            if !self.is_other_protocol() && self.give(buffer) {
                return Poll::Ready(Ok(()));
            }
            if self.error == Some(GuardError::Broken) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the chunks of a body are wrong")));
            }
            if self.is_other_protocol() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "neither HTTP/1 nor HTTP/2")));
            }
            if is_undecided && self.kept.len() > MAX_HEAD_BYTES {
                // These bytes may belong to another protocol: enough of them. hyper reads again when it has answered.
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
            if buffer.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            if self.error.is_some() {
                // Bytes behind a refused head are ignored. They are read so that the answer does not become a reset.
                buffer.set_filled(before);
                continue;
            }
            self.judge(buffer, before);
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// The bytes, with those at these positions percent-encoded.
fn percent_encoded(bytes: &[u8], positions: &[usize]) -> BytesMut {
    let mut encoded = BytesMut::with_capacity(bytes.len() + 2 * positions.len());
    let mut copied = 0;
    for &at in positions {
        encoded.extend_from_slice(&bytes[copied..at]);
        let byte = usize::from(bytes[at]);
        encoded.extend_from_slice(&[b'%', HEX_DIGITS[byte >> 4], HEX_DIGITS[byte & 15]]);
        copied = at + 1;
    }
    encoded.extend_from_slice(&bytes[copied..]);
    encoded
}

/// Nothing passes from here on.
fn stop(error: GuardError, rest: &[u8], clock: &Clock, substitute: &mut &'static [u8]) {
    if let GuardError::Refused(refusal, heads) = error {
        *substitute = if rest.starts_with(b"HEAD ") { SUBSTITUTE_FOR_HEAD } else { SUBSTITUTE };
        clock.refuse(heads, refusal);
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = self.read(context, buffer);
        self.report();
        polled
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut = true;
        self.report();
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::load::Load;
    use crate::net::socket::Socket;
    use crate::net::transport::Transport;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn bytes_that_may_pass_are_judged_once() {
        // The encoded head is as long as the head and the body were: one read takes both, and passes the head.
        const HEAD: &[u8] = b"POST /?<<<<<<<<< HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 18\r\n\r\n";
        const GET: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
        let (mut client, server) = UnixStream::pair().unwrap();
        let clock = Rc::new(Clock::new(Arc::new(Load::default()), 1, false));
        let socket = Watched::new(Socket::Plain(Transport::Unix(server)), Rc::clone(&clock));
        let mut guarded = Guarded::new(socket, Rc::clone(&clock), false);
        // The body looks like a head.
        client.write_all(&[HEAD, GET].concat()).await.unwrap();
        let mut head = vec![0; HEAD.len() + GET.len()];
        guarded.read_exact(&mut head).await.unwrap();
        assert!(head.starts_with(b"POST /?%3C%3C") && head.ends_with(b"\r\n\r\n") && guarded.released == GET.len());
        // The answer comes before the body was read.
        clock.request_began(true);
        clock.request_ended();
        client.write_all(GET).await.unwrap();
        for _ in 0..2 {
            let mut bytes = vec![0; GET.len()];
            guarded.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes, GET);
        }
        assert_eq!(guarded.between_requests(), Some(2));
    }
}
