//! A request's body, on its way from the connection to the action that reads it.
//!
//! The connection reads from its socket only while the queue has room: a reader that is slow slows the web server down.

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The end that the action reads.
pub struct RequestBody {
    queue: Rc<BodyQueue>,
}

/// The end that the connection fills.
#[derive(Default)]
pub struct BodyQueue {
    parts: RefCell<VecDeque<Bytes>>,
    /// Short parts that came after those, together.
    short: RefCell<BytesMut>,
    queued: Cell<usize>,
    /// How many bytes have come.
    received: Cell<u64>,
    /// The length that the web server has announced.
    announced: Option<u64>,
    end: Cell<End>,
    /// Whether the action has dropped its end: further parts are not kept.
    is_dropped: Cell<bool>,
    /// The reader waits for more.
    reader: RefCell<Option<Waker>>,
    /// The connection waits for room.
    filler: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    NotYet,
    Whole,
    /// It has another length than the web server has announced, or the connection has ended.
    Broken(&'static str),
}

/// The most bytes that wait for the reader, and one read more.
const QUEUE_BYTES: usize = 256 * 1024;
/// A shorter part is copied: it would keep all bytes that were read together with it, and a record may have one byte.
const SHORT_PART: usize = 4 * 1024;

// === impl BodyQueue ===

impl BodyQueue {
    /// The queue of a body with this announced length.
    pub fn new(announced: Option<u64>) -> Rc<BodyQueue> {
        Rc::new(BodyQueue { announced, ..BodyQueue::default() })
    }

    /// The end that the action reads.
    pub fn body(self: &Rc<BodyQueue>) -> RequestBody {
        RequestBody { queue: Rc::clone(self) }
    }

    /// Appends a part, which is not empty.
    pub fn push(&self, part: Bytes) {
        self.received.set(self.received.get() + part.len() as u64);
        if self.announced.is_some_and(|announced| self.received.get() > announced) {
            return self.finish(End::Broken("the body is longer than CONTENT_LENGTH"));
        }
        // Without a reader, it would only take memory.
        if self.end.get() == End::NotYet && !self.is_dropped.get() {
            self.queued.set(self.queued.get() + part.len());
            let mut short = self.short.borrow_mut();
            if part.len() < SHORT_PART {
                short.extend_from_slice(&part);
            } else {
                let before = std::mem::take(&mut *short).freeze();
                self.parts.borrow_mut().extend([before, part].into_iter().filter(|part| !part.is_empty()));
            }
            self.wake();
        }
    }

    /// The body has come to its end. Some web servers announce the length of a body that they do not send: an answer of
    /// nginx's `error_page` has the variables of the request before.
    pub fn end(&self) {
        let received = self.received.get();
        match self.announced {
            Some(announced) if received > 0 && received < announced => {
                self.finish(End::Broken("the body is shorter than CONTENT_LENGTH"));
            }
            _ => self.finish(End::Whole),
        }
    }

    /// No more of the body comes.
    pub fn lose(&self) {
        self.finish(End::Broken("the connection ended within the body"));
    }

    /// How many bytes have come.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    /// Whether more of the body may be read. Wakes this task when it may.
    pub fn poll_room(&self, context: &Context<'_>) -> bool {
        let has_room = self.queued.get() < QUEUE_BYTES;
        if !has_room {
            *self.filler.borrow_mut() = Some(context.waker().clone());
        }
        has_room
    }

    fn finish(&self, end: End) {
        if self.end.get() == End::NotYet {
            self.end.set(end);
            self.wake();
        }
    }

    /// The next part.
    fn take(&self) -> Option<Bytes> {
        let first = self.parts.borrow_mut().pop_front();
        let part = first.unwrap_or_else(|| std::mem::take(&mut *self.short.borrow_mut()).freeze());
        self.queued.set(self.queued.get() - part.len());
        Some(part).filter(|part| !part.is_empty())
    }

    fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

// === impl RequestBody ===

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let queue = &self.queue;
        // The parts before a wrong end are passed on, as with HTTP/1.
        if let Some(part) = queue.take() {
            if let Some(filler) = queue.filler.take() {
                filler.wake();
            }
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        match queue.end.get() {
            End::Whole => Poll::Ready(None),
            End::Broken(reason) => Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason)))),
            End::NotYet => {
                *queue.reader.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.queue.end.get() == End::Whole && self.queue.queued.get() == 0
    }

    fn size_hint(&self) -> SizeHint {
        let queued = self.queue.queued.get() as u64;
        match (self.queue.end.get(), self.queue.announced) {
            (End::Whole, _) => SizeHint::with_exact(queued),
            (End::NotYet, Some(announced)) => {
                SizeHint::with_exact(announced.saturating_sub(self.queue.received.get()) + queued)
            }
            _ => SizeHint::default(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.queue.is_dropped.set(true);
        self.queue.parts.take();
        self.queue.short.take();
        self.queue.queued.set(0);
        if let Some(filler) = self.queue.filler.take() {
            filler.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::future::poll_fn;

    async fn read(announced: Option<u64>, parts: &[&'static [u8]]) -> Result<Vec<u8>, String> {
        let queue = BodyQueue::new(announced);
        let body = queue.body();
        parts.iter().for_each(|part| queue.push(Bytes::from_static(part)));
        queue.end();
        body.collect().await.map(|all| all.to_bytes().to_vec()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_body_has_its_announced_length_or_is_broken() {
        assert_eq!(read(Some(4), &[b"ab", b"cd"]).await, Ok(b"abcd".to_vec()));
        assert_eq!(read(None, &[b"ab", b"cd"]).await, Ok(b"abcd".to_vec()));
        assert_eq!(read(Some(9), &[]).await, Ok(Vec::new()), "an announced body that is not sent");
        assert!(read(Some(5), &[b"ab", b"cd"]).await.is_err_and(|error| error.contains("shorter")));
        assert!(read(Some(3), &[b"ab", b"cd"]).await.is_err_and(|error| error.contains("longer")));
    }

    #[tokio::test]
    async fn a_slow_reader_stops_the_connection() {
        let queue = BodyQueue::new(None);
        let mut body = queue.body();
        let has_room = || poll_fn(|context| Poll::Ready(queue.poll_room(context)));
        queue.push(Bytes::from(vec![0; QUEUE_BYTES]));
        assert!(!has_room().await);
        assert_eq!(
            body.frame().await.and_then(Result::ok).and_then(|f| f.into_data().ok()).map_or(0, |d| d.len()),
            QUEUE_BYTES
        );
        assert!(has_room().await);
        queue.push(Bytes::from(vec![0; QUEUE_BYTES]));
        drop(body);
        assert!(has_room().await, "nothing is kept without a reader");
        queue.push(Bytes::from(vec![0; QUEUE_BYTES]));
        assert!(has_room().await);
    }
}
