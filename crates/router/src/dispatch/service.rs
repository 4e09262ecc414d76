//! One request: its target is normalised, a route's action found, and the action carried out.

use crate::dispatch::application;
use crate::dispatch::snapshot::View;
use crate::http1::connection::Clock;
use crate::net::socket::Peer;
use crate::php::cgi;
use crate::process::thread::Thread;
use crate::proxy::To;
use crate::request::authority;
use crate::request::incoming::Incoming;
use crate::request::path::RequestPath;
use crate::request::subject::{Origin, Subject};
use crate::request::unsafe_fields;
use crate::response::body::ResponseBody;
use crate::response::compression;
use crate::response::failure::{self, Failure};
use crate::response::log_line::Entry;
use crate::static_files::{self, ShareOutcome};
use bytes::Bytes;
use howdah_config::{AccessLog, ActionKind, Destination, HeaderChange, RedirectTarget, Route, RouteStep, Share};
use http::header::{CONNECTION, HeaderName, HeaderValue, LOCATION, SERVER};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use std::path::Path;
use std::rc::Rc;

/// A response, or what is answered instead.
pub type Answer = Result<Response<ResponseBody>, Failure>;

/// What the access log says of a request whose client left before the answer, as nginx's does. Nobody gets it.
const CLIENT_LEFT: u16 = 499;
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
    let rest = body.rest();
    let view = thread.view_of(peer.listener);
    let http = &view.configuration().settings.http;
    authority::take_from_target(&mut parts);
    if http.discard_unsafe_fields {
        unsafe_fields::discard(&mut parts.headers);
    }
    let origin = Origin::of(&peer, view.listener(peer.listener), &parts);
    let refusal = clock.refusal();
    let (host, path, refused) = match refusal.map_or_else(|| target(&parts), |refusal| Err(refusal.into())) {
        Ok((host, path)) => (host, path, None),
        Err(failure) => (String::new(), RequestPath::root(), Some(failure)),
    };
    let log = view.configuration().access_log.as_ref().filter(|_| thread.logs_access());
    let mut unanswered = Unanswered { log, request: Some((&parts, &peer, &origin, &host)) };
    let mut subject = Subject::new(&parts, &peer, &origin, &host, path);
    let answer = match refused {
        Some(failure) => Err(failure),
        None => dispatch(&thread, &view, &mut subject, body)
            .await
            .and_then(|response| compression::apply(&http.compression, &parts, response)),
    };
    let mut response = answer.unwrap_or_else(|failure| {
        if let Failure::BadRequest(why) = failure {
            tracing::debug!(why, "a bad request");
        }
        failure.response().map(ResponseBody::bytes)
    });
    if !says_close(&response) && !rest.settle(&parts).await {
        // What follows on the connection can't be told from the rest of this request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if parts.version == Version::HTTP_10 && says_close(&response) {
        // Or hyper would add that it is kept.
        *response.version_mut() = Version::HTTP_10;
    }
    let server = if http.server_version { cgi::SERVER_SOFTWARE } else { cgi::SERVER_NAME };
    response.headers_mut().entry(SERVER).or_insert(HeaderValue::from_static(server));
    unanswered.request = None;
    let entry = log.and_then(|log| match refusal {
        Some(_) => Entry::of_no_request(log, &peer.remote_addr, response.status()),
        None => Entry::new(log, &subject.answered(response.status(), response.headers())),
    });
    response.map(|body| body.ends_request(clock, entry))
}

/// A request whose client left before there was an answer: it is in the log, too.
struct Unanswered<'a> {
    log: Option<&'a AccessLog>,
    /// Until there is an answer.
    request: Option<(&'a Parts, &'a Peer, &'a Origin, &'a str)>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let (Some(log), Some((parts, peer, origin, host))) = (self.log, self.request) {
            let path = RequestPath::normalise(parts.uri.path()).unwrap_or_else(|_| RequestPath::root());
            let subject = Subject::new(parts, peer, origin, host, path);
            let entry = StatusCode::from_u16(CLIENT_LEFT)
                .ok()
                .and_then(|status| Entry::new(log, &subject.answered(status, &HeaderMap::new())));
            entry.into_iter().for_each(|entry| entry.write());
        }
    }
}

