//! The records of a connection: read from its socket piece by piece, and written behind one another.
//!
//! Records that need no request are answered here: questions about howdah, and requests that are refused.

use crate::net::linger::linger;
use crate::net::transport::Transport;
use crate::protocols::fastcgi_listener::clock::FastCgiClock;
use crate::protocols::fastcgi_listener::request_head::MAX_VARIABLES_BYTES;
use bytes::BytesMut;
use howdah_fastcgi::record::Violation;
use howdah_fastcgi::reply;
use howdah_fastcgi::request_reader::{RequestPiece, RequestReader};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A web server's connection.
pub struct Link {
    transport: Transport,
    clock: Rc<FastCgiClock>,
    reader: RequestReader,
    /// Bytes that were read, and belong to no piece yet.
    input: BytesMut,
    /// Bytes that are to be written.
    output: BytesMut,
    /// The number of connections that howdah announces.
    max_connections: u64,
}

/// Why a connection ends.
pub enum LinkError {
    /// The web server has closed it, or it is broken.
    Closed,
    /// The web server broke the protocol.
    Violation(Violation),
}

/// How many bytes are read at once.
const READ_BYTES: usize = 16 * 1024;
/// With more bytes than these to write, nothing more is read or made.
pub const OUTPUT_BYTES: usize = 64 * 1024;

// === impl Link ===

impl Link {
    /// A connection of which nothing was read.
    pub fn new(transport: Transport, clock: Rc<FastCgiClock>, max_connections: u64) -> Link {
        let reader = RequestReader::new(MAX_VARIABLES_BYTES);
        Link { transport, clock, reader, input: BytesMut::new(), output: BytesMut::new(), max_connections }
    }

    /// The next piece of a request.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<RequestPiece, LinkError>> {
        loop {
            if self.output.len() > OUTPUT_BYTES {
                // The web server asks, and does not read the answers.
                ready!(self.poll_flush(context)).map_err(|_| LinkError::Closed)?;
            }
            match self.reader.next(&mut self.input).map_err(LinkError::Violation)? {
                None => ready!(self.poll_read(context))?,
                Some(RequestPiece::Question(question)) => {
                    reply::values(&mut self.output, &question, self.max_connections);
                    self.flush_soon(context)?;
                }
                Some(RequestPiece::UnknownType(kind)) => {
                    reply::unknown_type(&mut self.output, kind);
                    self.flush_soon(context)?;
                }
                Some(RequestPiece::Refused { request, outcome, keeps_connection }) => {
                    reply::request_end(&mut self.output, request, outcome);
                    self.flush_soon(context)?;
                    if !keeps_connection && !self.reader.has_request() {
                        return Poll::Ready(Err(LinkError::Closed));
                    }
                }
                Some(piece) => return Poll::Ready(Ok(piece)),
            }
        }
    }

    /// Bytes that are to be written next.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// Writes all bytes.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let polled = Pin::new(&mut self.transport).poll_write(context, &self.output);
            self.clock.wrote(polled.is_ready());
            match ready!(polled)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(self.output.split_to(written)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the current request has come to its end.
    pub fn has_whole_request(&self) -> bool {
        self.reader.has_whole_request()
    }

    /// The current request has ended: another one may begin. An idle connection has no memory for one.
    pub fn request_ended(&mut self) {
        self.reader.request_ended();
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        if self.output.is_empty() {
            self.output = BytesMut::new();
        }
    }

    /// Closes the connection so that its web server cannot take that for the end of a response.
    pub fn reset(self) {
        self.transport.reset_at_end();
    }

    /// Closes the connection, after all bytes were written. A web server that still sends gets the end of its response, too.
    pub async fn close(mut self, still_sends: bool) {
        let flushed = poll_fn(|context| match self.clock.poll_overdue(context) {
            Some(_) => Poll::Ready(false),
            None => self.poll_flush(context).map(|result| result.is_ok()),
        });
        if flushed.await && still_sends && self.transport.shutdown().await.is_ok() {
            linger(&mut self.transport).await;
        }
    }

    /// Begins to write. The rest follows when the connection is polled again.
    fn flush_soon(&mut self, context: &mut Context<'_>) -> Result<(), LinkError> {
        match self.poll_flush(context) {
            Poll::Ready(Err(_)) => Err(LinkError::Closed),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        ready!(self.transport.poll_readable(context));
        self.input.reserve(READ_BYTES);
        let read = pin!(self.transport.read_buf(&mut self.input)).poll(context);
        match ready!(read) {
            Ok(0) | Err(_) => Poll::Ready(Err(LinkError::Closed)),
            Ok(_) => Poll::Ready(Ok(())),
        }
    }
}
