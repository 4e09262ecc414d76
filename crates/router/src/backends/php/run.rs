//! A request through PHP: its body is read, it is admitted and submitted, and PHP's response becomes an HTTP response.
//!
//! A worker that dies before the response has begun takes its request along: the request is run once more if it has no
//! body and `retry` allows it, and is answered 502 otherwise. Both are logged with the request, which may be the one that
//! kills workers.

use crate::backends::buffering::request_body::{self, BufferedBody};
use crate::backends::cgi;
use crate::backends::php::admission::RequestKind;
use crate::backends::php::port::{self, CancelOnDrop, GenerationPort, Remainder, Wait};
use crate::backends::php::response_body::PhpBody;
use crate::backends::php::{response_head, retry};
use crate::backends::script::Script;
use crate::request::clock::RequestClock;
use crate::request::incoming::IncomingBody;
use crate::request::subject::Subject;
use crate::response::failure::{Answer, Failure};
use bytes::Bytes;
use howdah_channel::request::RequestHeadWriter;
use howdah_channel::response::Head;
use howdah_config::{Http, Retry};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use hyper::body::Body;
use std::path::Path;
use std::rc::Rc;

/// The script that a request runs, and the settings that apply.
#[derive(Clone, Copy)]
pub struct ScriptCall<'a> {
    /// The script.
    pub script: &'a Script,
    /// The document root.
    pub root: &'a Path,
    /// The application's `retry`.
    pub retry: Retry,
    /// `settings/http`.
    pub http: &'a Http,
    /// The client's connection, for responses before the response.
    pub clock: &'a RequestClock,
}

/// Runs a script, and returns its response.
///
/// # Errors
/// The failure that is answered in place of a response.
pub async fn run(
    port: &Rc<GenerationPort>,
    subject: &Subject<'_>,
    body: IncomingBody,
    call: ScriptCall<'_>,
) -> Answer<PhpBody> {
    let parts = subject.parts;
    if parts.headers.contains_key(TRANSFER_ENCODING) && !call.http.chunked_transform {
        return Err(Failure::LengthRequired);
    }
    let kind = kind_of(subject, call.script);
    let has_body = !body.is_end_stream();
    let body = match has_body {
        true => {
            port.reject_early(&parts.uri, kind).await?;
            request_body::read(body, call.http).await?
        }
        false => BufferedBody::EMPTY,
    };
    let body_len = (has_body || parts.headers.contains_key(CONTENT_LENGTH)).then(|| body.len());
    let software = &port.generation.server_software;
    let write_head = |head: &mut _| cgi::write(head, subject, software, call.root, call.script, body_len);
    let wait = body.notice().unless_it_gives_way(port.admit(&parts.uri, kind)).await??;
    let mut answer = attempt(port, parts, call, &write_head, body, wait).await;
    if !has_body
        && matches!(answer, Err(Failure::WorkerDied { had_begun: false }))
        && retry::is_allowed(call.retry, &parts.method)
        && let Some(wait) = port.admit_again(wait)
    {
        log_death(port, parts, "run once more");
        answer = attempt(port, parts, call, &write_head, BufferedBody::EMPTY, wait).await;
    }
    if matches!(answer, Err(Failure::WorkerDied { .. })) {
        log_death(port, parts, "answered 502");
    }
    answer
}

/// The kind of a request. PHP sees the target as it came and after a rewrite: both count.
pub fn kind_of(subject: &Subject<'_>, script: &Script) -> RequestKind {
    let uri = &subject.parts.uri;
    RequestKind::of(
        subject.parts.method.as_str(),
        subject.host,
        [uri.path().as_bytes(), subject.path.bytes()],
        [uri.query().unwrap_or_default(), subject.raw_query()],
        &script.filename,
    )
}

async fn attempt(
    port: &Rc<GenerationPort>,
    parts: &Parts,
    call: ScriptCall<'_>,
    write_head: impl Fn(&mut RequestHeadWriter),
    body: BufferedBody,
    wait: Wait,
) -> Answer<PhpBody> {
    let disk = body.notice();
    let (memory, file) = body.into_parts();
    let remainder = file.map_or(Remainder::None, |file| Remainder::File(file, 0));
    let spool_folder = call.http.body_temp_path.as_deref();
    let submitted = port::submit(port, write_head, &memory, remainder, spool_folder, wait);
    let running = disk.unless_it_gives_way(submitted).await??;
    let request = CancelOnDrop { port: Rc::clone(port), running };
    let inform = |head: &Head<'_>| {
        if let Some((status, headers)) = response_head::read_interim(head) {
            call.clock.inform(status, &headers);
        }
    };
    let started = port::head(port, &request.running, inform).await?;
    let (head, first) = response_head::read(&started, parts)?;
    if head.status() == StatusCode::RESET_CONTENT {
        // RFC 9110, 15.3.6: it has no content. A client that expects none would take a body for the next response.
        let mut head = head;
        head.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        return Ok(head.map(|()| PhpBody::complete(Bytes::new())));
    }
    let body = if started.complete { PhpBody::complete(first) } else { PhpBody::streamed(first, request) };
    Ok(head.map(|()| body))
}

fn log_death(port: &GenerationPort, parts: &Parts, outcome: &str) {
    // The query may contain secrets.
    let Parts { method, uri, .. } = parts;
    tracing::warn!(
        application = port.generation.application,
        "a worker died; its request, {method} {}, is {outcome}",
        uri.path()
    );
}
