//! From a version of a file and a request to a response.
//!
//! First [`answer`] decides, without touching the content, what the request comes to; then [`headers_only`] or
//! [`with_content`] puts the response together. A response that is not the file has an empty body. Nothing fails here.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    os::fd::OwnedFd,
    time::SystemTime,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode, Uri,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE},
    request::Parts,
};

use super::{
    body::{FileBody, Piece},
    conditional::{self, Preconditions},
    range::{self, Multipart, Selection},
    version::Version,
};

/// What a request for an existing file comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    HeadersOnly(Headers),
    /// 200 or 206; the selection is satisfiable.
    Content(Selection),
}

/// A response without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headers {
    /// 405
    MethodNotAllowed,
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
    /// 416
    Unsatisfiable,
    /// 200, to HEAD
    Head,
}

/// Where the bytes of a file come from.
pub(super) enum Content {
    Memory(Bytes),
    File(OwnedFd),
}

/// What a 304 does not say of the file, and what its other headers depend on. An extension of the response.
#[derive(Clone, Debug)]
pub struct NotModified {
    /// The Content-Type that a 200 would have.
    pub content_type: HeaderValue,
    /// Bytes.
    pub length: u64,
}

pub(super) fn answer(request: &Parts, version: &Version) -> Answer {
    if !is_read(&request.method) {
        return Answer::HeadersOnly(Headers::MethodNotAllowed);
    }
    match conditional::evaluate(&request.headers, &version.validators) {
        Preconditions::Failed => return Answer::HeadersOnly(Headers::PreconditionFailed),
        Preconditions::NotModified => return Answer::HeadersOnly(Headers::NotModified),
        Preconditions::Hold => {}
    }
    // Range means something to GET only (RFC 9110, 14.2).
    if request.method == Method::HEAD {
        return Answer::HeadersOnly(Headers::Head);
    }
    let mut ranges = request.headers.get_all(RANGE).iter();
    let selection = match (ranges.next(), ranges.next()) {
        (Some(header), None)
            if conditional::range_applies(&request.headers, &version.validators, SystemTime::now()) =>
        {
            range::select(header, version.identity.size)
        }
        _ => Selection::Whole,
    };
    match selection {
        Selection::Unsatisfiable => Answer::HeadersOnly(Headers::Unsatisfiable),
        selection => Answer::Content(selection),
    }
}

/// GET and HEAD are the methods that a file knows.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

pub(super) fn headers_only(headers: Headers, version: &Version) -> Response<FileBody> {
    let mut response = match headers {
        Headers::MethodNotAllowed => empty(StatusCode::METHOD_NOT_ALLOWED),
        Headers::NotModified => empty(StatusCode::NOT_MODIFIED),
        Headers::PreconditionFailed => empty(StatusCode::PRECONDITION_FAILED),
        Headers::Unsatisfiable => empty(StatusCode::RANGE_NOT_SATISFIABLE),
        Headers::Head => return whole(version, FileBody::empty()),
    };
    let map = response.headers_mut();
    match headers {
        Headers::MethodNotAllowed => {
            map.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        Headers::Unsatisfiable => {
            map.insert(CONTENT_RANGE, range::content_range(None, version.identity.size));
        }
        Headers::NotModified => {
            version.validators.insert_into(map);
            let content_type = version.content_type.clone();
            response.extensions_mut().insert(NotModified { content_type, length: version.identity.size });
        }
        Headers::PreconditionFailed | Headers::Head => {}
    }
    response
}

pub(super) fn with_content(selection: Selection, version: &Version, content: Content) -> Response<FileBody> {
    let size = version.identity.size;
    match selection {
        Selection::Whole | Selection::Unsatisfiable => whole(version, part(content, 0..size)),
        Selection::Single(range) => {
            let length = HeaderValue::from(range.end - range.start);
            let content_range = range::content_range(Some(&range), size);
            let mut response = whole(version, part(content, range));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().insert(CONTENT_LENGTH, length);
            response.headers_mut().insert(CONTENT_RANGE, content_range);
            response
        }
        Selection::Several(ranges) => {
            let Multipart { content_type, parts, end } =
                Multipart::new(&boundary(), ranges, &version.content_type, size);
            let framed = parts.iter().map(|(head, range)| head.len() as u64 + range.end - range.start);
            let length = HeaderValue::from(framed.sum::<u64>() + end.len() as u64);
            let mut response = whole(version, several(content, parts, end));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().insert(CONTENT_LENGTH, length);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
    }
}

/// 301 to the same target with a slash after its path.
pub(super) fn redirect_to_folder(uri: &Uri) -> Response<FileBody> {
    let mut response = empty(StatusCode::MOVED_PERMANENTLY);
    if let Some(location) = folder_location(uri) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// The same target with a slash after its path: the client's own spelling, and never another host, which is what
/// browsers make of a Location that begins with two slashes, backslashes included.
pub fn folder_location(uri: &Uri) -> Option<HeaderValue> {
    let path = uri.path().trim_start_matches(['/', '\\']).replace('\\', "%5C");
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // What came in a request line can go out in a header.
    HeaderValue::from_bytes(format!("/{path}/{query}").as_bytes()).ok()
}

pub(super) fn empty(status: StatusCode) -> Response<FileBody> {
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = status;
    response
}

/// 200, all of the file's headers; those of a part are set over them.
fn whole(version: &Version, body: FileBody) -> Response<FileBody> {
    let mut response = Response::new(body);
    *response.headers_mut() = version.headers.clone();
    response
}

fn part(content: Content, range: Range<u64>) -> FileBody {
    match content {
        Content::Memory(bytes) => FileBody::memory(slice(&bytes, range)),
        Content::File(file) => FileBody::pieces(file, [Piece::File(range)]),
    }
}

fn several(content: Content, parts: Vec<(Bytes, Range<u64>)>, end: Bytes) -> FileBody {
    match content {
        Content::Memory(bytes) => {
            let mut body = Vec::new();
            for (head, range) in parts {
                body.extend_from_slice(&head);
                body.extend_from_slice(&slice(&bytes, range));
            }
            body.extend_from_slice(&end);
            FileBody::memory(Bytes::from(body))
        }
        Content::File(file) => {
            let parts = parts.into_iter().flat_map(|(head, range)| [Piece::Memory(head), Piece::File(range)]);
            FileBody::pieces(file, parts.chain([Piece::Memory(end)]))
        }
    }
}

/// The content has the size that the range was cut to; it lies in memory, so that the numbers fit.
fn slice(content: &Bytes, range: Range<u64>) -> Bytes {
    content.slice(range.start as usize..range.end as usize)
}

/// Random, so that nobody can put it into a file beforehand.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(());
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_keeps_the_spelling_and_never_leaves_the_host() {
        let table = [
            ("/a", "/a/"),
            ("/a?b=c&d=%2F", "/a/?b=c&d=%2F"),
            ("/a?", "/a/?"),
            ("/a%20b/%C3%A9", "/a%20b/%C3%A9/"),
            ("/a+b", "/a+b/"),
            ("//evil.example/..", "/evil.example/../"),
            ("///evil.example/%2e%2e", "/evil.example/%2e%2e/"),
            ("/\\evil.example", "/evil.example/"),
            ("/\\/evil.example/../a", "/evil.example/../a/"),
            ("/a\\b", "/a%5Cb/"),
            ("http://host/a?b", "/a/?b"),
        ];
        for (target, expected) in table {
            let response = redirect_to_folder(&target.parse().unwrap());
            assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
            assert_eq!(response.headers()[LOCATION], expected, "{target}");
        }
    }

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
        assert_eq!(boundary().len(), 32);
    }
}
