//! One request: its target is normalised, a route's action found, and the action carried out.

use crate::access_log::Entry;
use crate::cgi::{self, Request};
use crate::connection::Clock;
use crate::failure::{self, Failure};
use crate::php::{Port, Running};
use crate::request_body::{self, Buffered};
use crate::response_body::ResponseBody;
use crate::script::{self, Resolved};
use crate::socket::Peer;
use crate::static_files::{self, Outcome, RequestPath};
use crate::thread::Thread;
use howdah_channel::request::HeadWriter;
use howdah_channel::response;
use howdah_config::{Action, Pass, RequestView, Share};
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HOST, HeaderName, HeaderValue, LOCATION, SERVER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use std::path::Path;
use std::rc::Rc;

type Answer = Result<Response<ResponseBody>, Failure>;

/// Answers a request.
pub async fn answer(
    thread: Rc<Thread>,
    peer: Rc<Peer>,
    clock: Rc<Clock>,
    request: http::Request<Incoming>,
) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    let entry = thread.logs_access().then(|| Box::new(Entry::new(Rc::clone(&peer.remote_addr), &parts)));
    let answer = dispatch(&thread, &peer, &parts, body).await;
    let mut response = answer.unwrap_or_else(|failure| {
        if let Failure::BadRequest(why) = failure {
            tracing::debug!(why, "a bad request");
        }
        failure.response().map(ResponseBody::bytes)
    });
    let server =
        if thread.configuration.settings.http.server_version { cgi::SERVER_SOFTWARE } else { cgi::SERVER_NAME };
    response.headers_mut().entry(SERVER).or_insert(HeaderValue::from_static(server));
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

async fn dispatch(thread: &Rc<Thread>, peer: &Peer, parts: &Parts, body: Incoming) -> Answer {
    if matches!(parts.method, Method::TRACE | Method::CONNECT) {
        return Err(Failure::MethodNotAllowed);
    }
    // RFC 9112, 6.3: anything else may be an attempt at request smuggling. (With Content-Length beside it hyper goes by
    // the chunks and closes the connection after the answer, as the RFC has it.)
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    if codings.next().is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        || codings.next().is_some()
    {
        return Err(Failure::BadRequest("Transfer-Encoding"));
    }
    let host = host(parts)?;
    let path = match parts.uri.path() {
        "*" if parts.method == Method::OPTIONS => "/",
        path => path,
    };
    let path = RequestPath::normalise(path).map_err(|_| Failure::BadRequest("the path"))?;
    let request = Request { parts, peer, host: &host, path: &path };
    let view = request.view();
    let mut pass = &thread.configuration.listeners[peer.listener].pass;
    // The configuration has no circles: this ends.
    loop {
        let mut action = match pass {
            Pass::Application { name, target } => {
                return application(thread, &request, body, name, target.as_deref()).await;
            }
            Pass::Routes(name) => {
                let steps = thread.configuration.routes.steps(name.as_deref()).unwrap_or_default();
                &steps.iter().find(|route| route.condition.matches(&view)).ok_or(Failure::NotFound)?.action
            }
        };
        pass = loop {
            match action {
                Action::Pass(pass) => break pass,
                Action::Return { status, location } => {
                    let status = StatusCode::from_u16(*status).map_err(|_| Failure::Internal)?;
                    let location = location.as_deref().map(HeaderValue::from_str).transpose();
                    return redirect(status, location.map_err(|_| Failure::Internal)?);
                }
                Action::Share(share) => match share_file(thread, share, &request)? {
                    Some(response) => return Ok(response),
                    None => action = share.fallback.as_deref().ok_or(Failure::NotFound)?,
                },
            }
        };
    }
}

impl Request<'_> {
    /// What conditions and templates see.
    fn view(&self) -> RequestView<'_> {
        RequestView { method: self.parts.method.as_str(), host: self.host, uri: self.path.text() }
    }
}

