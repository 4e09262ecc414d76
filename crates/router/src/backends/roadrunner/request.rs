//! A request, as a worker of RoadRunner gets it: its context, and its body in memory or in a file.

use crate::backends::buffering::body_disk::DiskNotice;
use crate::backends::buffering::request_body::{self, BodyFile, BufferedBody};
use crate::backends::roadrunner::form::{self, FieldMemory, Form, FormFiles};
use crate::request::incoming::IncomingBody;
use crate::request::protocol::protocol;
use crate::request::subject::Subject;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_config::{ContextCodec, Http, RoadRunnerApplication, cookies, decode_query};
use howdah_goridge::request::{Codec, Cookies, Headers, RequestContext, canonical_name};
use http::Method;
use http::header::{COOKIE, HOST};
use hyper::body::Body;
use std::borrow::Cow;
use std::path::Path;

/// A request for a worker. Several workers may get it, one after the other.
pub struct WorkerRequest {
    /// The frame, up to the body.
    pub head: Vec<u8>,
    /// The body in memory.
    pub body: Bytes,
    /// The body in a file.
    pub file: Option<BodyFile>,
    /// The uploaded files.
    files: FormFiles,
    /// The memory of the fields of a form, and of a large head.
    _memory: FieldMemory,
}

/// How an application gets its requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestOptions {
    /// Forms are passed on unparsed.
    pub is_raw: bool,
    /// The encoding of contexts.
    pub codec: Codec,
}

/// The body of a request, as the worker gets it.
enum WorkerBody {
    Raw(BufferedBody),
    Form(Form),
}

// === impl RequestOptions ===

impl RequestOptions {
    /// The options of this application.
    pub fn of(application: &RoadRunnerApplication) -> RequestOptions {
        let codec = match application.codec {
            ContextCodec::Json => Codec::Json,
            ContextCodec::Proto => Codec::Proto,
        };
        RequestOptions { is_raw: application.raw_body, codec }
    }
}

// === impl WorkerRequest ===

impl WorkerRequest {
    /// Reads a request to its end. Uploaded files are made in `folder`.
    ///
    /// # Errors
    /// 400, 408, 413, 500 and 503 for errors of the body.
    pub async fn read(
        subject: &Subject<'_>,
        body: IncomingBody,
        RequestOptions { is_raw, codec }: RequestOptions,
        folder: &Path,
        http: &Http,
    ) -> Result<WorkerRequest, Failure> {
        let parts = subject.parts;
        // As in RoadRunner.
        let has_body = !body.is_end_stream() && !matches!(parts.method, Method::HEAD | Method::OPTIONS);
        let body = match form::kind(parts).filter(|_| has_body && !is_raw) {
            Some(kind) => WorkerBody::Form(form::read(kind, parts, body, folder, http).await?),
            None if has_body => WorkerBody::Raw(request_body::read(body, http).await?),
            None => WorkerBody::Raw(BufferedBody::EMPTY),
        };
        let (form, body, file) = match body {
            WorkerBody::Raw(body) => {
                let (memory, file) = body.into_parts();
                (None, memory, file)
            }
            WorkerBody::Form(mut form) => {
                let fields = std::mem::take(&mut form.fields);
                (Some(form), fields.into(), None)
            }
        };
        let length = file.as_ref().map_or(body.len() as u64, |file| file.length);
        let context = RequestContext {
            parsed: form.is_some(),
            uploads: form.as_ref().and_then(|form| form.uploads.as_deref()),
            ..context(subject)
        };
        let head = context.frame(codec, length).ok_or(Failure::BodyTooLarge)?;
        let Form { files, mut memory, .. } = form.unwrap_or_default();
        memory.hold_head(head.len())?;
        Ok(WorkerRequest { head, body, file, files, _memory: memory })
    }

    /// The disk of its body or its files, while it waits for a worker.
    pub fn notice(&self) -> DiskNotice {
        self.file.as_ref().map_or_else(|| self.files.notice(), BodyFile::notice)
    }
}

#[cfg(test)]
impl WorkerRequest {
    /// A request without a body.
    pub fn of_head(head: Vec<u8>) -> WorkerRequest {
        WorkerRequest {
            head,
            body: Bytes::new(),
            file: None,
            files: FormFiles::default(),
            _memory: FieldMemory::default(),
        }
    }
}

/// The context of a request, without its form.
fn context<'a>(subject: &'a Subject<'_>) -> RequestContext<'a> {
    let parts = subject.parts;
    let host = parts.headers.get(HOST).map_or(Cow::Borrowed(subject.host), |host| text(host.as_bytes()));
    let mut headers = Vec::with_capacity(parts.headers.keys_len());
    for name in parts.headers.keys() {
        // The host is a part of the URL. Programs take HTTP_PROXY for their own setting (CVE-2016-5385).
        if *name != HOST && name != "proxy" {
            let values = parts.headers.get_all(name).iter().map(|value| value.as_bytes());
            headers.push((canonical_name(name.as_str()), values.collect()));
        }
    }
    let jar = parts.headers.get_all(COOKIE).iter().flat_map(|header| cookies(header.as_bytes()));
    let cookie = |(name, value): (&'a [u8], &'a [u8])| {
        let value = match std::str::from_utf8(value) {
            Ok(value) => decode_query(value),
            Err(_) => Cow::Borrowed(value),
        };
        (text(name), value)
    };
    RequestContext {
        remote_addr: Cow::Borrowed(&*subject.origin.address),
        protocol: protocol(parts.version),
        method: parts.method.as_str(),
        uri: format!("{}://{host}{}", subject.origin.scheme.as_str(), subject.target()).into(),
        headers: Headers(headers),
        cookies: Cookies(jar.filter(|(name, _)| !name.is_empty()).map(cookie).collect()),
        raw_query: Cow::Borrowed(subject.raw_query()),
        parsed: false,
        uploads: None,
        attributes: Cookies::default(),
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
