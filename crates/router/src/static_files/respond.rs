//! Makes the response from a request and a version of a file.
//!
//! First [`answer`] decides, without the content, how to answer the request; then [`headers_only`] or [`with_content`]
//! builds the response. A response without the file has an empty body. Nothing fails here.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    os::fd::OwnedFd,
    time::SystemTime,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE},
    request::Parts,
};

use crate::response::{header_case, not_modified::NotModified};

use super::{
    body::{BodyPiece, FileBody},
    conditional::{self, Preconditions},
    range::{self, Multipart, Selection},
    version::{FileIdentity, FileVersion},
};

/// How a request for an existing file is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileAnswer {
    HeadersOnly(BodylessAnswer),
    /// 200 or 206; the selection is satisfiable.
    Content(Selection),
}

/// A response without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodylessAnswer {
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
pub(super) enum FileContent {
    Memory(Bytes),
    File(OwnedFd),
}

pub(super) fn answer(request: &Parts, version: &FileVersion) -> FileAnswer {
    if !is_read(&request.method) {
        return FileAnswer::HeadersOnly(BodylessAnswer::MethodNotAllowed);
    }
    match conditional::evaluate(&request.headers, &version.validators) {
        Preconditions::Failed => return FileAnswer::HeadersOnly(BodylessAnswer::PreconditionFailed),
        Preconditions::NotModified => return FileAnswer::HeadersOnly(BodylessAnswer::NotModified),
        Preconditions::Hold => {}
    }
    // Range is defined for GET only (RFC 9110, 14.2).
    if request.method == Method::HEAD {
        return FileAnswer::HeadersOnly(BodylessAnswer::Head);
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
        Selection::Unsatisfiable => FileAnswer::HeadersOnly(BodylessAnswer::Unsatisfiable),
        selection => FileAnswer::Content(selection),
    }
}

/// Files support GET and HEAD.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

pub(super) fn headers_only(headers: BodylessAnswer, version: &FileVersion) -> Response<FileBody> {
    let mut response = match headers {
        BodylessAnswer::MethodNotAllowed => empty(StatusCode::METHOD_NOT_ALLOWED),
        BodylessAnswer::NotModified => empty(StatusCode::NOT_MODIFIED),
        BodylessAnswer::PreconditionFailed => empty(StatusCode::PRECONDITION_FAILED),
        BodylessAnswer::Unsatisfiable => empty(StatusCode::RANGE_NOT_SATISFIABLE),
        BodylessAnswer::Head => return whole(version, FileBody::empty()),
    };
    let map = response.headers_mut();
    match headers {
        BodylessAnswer::MethodNotAllowed => {
            map.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        BodylessAnswer::Unsatisfiable => {
            map.insert(CONTENT_RANGE, range::content_range(None, version.identity.size));
        }
        BodylessAnswer::NotModified => {
            version.validators.insert_into(map);
            header_case::keep_file_names(&mut response);
            let content_type = version.content_type.clone();
            response.extensions_mut().insert(NotModified { content_type, length: version.identity.size });
        }
        BodylessAnswer::PreconditionFailed | BodylessAnswer::Head => {}
    }
    response
}

pub(super) fn with_content(selection: Selection, version: &FileVersion, content: FileContent) -> Response<FileBody> {
    let FileIdentity { size, device, .. } = version.identity;
    match selection {
        Selection::Whole | Selection::Unsatisfiable => whole(version, part(content, device, 0..size)),
        Selection::Single(range) => {
            let length = HeaderValue::from(range.end - range.start);
            let content_range = range::content_range(Some(&range), size);
            let mut response = whole(version, part(content, device, range));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().insert(CONTENT_LENGTH, length);
            response.headers_mut().insert(CONTENT_RANGE, content_range);
            response
        }
        Selection::Several(ranges) => {
            let Multipart { content_type, parts, end } =
                Multipart::new(&boundary(), ranges, version.content_type.as_ref(), size);
            let framed = parts.iter().map(|(head, range)| head.len() as u64 + range.end - range.start);
            let length = HeaderValue::from(framed.sum::<u64>() + end.len() as u64);
            let mut response = whole(version, several(content, device, parts, end));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().insert(CONTENT_LENGTH, length);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
    }
}

/// 301 to the path of a folder with its slash.
pub(super) fn redirect_to_folder(location: HeaderValue) -> Response<FileBody> {
    let mut response = empty(StatusCode::MOVED_PERMANENTLY);
    response.headers_mut().insert(LOCATION, location);
    response
}

pub(super) fn empty(status: StatusCode) -> Response<FileBody> {
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = status;
    response
}

/// 200 with all of the file's headers; the caller overwrites those that differ for a part.
fn whole(version: &FileVersion, body: FileBody) -> Response<FileBody> {
    let mut response = Response::new(body);
    *response.headers_mut() = version.headers.clone();
    header_case::keep_file_names(&mut response);
    response
}

fn part(content: FileContent, device: u64, range: Range<u64>) -> FileBody {
    match content {
        FileContent::Memory(bytes) => FileBody::memory(slice(&bytes, range)),
        FileContent::File(file) => FileBody::pieces(file, device, [BodyPiece::File(range)]),
    }
}

fn several(content: FileContent, device: u64, parts: Vec<(Bytes, Range<u64>)>, end: Bytes) -> FileBody {
    match content {
        FileContent::Memory(bytes) => {
            let parts = parts.into_iter().flat_map(|(head, range)| [head, slice(&bytes, range)]);
            FileBody::memory_pieces(parts.chain([end]))
        }
        FileContent::File(file) => {
            let parts = parts.into_iter().flat_map(|(head, range)| [BodyPiece::Memory(head), BodyPiece::File(range)]);
            FileBody::pieces(file, device, parts.chain([BodyPiece::Memory(end)]))
        }
    }
}

/// The range lies within the content, and the content is in memory, so that the numbers fit into `usize`.
fn slice(content: &Bytes, range: Range<u64>) -> Bytes {
    content.slice(range.start as usize..range.end as usize)
}

/// Random, so that no author of a file can know it beforehand.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(());
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
        assert_eq!(boundary().len(), 32);
    }
}
