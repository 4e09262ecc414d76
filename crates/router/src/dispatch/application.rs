//! A request for an application: its script is found, its body read, and PHP's response becomes ours.

use crate::dispatch::service::{Answer, redirect};
use crate::dispatch::snapshot::View;
use crate::php::cgi;
use crate::php::killers::Alike;
use crate::php::port::Port;
use crate::php::request_body::{self, Buffered};
use crate::php::rerun;
use crate::php::running::{Running, Wait};
use crate::php::script::{self, Resolved};
use crate::request::incoming::Incoming;
use crate::request::subject::Subject;
use crate::response::body::ResponseBody;
use crate::response::failure::Failure;
use crate::static_files;
use howdah_channel::request::HeadWriter;
use howdah_channel::response;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::body::Body;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Runs the application with this name, and answers what its script does.
///
/// # Errors
/// What the client shall be told instead.
pub async fn run(view: &View, subject: &Subject<'_>, body: Incoming, name: &str, target: Option<&str>) -> Answer {
    let application = view.configuration().applications.get(name).ok_or(Failure::NotFound)?;
    let port = Rc::clone(view.ports.get(name).ok_or(Failure::Internal)?);
    let paths = &port.generation.paths;
    let target = paths.target(target).ok_or(Failure::NotFound)?;
    let parts = subject.parts;
    let script = match script::resolve(target, paths.rootfs(), subject.path.bytes()) {
        Resolved::Script(script) => script,
        Resolved::Nothing => return Err(Failure::NotFound),
        Resolved::Folder => {
            return redirect(StatusCode::MOVED_PERMANENTLY, static_files::folder_location(&parts.uri));
        }
        Resolved::Forbidden(path) => {
            tracing::warn!(?path, "the router's user may not look for this script: answered 403");
            return Err(Failure::Forbidden);
        }
    };
    let settings = &view.configuration().settings.http;
    if parts.headers.contains_key(TRANSFER_ENCODING) && !settings.chunked_transform {
        return Err(Failure::LengthRequired);
    }
    let patience = patience(parts);
    let alike = Alike::of(subject, &script.filename);
    let has_body = !body.is_end_stream();
    let body = match has_body {
        true => {
            port.foresee(&parts.uri, alike, patience)?;
            request_body::read(body, settings).await?
        }
        false => Buffered::EMPTY,
    };
    let body_len = (has_body || parts.headers.contains_key(CONTENT_LENGTH)).then(|| body.len());
    let may_rerun = !has_body && rerun::is_allowed(application.retry, &parts.method);
    let write_head = |head: &mut _| cgi::write(head, subject, &target.root, &script, body_len);
    let spool_folder = settings.body_temp_path.as_deref();
    let wait = port.admit(&parts.uri, alike, patience)?;
    let mut answer = run_php(&port, parts, &write_head, body, spool_folder, wait).await;
    if may_rerun
        && matches!(answer, Err(Failure::WorkerDied { had_begun: false }))
        && let Some(wait) = port.admit_again(wait)
    {
        rerun::tell(&port, parts, "run once more");
        answer = run_php(&port, parts, &write_head, Buffered::EMPTY, spool_folder, wait).await;
    }
    if matches!(answer, Err(Failure::WorkerDied { .. })) {
        rerun::tell(&port, parts, "answered 502");
    }
    answer
}

async fn run_php(
    port: &Rc<Port>,
    request: &Parts,
    write_head: impl Fn(&mut HeadWriter),
    body: Buffered,
    spool_folder: Option<&Path>,
    wait: Wait,
) -> Answer {
    let (memory, remainder) = body.into_parts();
    let running = port.submit(write_head, &memory, remainder, spool_folder, wait).await?;
    let running = AbandonOnDrop::new(port, running);
    let started = port.head(running.get()).await?;
    let (head, at) = response::parse(&started.bytes).ok().flatten().ok_or(Failure::BadGateway)?;
    let mut response = Response::new(());
    *response.status_mut() = status(head.status)?;
    if !head.reason.is_empty()
        && let Ok(reason) = hyper::ext::ReasonPhrase::try_from(head.reason)
    {
        response.extensions_mut().insert(reason);
    }
    let declared = copy_headers(&head, &mut response);
    let first = started.bytes.slice(at..);
    let running = running.keep();
    if !started.complete {
        if request.version == Version::HTTP_10 && !response.headers().contains_key(CONTENT_LENGTH) {
            // Without chunks only the end of the connection tells the end of the body; hyper would promise to keep it.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        return Ok(response.map(|()| ResponseBody::php(first, running, Rc::clone(port))));
    }
    if request.method != Method::HEAD && declared.is_some_and(|declared| declared != first.len() as u64) {
        // What the script declared is not what it wrote: the truth keeps the connection's framing whole.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(response.map(|()| ResponseBody::bytes(first)))
}

/// How long the client will wait, if it says so: `Prefer: wait=5`, in seconds (RFC 7240, section 4.3).
fn patience(request: &Parts) -> Option<Duration> {
    let preferences = request.headers.get_all("prefer").iter().filter_map(|line| line.to_str().ok());
    let mut preferences = preferences.flat_map(|line| line.split([',', ';'])).filter_map(|one| one.split_once('='));
    let (_, seconds) = preferences.find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// A script's status as that of a final response. What is below 200 announces another response, which will not come.
fn status(code: u16) -> Result<StatusCode, Failure> {
    StatusCode::from_u16(code).ok().filter(|status| !status.is_informational()).ok_or_else(|| {
        tracing::warn!(status = code, "a script set a status that no response can end with: answered 502");
        Failure::BadGateway
    })
}

/// Copies what the script set, except for what only the server can know; returns the declared length.
fn copy_headers(head: &response::Head<'_>, response: &mut Response<()>) -> Option<u64> {
    let mut declared = None;
    let headers = response.headers_mut();
    for line in head.headers() {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else {
            tracing::warn!(header = %String::from_utf8_lossy(name), "a script set a header that HTTP does not allow: left out");
            continue;
        };
        match name {
            // Framing is ours; Date is hyper's unless the script has its own.
            TRANSFER_ENCODING | CONNECTION | UPGRADE => {}
            CONTENT_LENGTH => {
                declared = value.to_str().ok().and_then(|text| text.parse().ok());
                if declared.is_some() {
                    headers.insert(CONTENT_LENGTH, value);
                }
            }
            DATE => {
                headers.insert(DATE, value);
            }
            name => {
                headers.append(name, value);
            }
        }
    }
    declared
}

/// A request whose client leaves before the response has begun is taken back.
pub struct AbandonOnDrop<'p> {
    port: &'p Rc<Port>,
    running: Option<Rc<Running>>,
}

// === impl AbandonOnDrop ===

impl<'p> AbandonOnDrop<'p> {
    /// For a request that runs.
    pub fn new(port: &'p Rc<Port>, running: Rc<Running>) -> AbandonOnDrop<'p> {
        AbandonOnDrop { port, running: Some(running) }
    }

    /// The request.
    pub fn get(&self) -> &Rc<Running> {
        self.running.as_ref().expect("kept only once, by `keep`")
    }

    fn keep(mut self) -> Rc<Running> {
        self.running.take().expect("kept only once")
    }
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.port.abandon(&running);
        }
    }
}
