//! The way of a request through the routes, to the action that answers it.

use crate::backends::fastcgi::FastCgiGeneration;
use crate::backends::proxy::ProxyTarget;
use crate::backends::roadrunner::RoadRunnerGeneration;
use crate::dispatch::actions::share;
use crate::dispatch::active_configuration::view::View;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::https;
use crate::request::clock::RequestClock;
use crate::request::record::log_context::LogContext;
use crate::request::rewrite::BadRewrite;
use crate::request::subject::Subject;
use crate::response::failure::Failure;
use crate::static_files::FileBody;
use howdah_config::{
    ActionKind, Destination, FastCgiApplication, HeaderChange, RedirectTarget, RoadRunnerApplication, Route, RouteStep,
    Template,
};
use howdah_metrics::labels::Responder;
use http::header::HeaderValue;
use http::{Response, StatusCode};
use std::borrow::Cow;
use std::sync::Arc;

/// The action that answers a request.
pub enum ChosenAction<'v> {
    /// An application, and its target.
    Application(Cow<'v, str>, Option<Cow<'v, str>>),
    /// An HTTP server.
    Proxy(ProxyTarget<'v>),
    /// A worker of a RoadRunner application.
    Worker(&'v Arc<RoadRunnerGeneration>, &'v RoadRunnerApplication),
    /// The server of a FastCGI application, and its name and target.
    FastCgi(&'v Arc<FastCgiGeneration>, &'v FastCgiApplication, Cow<'v, str>, Option<Cow<'v, str>>),
    /// A file, which was found.
    File(Response<FileBody>),
    /// A status, and a `Location`.
    Return(StatusCode, Option<HeaderValue>),
    /// 401, which asks for a user and a password of this realm.
    AskForPassword(&'v str),
}

// === impl ChosenAction ===

impl ChosenAction<'_> {
    /// The part of howdah that answers the request, for its numbers.
    pub fn responder(&self) -> Responder {
        match self {
            ChosenAction::Application(..) | ChosenAction::Worker(..) | ChosenAction::FastCgi(..) => {
                Responder::Application
            }
            ChosenAction::Proxy(_) => Responder::Proxy,
            ChosenAction::File(_) => Responder::File,
            ChosenAction::Return(..) => Responder::Return,
            ChosenAction::AskForPassword(_) => Responder::Howdah,
        }
    }
}

/// The result of routing.
pub struct RoutedRequest<'v> {
    /// The action.
    pub action: ChosenAction<'v>,
    /// Changes to the response's headers: those of the last action on the way, as in NGINX Unit.
    pub response_headers: &'v [HeaderChange],
    /// Links that the client gets before the response, of the same action.
    pub early_hints: &'v [String],
}

/// Passes with variables, and passes that rewrite the path, may lead in a circle.
const MAX_PASSES: usize = 255;
/// The target of the lines of `log_route`.
pub const LOG_ROUTE: &str = "howdah_router::log_route";

