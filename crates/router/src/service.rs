//! One request: its target is normalised, a route's action found, and the action carried out.

use crate::access_log::Entry;
use crate::authority;
use crate::cgi;
use crate::compression;
use crate::connection::Clock;
use crate::failure::{self, Failure};
use crate::php::{Port, Running};
use crate::request_body::{self, Buffered};
use crate::response_body::ResponseBody;
use crate::script::{self, Resolved, Script};
use crate::snapshot::View;
use crate::socket::Peer;
use crate::static_files::{self, Outcome};
use crate::subject::Subject;
use crate::thread::Thread;
use crate::unsafe_fields;
use howdah_channel::response;
use howdah_config::{ActionKind, Destination, RedirectTarget, Share, Target};
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, LOCATION, SERVER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use std::path::Path;
use std::rc::Rc;

type Answer = Result<Response<ResponseBody>, Failure>;

/// Passes with variables, or that rewrite the path, may lead in a circle.
const MAX_PASSES: usize = 255;

/// Answers a request.
pub async fn answer(
    thread: Rc<Thread>,
    peer: Rc<Peer>,
    clock: Rc<Clock>,
    request: http::Request<Incoming>,
) -> Response<ResponseBody> {
    let (mut parts, body) = request.into_parts();
    let view = thread.view();
    let http = &view.configuration().settings.http;
    authority::take_from_target(&mut parts);
    if http.discard_unsafe_fields {
        unsafe_fields::discard(&mut parts.headers);
    }
    let refusal = clock.refusal();
    let entry = thread.logs_access().then(|| {
        let remote = Rc::clone(&peer.remote_addr);
        Box::new(if refusal.is_some() { Entry::of_no_request(remote) } else { Entry::new(remote, &parts) })
    });
    let answer = match refusal {
        Some(refusal) => Err(refusal.into()),
        None => dispatch(&thread, &view, &peer, &parts, body)
            .await
            .and_then(|response| compression::apply(&http.compression, &parts, response)),
    };
    let mut response = answer.unwrap_or_else(|failure| {
        if let Failure::BadRequest(why) = failure {
            tracing::debug!(why, "a bad request");
        }
        failure.response().map(ResponseBody::bytes)
    });
    let server = if http.server_version { cgi::SERVER_SOFTWARE } else { cgi::SERVER_NAME };
    response.headers_mut().entry(SERVER).or_insert(HeaderValue::from_static(server));
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        clock.becomes_tunnel();
    }
    let status = response.status().as_u16();
    response.map(|body| {
        body.ends_request(
            clock,
            entry.map(|mut entry| {
                entry.status = status;
                entry
            }),
        )
    })
}

async fn dispatch(thread: &Rc<Thread>, view: &View, peer: &Peer, request: &Parts, body: Incoming) -> Answer {
    if matches!(request.method, Method::TRACE | Method::CONNECT) {
        return Err(Failure::MethodNotAllowed);
    }
    let host = authority::host(request)?;
    let path = match request.uri.path() {
        "*" if request.method == Method::OPTIONS => "/".into(),
        path => static_files::normalise(path).map_err(|_| Failure::BadRequest("the path"))?,
    };
    let subject = Subject::new(request, peer, &host, &path);
    // The listener may be gone since the connection came.
    let mut pass = &view.listener(peer.listener).ok_or(Failure::Unavailable)?.pass;
    for _ in 0..MAX_PASSES {
        let destination = view.configuration().destination(pass, &subject).ok_or(Failure::NotFound)?;
        let mut action = match &*destination {
            Destination::Application { name, target } => {
                return application(thread, view, peer, request, body, &subject, name, target.as_deref()).await;
            }
            Destination::Routes(name) => {
                let route = view.configuration().routes.find(name.as_deref()).ok_or(Failure::NotFound)?;
                &route.first_match(&subject).ok_or(Failure::NotFound)?.action
            }
            Destination::Upstream(_) => return not_yet("upstreams"),
        };
        pass = loop {
            if action.rewrite.is_some() {
                return not_yet("rewrite");
            }
            if !action.response_headers.is_empty() {
                return not_yet("response_headers");
            }
            match &action.kind {
                ActionKind::Pass(pass) => break pass,
                ActionKind::Proxy(_) => return not_yet("proxy"),
                ActionKind::Return { status, location } => {
                    let location = location.as_ref().map(|location| RedirectTarget::render(location, &subject));
                    return redirect(*status, location.as_deref().filter(|location| !location.is_empty()));
                }
                ActionKind::Share(share) => match share_file(thread, view, share, request, &subject)? {
                    Some(response) => return Ok(response),
                    None => action = share.fallback.as_deref().ok_or(Failure::NotFound)?,
                },
            }
        };
    }
    tracing::error!(uri = subject.uri, "a request was passed on {MAX_PASSES} times and is given up");
    Err(Failure::Internal)
}

/// What the configuration has and the router does not.
fn not_yet<T>(option: &str) -> Result<T, Failure> {
    tracing::error!(option, "this option of an action does nothing yet: answered 500; remove it");
    Err(Failure::Internal)
}

fn redirect(status: u16, location: Option<&str>) -> Answer {
    let status = StatusCode::from_u16(status).map_err(|_| Failure::Internal)?;
    let mut response = failure::page(status);
    if let Some(location) = location {
        response.headers_mut().insert(LOCATION, HeaderValue::from_str(location).map_err(|_| Failure::Internal)?);
    }
    Ok(response.map(ResponseBody::bytes))
}

