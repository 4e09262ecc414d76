//! One request, from hyper to its response: normalised, routed, answered, compressed and logged.

use crate::backends::roadrunner;
use crate::dispatch::actions::action_body::ActionBody;
use crate::dispatch::actions::{application, send_file};
use crate::dispatch::active_configuration::view::View;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::routing::{self, ChosenAction};
use crate::dispatch::{early_hints, framing, https, response_headers};
use crate::net::peer::Peer;
use crate::product;
use crate::protocols::connection::boxed::boxed;
use crate::protocols::connection::heads::head_memory::headers_size;
use crate::protocols::connection::heads::large_head::{LargeHead, NoRoom};
use crate::report::{OncePerMinute, Panicked, contained, inject};
use crate::request::authority;
use crate::request::clock::RequestClock;
use crate::request::incoming::IncomingBody;
use crate::request::path::RequestPath;
use crate::request::record::ids::{RequestIds, X_REQUEST_ID};
use crate::request::record::log_context::LogContext;
use crate::request::record::trace::{Asked, RequestTrace, TracedHead};
use crate::request::subject::{Origin, Subject};
use crate::request::unsafe_fields;
use crate::response::body::ResponseBody;
use crate::response::compression;
use crate::response::failure::{Answer, Failure};
use crate::response::log_entry::LogSink;
use crate::response::redirect::{ask_for_password, redirect};
use howdah_metrics::labels::Cause;
use http::header::{CONNECTION, HeaderValue, SERVER};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use std::borrow::Cow;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// The status of a request in the access log whose client left before the answer, as in nginx's. It is never sent.
const CLIENT_LEFT: u16 = 499;

/// The reasons of answers 400 that were logged, for each client.
static BAD_REQUESTS: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

/// Answers a request. A bug of howdah costs no more than this request, which is answered 500.
pub async fn answer(
    dispatcher: Rc<Dispatcher>,
    peer: Rc<Peer>,
    clock: RequestClock,
    request: http::Request<IncomingBody>,
) -> Response<ResponseBody<ActionBody>> {
    let respond = pin!(respond(Rc::clone(&dispatcher), Rc::clone(&peer), clock.clone(), request));
    match contained(respond).await {
        Ok(response) => response,
        Err(Panicked) => {
            let mut response = Failure::Internal.response();
            dispatcher.views.of_listener(peer.listener).error_pages().apply(&mut response);
            // The rest of the request may be unread.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response.map(|page| ResponseBody::bytes(page).ends_request(clock, None, None))
        }
    }
}