/// The request's host, lower case, without a port (RFC 9112, 3.2).
fn host(request: &Parts) -> Result<String, Failure> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return Err(Failure::BadRequest("more than one Host"));
    }
    if header.is_none() && request.version == Version::HTTP_11 {
        return Err(Failure::BadRequest("no Host"));
    }
    let host = match (request.uri.authority(), header) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(header)) => header.to_str().map_err(|_| Failure::BadRequest("Host"))?,
        (None, None) => "",
    };
    if host.bytes().any(|byte| !(byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(&byte))) {
        return Err(Failure::BadRequest("Host"));
    }
    let name = match (host.rfind(':'), host.rfind(']')) {
        (Some(colon), bracket) if bracket.is_none_or(|bracket| bracket < colon) => &host[..colon],
        _ => host,
    };
    Ok(name.to_ascii_lowercase())
}

fn redirect(status: StatusCode, location: Option<HeaderValue>) -> Answer {
    let mut response = failure::page(status);
    if let Some(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response.map(ResponseBody::bytes))
}

/// `None`: no such file here, ask the fallback.
fn share_file(
    thread: &Thread,
    share: &Share,
    request: &Request<'_>,
) -> Result<Option<Response<ResponseBody>>, Failure> {
    let mut forbidden = false;
    for template in &share.paths {
        let path = template.render(&request.view());
        // A file of this name is another one's.
        if !request.path.is_text() && path.contains(request.path.text().trim_start_matches('/')) {
            continue;
        }
        let base = share.chroot.as_deref().unwrap_or(Path::new(template.constant_prefix()));
        let share = static_files::Share {
            path: &path,
            base,
            index: &share.index,
            follow_symlinks: share.follow_symlinks,
            mime_types: &thread.configuration.settings.http.mime_types,
        };
        match thread.static_files.serve(&share, request.parts) {
            Outcome::Response(response) => return Ok(Some(response.map(ResponseBody::file))),
            Outcome::NotFound => {}
            Outcome::Forbidden => forbidden = true,
            Outcome::Php => return Ok(None),
        }
    }
    if forbidden { Err(Failure::Forbidden) } else { Ok(None) }
}

async fn application(
    thread: &Rc<Thread>,
    request: &Request<'_>,
    body: Incoming,
    name: &str,
    target: Option<&str>,
) -> Answer {
    let target = thread
        .configuration
        .applications
        .get(name)
        .and_then(|application| application.target(target))
        .ok_or(Failure::NotFound)?;
    let script = match script::resolve(target, request.path.bytes()) {
        Resolved::Script(script) => script,
        Resolved::Nothing => return Err(Failure::NotFound),
        Resolved::Folder => {
            return redirect(StatusCode::MOVED_PERMANENTLY, static_files::folder_location(&request.parts.uri));
        }
        Resolved::Forbidden(path) => {
            tracing::warn!(?path, "the router's user may not look for this script: answered 403");
            return Err(Failure::Forbidden);
        }
    };
    let has_body = !body.is_end_stream();
    let body =
        if has_body { request_body::read(body, &thread.configuration.settings.http).await? } else { Buffered::EMPTY };
    let body_len = (has_body || request.parts.headers.contains_key(CONTENT_LENGTH)).then(|| body.len());
    let port = Rc::clone(thread.ports.get(name).ok_or(Failure::Internal)?);
    let write_head = |head: &mut _| cgi::write(head, request, &target.root, &script, body_len);
    run_php(port, request.parts, write_head, body).await
}

async fn run_php(port: Rc<Port>, request: &Parts, write_head: impl Fn(&mut HeadWriter), body: Buffered) -> Answer {
    let (memory, remainder) = body.into_parts();
    let running = port.submit(write_head, &memory, remainder).await?;
    let running = AbandonOnDrop { port: &port, running: Some(running) };
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
        return Ok(response.map(|()| ResponseBody::php(first, running, port)));
    }
    if request.method != Method::HEAD && declared.is_some_and(|declared| declared != first.len() as u64) {
        // What the script declared is not what it wrote: the truth keeps the connection's framing whole.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(response.map(|()| ResponseBody::bytes(first)))
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
struct AbandonOnDrop<'p> {
    port: &'p Rc<Port>,
    running: Option<Rc<Running>>,
}

// === impl AbandonOnDrop ===

impl AbandonOnDrop<'_> {
    fn get(&self) -> &Rc<Running> {
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
