//! The case of header names over HTTP/1.1: as a script, an upstream or the configuration wrote them, and otherwise as in
//! `Content-Type`. Scripts and old clients compare names with their case, although HTTP ignores it.
//!
//! A `HeaderMap` has its names in lower case, and hyper capitalizes them. A response whose names were written in another
//! way has [`WrittenNames`] as an extension. At its end, [`apply`] replaces them by hyper's own extension for names.
//!
//! That extension is private to hyper: a client of hyper makes it when it reads a response. Responses of upstreams
//! therefore have it already. For all others, a client reads a head with these names from memory; the result is cached by
//! the names. If a response of an upstream gets a header with an unusual name from the configuration, then only that
//! name keeps its case: the two extensions cannot be joined.
//!
//! Nothing fails here: without the extension, hyper capitalizes all names.

use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// The names of a response's headers as they were written, if one of them has another case than hyper would write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenNames {
    /// Each name with the rest of a header line, so that these are lines of a head.
    lines: Cow<'static, str>,
}

/// More names than these are capitalized, in bytes: a script chooses them.
const MAX_BYTES: usize = 4096;
/// How many different sets of names a thread keeps. A site has few.
const MAX_KEPT: usize = 64;
/// The rest of a line after its name. The value is valid for `Content-Length`, too.
const LINE_REST: &str = ": 0\r\n";

// === impl WrittenNames ===

impl WrittenNames {
    /// The name that howdah itself does not write as hyper would.
    pub const ETAG: WrittenNames = WrittenNames { lines: Cow::Borrowed("ETag: 0\r\n") };

    /// Adds a name, which is a token.
    pub fn add(&mut self, name: &str) {
        let lines = self.lines.to_mut();
        lines.push_str(name);
        lines.push_str(LINE_REST);
    }

    /// Adds the only name of a header that replaces all others with this name.
    pub fn set(&mut self, name: &str) {
        let is_other =
            |line: &&str| !line.strip_suffix(LINE_REST).is_some_and(|other| other.eq_ignore_ascii_case(name));
        self.lines = self.lines.split_inclusive('\n').filter(is_other).collect();
        self.add(name);
    }
}

/// Whether hyper writes a name in this way.
pub fn is_capitalized(name: &[u8]) -> bool {
    let mut previous = b'-';
    name.iter().all(|&byte| {
        let is_start = std::mem::replace(&mut previous, byte) == b'-';
        !(if is_start { byte.is_ascii_lowercase() } else { byte.is_ascii_uppercase() })
    })
}

/// Replaces the names that a response carries by hyper's extension for them.
pub fn apply<B>(response: &mut Response<B>) {
    thread_local! {
        static KEPT: RefCell<HashMap<String, Extensions>> = RefCell::default();
    }
    let Some(names) = response.extensions_mut().remove::<WrittenNames>() else { return };
    if names.lines.len() > MAX_BYTES {
        return;
    }
    KEPT.with_borrow_mut(|kept| {
        if let Some(extensions) = kept.get(&*names.lines) {
            response.extensions_mut().extend(extensions.clone());
            return;
        }
        let Some(extensions) = read_by_client(&names.lines) else { return };
        response.extensions_mut().extend(extensions.clone());
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(names.lines.into_owned(), extensions);
    });
}

/// The extensions of a response with these header lines, as a client reads it. All is in memory, so that nothing waits.
fn read_by_client(lines: &str) -> Option<Extensions> {
    /// The client sends its request, and reads the head.
    const POLLS: usize = 4;
    let memory = Memory { unread: Bytes::from(format!("HTTP/1.1 200 OK\r\n{lines}\r\n")), was_written: false };
    let context = &mut Context::from_waker(Waker::noop());
    let mut client = http1::Builder::new();
    client.preserve_header_case(true).max_headers(MAX_BYTES / LINE_REST.len());
    let handshake = pin!(client.handshake::<_, Empty<Bytes>>(memory));
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

/// The other end of a client's connection: it has one response.
struct Memory {
    unread: Bytes,
    /// A client expects no response before its request.
    was_written: bool,
}

impl Read for Memory {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.was_written || self.unread.is_empty() {
            return Poll::Pending;
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.was_written = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyper_capitalizes_the_beginning_of_each_word() {
        for name in ["Content-Type", "X", "A-1b", "X-_a", "-", ""] {
            assert!(is_capitalized(name.as_bytes()), "{name}");
        }
        for name in ["content-type", "Content-type", "ETag", "X-PHP", "WWW-Authenticate"] {
            assert!(!is_capitalized(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_set_name_replaces_the_others() {
        let mut names = WrittenNames::default();
        ["X-a", "ETag", "x-A"].into_iter().for_each(|name| names.add(name));
        names.set("X-A");
        assert_eq!(names.lines, "ETag: 0\r\nX-A: 0\r\n");
    }

    #[test]
    fn a_response_gets_the_extension_of_hyper() {
        let mut names = WrittenNames::default();
        ["X-ODD-case", "content-length", "set-Cookie", "Set-cookie"].into_iter().for_each(|name| names.add(name));
        for _ in 0..2 {
            let mut response = Response::new(());
            response.extensions_mut().insert(names.clone());
            apply(&mut response);
            assert!(response.extensions().get::<WrittenNames>().is_none());
            assert_eq!(response.extensions().len(), 1);
        }
        let mut plain = Response::new(());
        apply(&mut plain);
        assert!(plain.extensions().is_empty());
    }

    #[test]
    fn very_many_names_are_capitalized() {
        let mut names = WrittenNames::default();
        (0..MAX_BYTES).for_each(|number| names.add(&format!("x-{number}")));
        let mut response = Response::new(());
        response.extensions_mut().insert(names);
        apply(&mut response);
        assert!(response.extensions().is_empty());
    }
}