async fn respond(
    dispatcher: Rc<Dispatcher>,
    peer: Rc<Peer>,
    clock: RequestClock,
    request: http::Request<IncomingBody>,
) -> Response<ResponseBody<ActionBody>> {
    let (mut parts, body) = request.into_parts();
    let unread = body.unread();
    let view = dispatcher.views.of_listener(peer.listener);
    let http = &view.configuration().settings.http;
    authority::take_from_target(&mut parts);
    if http.discard_unsafe_fields {
        unsafe_fields::discard(&mut parts.headers);
    }
    let telemetry = view.configuration().settings.telemetry.as_ref();
    let ids = RequestIds::assign(&mut parts.headers, http.request_id.as_ref(), telemetry);
    let mut origin = Origin::of(&peer, view.listener(peer.listener), &parts, clock.since());
    origin.assigned_id = ids.request.clone();
    origin.trace_parent = ids.trace_parent;
    origin.assigned_headers = ids.headers;
    let refusal = clock.refusal();
    let (host, path, refused) = match refusal.map_or_else(|| target(&parts), |refusal| Err(refusal.into())) {
        Ok((host, path)) => (host, path, None),
        Err(failure) => (String::new(), RequestPath::root(), Some(failure)),
    };
    let handshake = peer.handshake.take();
    let trace = ids.recorded.map(|recorded| {
        let head = TracedHead {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            scheme: origin.scheme.as_str(),
            host: &host,
            port: &peer.server_port,
            version: parts.version,
            client: &origin.address,
            headers: &parts.headers,
            request_id: ids.request.as_ref().and_then(|id| id.to_str().ok()),
        };
        RequestTrace::new(recorded, origin.since, head, handshake)
    });
    let context = LogContext::new(parts.method.clone(), parts.uri.clone(), Rc::clone(&origin.address), ids, trace);
    let log = dispatcher.log_sink(view.configuration());
    let mut unanswered =
        Unanswered { log, request: Some((&parts, &peer, &origin, &host)), context: Rc::clone(&context) };
    let mut subject = Subject::new(&parts, &peer, &origin, &host, path);
    inject("answer", subject.path.text());
    let answer = match refused {
        Some(failure) => Err(failure),
        None => Rc::clone(&context)
            .wrap(pin!(dispatch(&dispatcher, &view, &clock, &mut subject, body, &context)))
            .await
            .and_then(|response| context.scope(|| compression::apply(&http.compression, &parts, response))),
    };
    let mut response = answer.unwrap_or_else(|failure| {
        failure.cause().into_iter().for_each(|cause| context.numbers.refuse(cause));
        if let Failure::BadRequest(reason) = failure
            && BAD_REQUESTS.is_due((&origin.address, reason))
        {
            match refusal {
                // The head is not the client's.
                Some(_) => {
                    tracing::warn!(client = %origin.address, reason, "a request that is not valid: answered 400")
                }
                None => context.scope(|| tracing::warn!(reason, "a request that is not valid: answered 400")),
            }
        }
        let mut response = failure.response();
        view.error_pages().apply(&mut response);
        response.map(ResponseBody::bytes)
    });
    if !closes(&response) && !unread.settle(&parts).await {
        // The next request could not be distinguished from the rest of this one.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if parts.version == Version::HTTP_10 && closes(&response) {
        // Otherwise hyper would announce that it keeps the connection.
        *response.version_mut() = Version::HTTP_10;
    }
    if let Some(listener) = view.listener(peer.listener) {
        https::add_hsts(listener, &peer, response.headers_mut());
        https::add_alt_svc(listener, &peer, parts.version, response.headers_mut());
    }
    if !clock.is_behind_web_server() {
        let server = if http.server_version { product::SOFTWARE } else { product::NAME };
        response.headers_mut().entry(SERVER).or_insert(HeaderValue::from_static(server));
    }
    if let Some(id) = origin.assigned_id.clone().filter(|_| http.request_id.is_some_and(|settings| settings.response)) {
        response.headers_mut().insert(X_REQUEST_ID, id);
    }
    unanswered.request = None;
    context.count(response.status(), origin.since);
    let entry = log.and_then(|log| match refusal {
        Some(_) => log.entry_without_request(&peer.remote_addr, response.status()),
        None if log.skips(|| as_sent(&subject), response.status()) => None,
        None => {
            let answered = subject.answered(response.status(), response.headers());
            let framing = || framing::of(&parts, &response, clock.is_behind_web_server());
            context.scope(|| log.entry(&answered.framed(&framing), origin.since))
        }
    });
    response.map(|body| body.ends_request(clock, entry, Some(context)))
}

/// The host and the path of a request, or the reason why it has none.
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