fn says_close(response: &Response<ResponseBody>) -> bool {
    response.headers().get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// The host and the path of a request, or why it has none.
fn target(parts: &Parts) -> Result<(String, RequestPath<'_>), Failure> {
    if matches!(parts.method, Method::TRACE | Method::CONNECT) {
        return Err(Failure::MethodNotAllowed);
    }
    let path = match parts.uri.path() {
        "*" if parts.method == Method::OPTIONS => "/",
        path => path,
    };
    Ok((authority::host(parts)?, RequestPath::normalise(path).map_err(|_| Failure::BadRequest("the path"))?))
}

async fn dispatch(thread: &Thread, view: &View, subject: &mut Subject<'_>, body: Incoming) -> Answer {
    // The listener may be gone since the connection came.
    let listener = view.listener(subject.peer.listener).ok_or(Failure::Unavailable { retry_after: 1 })?;
    let log_route = view.configuration().settings.http.log_route;
    let mut pass = &listener.pass;
    // Of the last action, as in NGINX Unit.
    let mut changes: &[HeaderChange] = &[];
    for _ in 0..MAX_PASSES {
        let destination = view.configuration().destination(pass, subject).ok_or(Failure::NotFound)?;
        let mut action = match &*destination {
            Destination::Application { name, target } => {
                let answer = application::run(view, subject, body, name, target.as_deref()).await;
                return changed(answer, changes, subject);
            }
            Destination::Routes(name) => {
                let route = view.configuration().routes.find(name.as_deref()).ok_or(Failure::NotFound)?;
                let step = route.first_match(subject);
                if log_route {
                    tell_route(subject, name.as_deref(), route, step);
                }
                &step.ok_or(Failure::NotFound)?.action
            }
            Destination::Upstream(name) => {
                let balancer = view.balancers.get(name).ok_or(Failure::Internal)?;
                let answer = proxy(thread, view, subject, To::Upstream(balancer), body).await;
                return changed(answer, changes, subject);
            }
        };
        pass = loop {
            changes = &action.response_headers;
            if let Some(rewrite) = &action.rewrite {
                *subject = subject.rewritten(&rewrite.render(subject))?;
            }
            match &action.kind {
                ActionKind::Pass(pass) => break pass,
                ActionKind::Proxy(server) => {
                    let answer = proxy(thread, view, subject, To::Server(server), body).await;
                    return changed(answer, changes, subject);
                }
                ActionKind::Return { status, location } => {
                    let location = location.as_ref().map(|location| RedirectTarget::render(location, subject));
                    let location = location.filter(|location| !location.is_empty());
                    let location = location.map(|location| HeaderValue::from_str(&location)).transpose();
                    let status = StatusCode::from_u16(*status).map_err(|_| Failure::Internal)?;
                    let answer = redirect(status, location.map_err(|_| Failure::Internal)?);
                    return changed(answer, changes, subject);
                }
                ActionKind::Share { share, fallback } => {
                    match share_file(thread, view, share, fallback.is_some(), subject)? {
                        Some(response) => return changed(Ok(response), changes, subject),
                        None => action = fallback.as_deref().ok_or(Failure::NotFound)?,
                    }
                }
            }
        };
    }
    tracing::error!(uri = subject.path.text(), "a request was passed on {MAX_PASSES} times and is given up");
    Err(Failure::Internal)
}

async fn proxy(thread: &Thread, view: &View, subject: &Subject<'_>, to: To<'_>, body: Incoming) -> Answer {
    thread.proxy.forward(to, subject, body, &view.configuration().settings.http).await
}

/// `log_route`: which step of which route was taken.
fn tell_route(subject: &Subject<'_>, name: Option<&str>, route: &Route, step: Option<&RouteStep>) {
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    let place = step.and_then(|step| route.steps().iter().position(|other| std::ptr::eq(step, other)));
    let (method, uri) = (&subject.parts.method, &subject.parts.uri);
    match place {
        Some(place) => tracing::info!("{method} {uri}: \"routes{name}/{place}\" selected"),
        None => tracing::info!("{method} {uri}: no step of \"routes{name}\" matches"),
    }
}

/// The response with `response_headers` carried out. As in NGINX Unit, an error (400 and above) stays as it is.
fn changed(answer: Answer, changes: &[HeaderChange], subject: &Subject<'_>) -> Answer {
    let mut response = answer?;
    if changes.is_empty() || response.status().as_u16() >= 400 {
        return Ok(response);
    }
    // All values are those of the response before the changes.
    let status = response.status();
    let values: Vec<_> = {
        let subject = subject.answered(status, response.headers());
        changes.iter().map(|change| change.value.as_ref().map(|value| value.render(&subject).into_owned())).collect()
    };
    for (change, value) in changes.iter().zip(values) {
        let Ok(name) = HeaderName::from_bytes(change.name.as_bytes()) else { continue };
        match value.map(|value| HeaderValue::from_str(&value)) {
            None => drop(response.headers_mut().remove(name)),
            Some(Ok(value)) => drop(response.headers_mut().insert(name, value)),
            Some(Err(_)) => {
                tracing::warn!(header = %name, "a variable's value is not possible in a header: it is left as it was");
            }
        }
    }
    Ok(response)
}

/// An answer without a body of its own.
pub fn redirect(status: StatusCode, location: Option<HeaderValue>) -> Answer {
    // As with NGINX Unit: only an error has a page.
    let mut response = match status.as_u16() {
        400..=599 => failure::page(status),
        _ => Response::new(Bytes::new()),
    };
    *response.status_mut() = status;
    if status.canonical_reason().is_none() {
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Unknown"));
    }
    if let Some(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response.map(ResponseBody::bytes))
}

/// `None`: no such file here, ask the fallback.
fn share_file(
    thread: &Thread,
    view: &View,
    asked: &Share,
    has_fallback: bool,
    subject: &Subject<'_>,
) -> Result<Option<Response<ResponseBody>>, Failure> {
    if has_fallback && !matches!(subject.parts.method, Method::GET | Method::HEAD) {
        // As in NGINX Unit: a file is only read, and there is somebody for all else.
        return Ok(None);
    }
    let chroot = match &asked.chroot {
        Some(chroot) => Some(chroot.render(subject).ok_or(Failure::Forbidden)?),
        None => None,
    };
    let mut forbidden = false;
    for template in &asked.paths {
        let Some(path) = template.render(subject) else { continue };
        // A file of this name is another one's.
        if !subject.path.is_text() && path.contains(subject.path.text().trim_start_matches('/')) {
            continue;
        }
        let base = chroot.as_deref().unwrap_or(template.constant_prefix());
        let pinned = view.pins().apply(base, &path);
        let (base, path) = pinned.as_ref().map_or((base, &*path), |(base, path)| (&**base, &**path));
        let share = static_files::ShareRequest {
            path,
            base: Path::new(base),
            index: &asked.index,
            follow_symlinks: asked.follow_symlinks,
            traverse_mounts: asked.traverse_mounts,
            types: asked.types.as_ref(),
            mime_types: &view.configuration().settings.http.mime_types,
        };
        match thread.static_files.serve(&share, subject.parts) {
            ShareOutcome::Response(response) => return Ok(Some(response.map(ResponseBody::file))),
            ShareOutcome::NotFound => {}
            ShareOutcome::Forbidden => forbidden = true,
            ShareOutcome::OtherType => forbidden = forbidden || !has_fallback,
            ShareOutcome::Php => return Ok(None),
        }
    }
    if forbidden { Err(Failure::Forbidden) } else { Ok(None) }
}
