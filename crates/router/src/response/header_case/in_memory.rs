//! hyper's client and server with a peer in memory, so that nothing waits.

use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body_util::Empty;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// The peer of a connection: it sends one message, and keeps the bytes that it receives.
struct Peer {
    message: Bytes,
    /// It has received something: its message follows.
    has_begun: bool,
    received: Vec<u8>,
}

/// The extensions of a response with these header lines, as hyper's client reads it.
pub fn read_extensions(lines: &str, max_headers: usize) -> Option<Extensions> {
    /// The client sends its request, and reads the head.
    const POLLS: usize = 4;
    let message = Bytes::from(format!("HTTP/1.1 200 OK\r\n{lines}\r\n"));
    let peer = Peer { message, has_begun: false, received: Vec::new() };
    let context = &mut Context::from_waker(Waker::noop());
    let mut client = hyper::client::conn::http1::Builder::new();
    client.preserve_header_case(true).max_headers(max_headers);
    let handshake = pin!(client.handshake::<_, Empty<Bytes>>(peer));
    let Poll::Ready(Ok((mut sender, mut connection))) = handshake.poll(context) else { return None };
    let mut response = pin!(sender.send_request(Request::new(Empty::new())));
    for _ in 0..POLLS {
        let _ = Pin::new(&mut connection).poll(context);
        if let Poll::Ready(response) = response.as_mut().poll(context) {
            return Some(std::mem::take(response.ok()?.extensions_mut()));
        }
    }
    None
}

/// The head of a response with status 200, these headers and these extensions, as hyper's server writes it.
pub fn written_head<B>(response: &Response<B>) -> Option<String> {
    let mut head = Response::new(Empty::<Bytes>::new());
    *head.headers_mut() = response.headers().clone();
    *head.extensions_mut() = response.extensions().clone();
    let head = Cell::new(Some(head));
    // The response to HEAD may have any Content-Length.
    let message = Bytes::from_static(b"HEAD / HTTP/1.1\r\n\r\n");
    let peer = Peer { message, has_begun: true, received: Vec::new() };
    let service = service_fn(|_| ready(Ok::<_, Infallible>(head.take().unwrap_or_default())));
    let mut server = hyper::server::conn::http1::Builder::new();
    server.title_case_headers(true).header_read_timeout(None);
    let mut connection = server.serve_connection(peer, service);
    let _ = Pin::new(&mut connection).poll(&mut Context::from_waker(Waker::noop()));
    let written = connection.into_parts().io.received;
    Some(String::from_utf8_lossy(&written).into_owned()).filter(|head| head.ends_with("\r\n\r\n"))
}

impl Read for Peer {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.has_begun || self.message.is_empty() {
            return Poll::Pending;
        }
        let length = self.message.len().min(buffer.remaining());
        buffer.put_slice(&self.message.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl Write for Peer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.has_begun = true;
        self.received.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