/// Finds the action for a request, and carries it out.
async fn dispatch(
    dispatcher: &Dispatcher,
    view: &View,
    clock: &RequestClock,
    subject: &mut Subject<'_>,
    body: IncomingBody,
    context: &LogContext,
) -> Answer<ResponseBody<ActionBody>> {
    dispatcher.withdrawals.check(subject.peer)?;
    if let Some(answer) = https::challenge(subject) {
        return Ok(Response::new(ResponseBody::bytes(answer)));
    }
    let routed = routing::choose(dispatcher, view, clock, subject, context).await?;
    subject.forget_query();
    context.numbers.set_responder(routed.action.responder());
    // The application that may have howdah send files.
    let mut sender = Cow::Borrowed("");
    let action = match routed.action {
        ChosenAction::Application(name, target) => {
            if let Some(processes) = application::http_target(view, &name) {
                sender = name;
                ChosenAction::Proxy(processes?)
            } else if let Some(workers) = application::roadrunner_application(view, &name) {
                let (generation, application) = workers?;
                sender = name;
                ChosenAction::Worker(generation, application)
            } else if let Some(server) = application::fastcgi_application(view, &name) {
                let (generation, application) = server?;
                ChosenAction::FastCgi(generation, application, name, target)
            } else {
                ChosenAction::Application(name, target)
            }
        }
        action => action,
    };
    let waits = !matches!(action, ChosenAction::File(_) | ChosenAction::Return(..) | ChosenAction::AskForPassword(_));
    let early_hints = if waits { routed.early_hints } else { &[] };
    early_hints::send(early_hints, subject.parts, clock);
    let http = &view.configuration().settings.http;
    // Each backend in a box: a request has memory for its own one only, and a file needs none.
    let mut response = match action {
        ChosenAction::Worker(generation, application) => {
            let options = roadrunner::RequestOptions::of(application);
            let run = boxed(|| roadrunner::run(generation, subject, body, options, http, clock));
            let response = traced(context, Asked::RoadRunner, run).await?.map(ActionBody::Spooled);
            let response = send_file::apply(&dispatcher.static_files, view, &sender, subject, response).await?;
            response.map(ResponseBody::source)
        }
        ChosenAction::FastCgi(generation, application, name, target) => {
            let server = (generation, application);
            let run = boxed(|| application::run_fastcgi(view, subject, body, server, target.as_deref()));
            let response = traced(context, Asked::FastCgi, run).await?.map(ActionBody::Spooled);
            let response = send_file::apply(&dispatcher.static_files, view, &name, subject, response).await?;
            response.map(ResponseBody::source)
        }
        ChosenAction::Application(name, target) => {
            let run = boxed(|| application::run(view, subject, body, &name, target.as_deref(), clock));
            let response = run.await?.map(ActionBody::Php);
            let response = send_file::apply(&dispatcher.static_files, view, &name, subject, response).await?;
            response.map(ResponseBody::source)
        }
        ChosenAction::Proxy(target) => {
            let run = boxed(|| dispatcher.proxy.forward(target, subject, body, http, clock));
            let response = traced(context, Asked::Proxy, run).await?.map(ActionBody::Upstream);
            let response = send_file::apply(&dispatcher.static_files, view, &sender, subject, response).await?;
            response.map(ResponseBody::source)
        }
        ChosenAction::File(response) => response.map(|body| ResponseBody::source(ActionBody::File(body))),
        ChosenAction::Return(status, location) => {
            let mut response = redirect(status, location);
            view.error_pages().apply(&mut response);
            response.map(ResponseBody::bytes)
        }
        ChosenAction::AskForPassword(realm) => {
            let mut response = ask_for_password(realm)?;
            view.error_pages().apply(&mut response);
            response.map(ResponseBody::bytes)
        }
    };
    early_hints::add_to(&mut response, early_hints);
    response_headers::change(&mut response, routed.response_headers, subject);
    if matches!(clock, RequestClock::Http1(_) | RequestClock::FastCgi(_))
        && let Some(head) = LargeHead::hold(headers_size(response.headers())).map_err(|NoRoom| Failure::BadGateway)?
    {
        response.extensions_mut().insert(Arc::new(head));
    }
    Ok(response)
}

/// The answer of a server, whose span it ends.
async fn traced<T>(context: &LogContext, asked: Asked, answer: impl Future<Output = Answer<T>>) -> Answer<T> {
    let Some(trace) = &context.trace else { return answer.await };
    let at = Instant::now();
    let answer = answer.await;
    trace.set_asked(asked, at);
    answer
}

/// The request with the target that the client sent, before any rewrite.
fn as_sent<'a>(subject: &Subject<'a>) -> Subject<'a> {
    let Subject { parts, peer, origin, host, .. } = *subject;
    let mut as_sent = Subject::new(
        parts,
        peer,
        origin,
        host,
        RequestPath::normalise(parts.uri.path()).unwrap_or_else(|_| RequestPath::root()),
    );
    as_sent.user = subject.user.clone();
    as_sent
}

fn closes<B>(response: &Response<B>) -> bool {
    response.headers().get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// A request without an answer so far. Dropped with its request, it is logged: the client left, or howdah has a bug.
struct Unanswered<'a> {
    log: Option<LogSink<'a>>,
    request: Option<(&'a Parts, &'a Peer, &'a Origin, &'a str)>,
    context: Rc<LogContext>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some((parts, peer, origin, host)) = self.request else { return };
        let is_bug = std::thread::panicking();
        if is_bug {
            self.context.scope(|| tracing::error!("a bug of howdah: answering 500"));
        }
        let status = if is_bug { StatusCode::INTERNAL_SERVER_ERROR.as_u16() } else { CLIENT_LEFT };
        self.context.numbers.refuse(if is_bug { Cause::Internal } else { Cause::ClientLeft });
        StatusCode::from_u16(status).into_iter().for_each(|status| self.context.count(status, origin.since));
        self.context.end_trace();
        if let Some(log) = self.log {
            let path = RequestPath::normalise(parts.uri.path()).unwrap_or_else(|_| RequestPath::root());
            let subject = Subject::new(parts, peer, origin, host, path);
            let entry = StatusCode::from_u16(status)
                .ok()
                .filter(|status| !log.skips(|| as_sent(&subject), *status))
                .and_then(|status| {
                    let answered = HeaderMap::new();
                    self.context.scope(|| log.entry(&subject.answered(status, &answered), origin.since))
                });
            entry.into_iter().for_each(|entry| entry.write());
        }
    }
}