/// `None`: no such file here, ask the fallback.
fn share_file(
    thread: &Thread,
    view: &View,
    share: &Share,
    request: &Parts,
    subject: &Subject<'_>,
) -> Result<Option<Response<ResponseBody>>, Failure> {
    if share.types.is_some() {
        return not_yet("types");
    }
    if !share.traverse_mounts {
        return not_yet("traverse_mounts");
    }
    let chroot = match &share.chroot {
        Some(chroot) => Some(chroot.render(subject).ok_or(Failure::Forbidden)?),
        None => None,
    };
    let mut forbidden = false;
    for template in &share.paths {
        let Some(path) = template.render(subject) else { continue };
        let base = Path::new(chroot.as_deref().unwrap_or(template.constant_prefix()));
        let share = static_files::Share {
            path: &path,
            base,
            index: &share.index,
            follow_symlinks: share.follow_symlinks,
            mime_types: &view.configuration().settings.http.mime_types,
        };
        match thread.static_files.serve(&share, request) {
            Outcome::Response(response) => return Ok(Some(response.map(ResponseBody::file))),
            Outcome::NotFound => {}
            Outcome::Forbidden => forbidden = true,
            Outcome::Php => return Ok(None),
        }
    }
    if forbidden { Err(Failure::Forbidden) } else { Ok(None) }
}

#[allow(clippy::too_many_arguments)] // The parts of a request; a struct of them would be used here alone.
async fn application(
    thread: &Rc<Thread>,
    view: &View,
    peer: &Peer,
    request: &Parts,
    body: Incoming,
    subject: &Subject<'_>,
    name: &str,
    target: Option<&str>,
) -> Answer {
    let target = view
        .configuration()
        .applications
        .get(name)
        .and_then(|application| application.target(target))
        .ok_or(Failure::NotFound)?;
    let script = match script::resolve(target, subject.uri) {
        Resolved::Script(script) => script,
        Resolved::Nothing => return Err(Failure::NotFound),
        Resolved::Folder => return redirect_to_folder(request),
        Resolved::Forbidden(path) => {
            tracing::warn!(path = %path.display(), "the router's user may not look for this script: answered 403");
            return Err(Failure::Forbidden);
        }
    };
    if request.headers.contains_key(TRANSFER_ENCODING) && !view.configuration().settings.http.chunked_transform {
        return Err(Failure::LengthRequired);
    }
    let has_body = !body.is_end_stream();
    let body =
        if has_body { request_body::read(body, &view.configuration().settings.http).await? } else { Buffered::EMPTY };
    let body_len = (has_body || request.headers.contains_key(CONTENT_LENGTH)).then(|| body.len());
    let port = Rc::clone(view.ports.get(name).ok_or(Failure::Internal)?);
    let spool_folder = view.configuration().settings.http.body_temp_path.as_deref();
    run_php(thread, port, spool_folder, peer, request, subject, target, &script, body, body_len).await
}

#[allow(clippy::too_many_arguments)] // The parts of a request; a struct of them would be used here alone.
async fn run_php(
    thread: &Rc<Thread>,
    port: Rc<Port>,
    spool_folder: Option<&Path>,
    peer: &Peer,
    request: &Parts,
    subject: &Subject<'_>,
    target: &Target,
    script: &Script,
    body: Buffered,
    body_len: Option<u64>,
) -> Answer {
    let (memory, remainder) = body.into_parts();
    let mut head = thread.head_writers.borrow_mut().pop().unwrap_or_default();
    cgi::write(&mut head, request, peer, subject.host, subject.uri, &target.root, script, body_len);
    let running = port.submit(head.finish(), &memory, remainder, spool_folder).await;
    thread.head_writers.borrow_mut().push(head);
    let running = AbandonOnDrop { port: &port, running: Some(running?) };
    let started = running.get().head().await?;
    let running = running.keep();
    let (head, at) = response::parse(&started.bytes).ok().flatten().ok_or(Failure::BadGateway)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status).map_err(|_| Failure::BadGateway)?;
    if !head.reason.is_empty()
        && let Ok(reason) = hyper::ext::ReasonPhrase::try_from(head.reason)
    {
        response.extensions_mut().insert(reason);
    }
    let declared = copy_headers(&head, &mut response);
    let first = started.bytes.slice(at..);
    if !started.complete {
        if request.version == Version::HTTP_10 && !response.headers().contains_key(CONTENT_LENGTH) {
            // Without chunks only the end of the connection tells the end of the body; hyper would promise to keep it.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        return Ok(response.map(|()| ResponseBody::php(first, running, port)));
    }
    if request.method != Method::HEAD && declared.is_some_and(|declared| declared != first.len() as u64) {
        // What the script declared is not what it wrote: the truth keeps the connection's framing whole.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(response.map(|()| ResponseBody::bytes(first)))
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

fn redirect_to_folder(request: &Parts) -> Answer {
    let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // Several slashes in front would name another host.
    let path = request.uri.path().trim_start_matches('/');
    redirect(301, Some(&format!("/{path}/{query}")))
}

/// A request whose client leaves before the response has begun is taken back.
struct AbandonOnDrop<'p> {
    port: &'p Rc<Port>,
    running: Option<Rc<Running>>,
}

// === impl AbandonOnDrop ===

impl AbandonOnDrop<'_> {
    fn get(&self) -> &Running {
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