/// Finds the action for a request, and rewrites the subject on the way.
///
/// # Errors
/// - 403 for a file that may not be served
/// - 404 if no step matches, or for a value that a rewrite refuses
/// - 429 for a client that sends too many requests, or has too many that are being answered
/// - 500 for passes without end
/// - 503 if too many passwords are being verified, or for a listener that was removed
/// - 503 and 504 for a file whose file system does not answer
pub async fn choose<'v>(
    dispatcher: &Dispatcher,
    view: &'v View,
    clock: &RequestClock,
    subject: &mut Subject<'_>,
    context: &LogContext,
) -> Result<RoutedRequest<'v>, Failure> {
    let Some(listener) = view.listener(subject.peer.listener) else {
        tracing::info!("the listener was removed since the connection came: answered 503");
        return Err(Failure::Unavailable { retry_after: 1 });
    };
    let configuration = view.configuration();
    https::check_certificate(listener, subject.peer)?;
    if let Some((status, location)) = https::redirect(listener, subject)? {
        return Ok(RoutedRequest {
            action: ChosenAction::Return(status, Some(location)),
            response_headers: &[],
            early_hints: &[],
        });
    }
    let logs_route = configuration.settings.http.log_route;
    let mut pass = listener.pass.as_ref().ok_or(Failure::NotFound)?;
    let mut response_headers: &[HeaderChange] = &[];
    let mut early_hints: &[String] = &[];
    for _ in 0..MAX_PASSES {
        let destination = configuration.destination(pass, subject).ok_or(Failure::NotFound)?;
        let mut action = match destination {
            Cow::Borrowed(Destination::Application { name, target }) => {
                let action = ChosenAction::Application(name.into(), target.as_deref().map(Cow::Borrowed));
                return Ok(RoutedRequest { action, response_headers, early_hints });
            }
            Cow::Owned(Destination::Application { name, target }) => {
                let action = ChosenAction::Application(name.into(), target.map(Cow::Owned));
                return Ok(RoutedRequest { action, response_headers, early_hints });
            }
            destination => match &*destination {
                Destination::Routes(name) => {
                    let route = configuration.routes.find(name.as_deref()).ok_or(Failure::NotFound)?;
                    let step = route.first_match(subject);
                    if logs_route {
                        log_steps(subject, name.as_deref(), route, step);
                    }
                    let step = step.ok_or(Failure::NotFound)?;
                    context.set_route(&step.path);
                    &step.action
                }
                Destination::Upstream(name) => {
                    let balancer = view.balancers.get(name).ok_or(Failure::Internal)?;
                    let action = ChosenAction::Proxy(ProxyTarget::Upstream(balancer));
                    return Ok(RoutedRequest { action, response_headers, early_hints });
                }
                Destination::Application { .. } => unreachable!("matched above"),
            },
        };
        pass = loop {
            (response_headers, early_hints) = (&action.response_headers, &action.early_hints);
            if let Some(limit) = &action.rate_limit {
                view.rate_limits().count(limit, &subject.origin.address)?;
            }
            if let Some(limit) = &action.connection_limit {
                clock.hold(view.connection_limits().count(limit, &subject.origin.address)?);
            }
            if let Some(basic_auth) = &action.basic_auth {
                let (headers, client) = (&subject.parts.headers, &subject.origin.address);
                subject.user = dispatcher.authentication.user(basic_auth, view.user_files(), headers, client).await?;
                if subject.user.is_none() {
                    return Ok(RoutedRequest {
                        action: ChosenAction::AskForPassword(&basic_auth.realm),
                        response_headers,
                        early_hints,
                    });
                }
            }
            if let Some(rewrite) = &action.rewrite {
                *subject = rewritten(subject, rewrite, logs_route)?;
                if logs_route {
                    log_route(subject, format_args!("URI rewritten to {:?}", subject.path.text()));
                }
            }
            let chosen = match &action.kind {
                ActionKind::Pass(pass) => break pass,
                ActionKind::Proxy(server, settings) => {
                    ChosenAction::Proxy(ProxyTarget::Server(server, settings, view.upstream_tls(settings)))
                }
                ActionKind::Return { status, location } => {
                    let location = location.as_ref().map(|location| RedirectTarget::render(location, subject));
                    let location = location.map(|location| HeaderValue::from_str(&location)).transpose();
                    let status = StatusCode::from_u16(*status).map_err(|_| Failure::Internal)?;
                    ChosenAction::Return(status, location.map_err(|_| Failure::Internal)?)
                }
                ActionKind::Share { share, fallback } => {
                    let (files, has_fallback) = (&dispatcher.static_files, fallback.is_some());
                    match share::find(files, view, share, has_fallback, subject).await? {
                        Some(response) => ChosenAction::File(response),
                        None => {
                            if logs_route && fallback.is_some() {
                                log_route(subject, format_args!("\"fallback\" taken"));
                            }
                            action = fallback.as_deref().ok_or(Failure::NotFound)?;
                            continue;
                        }
                    }
                }
            };
            return Ok(RoutedRequest { action: chosen, response_headers, early_hints });
        };
    }
    tracing::error!(uri = subject.path.text(), "a request was passed on {MAX_PASSES} times and is given up");
    Err(Failure::Internal)
}

/// The rewritten request. A value that makes no path is answered as one for which a share has no file.
fn rewritten<'a>(subject: &Subject<'a>, rewrite: &Template, logs_route: bool) -> Result<Subject<'a>, Failure> {
    subject.rewritten(rewrite).map_err(|problem| match problem {
        BadRewrite::Text(problem) => {
            tracing::error!(%rewrite, "a rewrite is not a path ({problem}); answering 500");
            Failure::Internal
        }
        BadRewrite::Value => {
            if logs_route {
                log_route(subject, format_args!("a value in \"rewrite\" has a \"..\" or a NUL: answered 404"));
            }
            Failure::NotFound
        }
    })
}

/// `log_route`: the steps of a route that were discarded, and the one that was selected.
fn log_steps(subject: &Subject<'_>, name: Option<&str>, route: &Route, selected: Option<&RouteStep>) {
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    for (index, step) in route.steps().iter().enumerate() {
        if selected.is_some_and(|selected| std::ptr::eq(step, selected)) {
            return log_route(subject, format_args!("\"routes{name}/{index}\" selected"));
        }
        log_route(subject, format_args!("\"routes{name}/{index}\" discarded"));
    }
    log_route(subject, format_args!("no step of \"routes{name}\" matches"));
}

/// A line of `log_route`.
fn log_route(subject: &Subject<'_>, what: std::fmt::Arguments<'_>) {
    let (method, uri) = (&subject.parts.method, &subject.parts.uri);
    tracing::info!(target: LOG_ROUTE, "{method} {uri}: {what}");
}
