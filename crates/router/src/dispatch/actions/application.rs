//! The action that runs an application: its script is found, and PHP or a FastCGI server runs it; or a process of it
//! answers over HTTP or as a worker of RoadRunner.

use crate::backends::buffering::spooled_body::SpooledBody;
use crate::backends::fastcgi::{self, FastCgiGeneration};
use crate::backends::php::{self, PhpBody, ScriptCall};
use crate::backends::proxy::ProxyTarget;
use crate::backends::roadrunner::RoadRunnerGeneration;
use crate::backends::script::{Resolved, Script, ScriptFiles, find_script};
use crate::dispatch::actions::front_script;
use crate::dispatch::active_configuration::view::View;
use crate::report::OncePerMinute;
use crate::request::clock::RequestClock;
use crate::request::incoming::IncomingBody;
use crate::request::record::log_context::{LogContext, LoggedApplication};
use crate::request::subject::Subject;
use crate::response::failure::{Answer, Failure};
use crate::response::redirect::{folder_location, redirect};
use bytes::Bytes;
use howdah_config::{Application, FastCgiApplication, RoadRunnerApplication};
use howdah_metrics::labels::Cause;
use howdah_protocol::messages::generation_paths::TargetPaths;
use http::{Response, StatusCode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

/// `Retry-After` of an application that drains or does not start, in seconds.
const WITHOUT_GENERATION_RETRY_AFTER: u32 = 10;

/// The missing scripts that were logged.
static MISSING_SCRIPTS: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

/// Runs the application with this name, and returns the response of its script.
///
/// # Errors
/// The failure that is answered in place of a response.
pub async fn run(
    view: &View,
    subject: &Subject<'_>,
    body: IncomingBody,
    name: &str,
    target: Option<&str>,
    clock: &RequestClock,
) -> Answer<PhpBody> {
    let application = view.configuration().applications.get(name).and_then(Application::as_php);
    let application = application.ok_or(Failure::NotFound)?;
    let port = view.ports.get(name).ok_or_else(|| without_generation(view, name))?;
    LogContext::set_application(Rc::clone(&port.application));
    let paths = &port.generation.paths;
    let target = paths.target(target).ok_or(Failure::NotFound)?;
    let (port, script) = match port.script_of_path(subject.path.bytes()) {
        Some(found) => found,
        None => match find(name, &port.script_files, target, subject).await? {
            Found::Script(script) => (port.port_of_script(&script), script),
            Found::Redirect(response) => return Ok(response.map(PhpBody::complete)),
        },
    };
    let http = &view.configuration().settings.http;
    let call = ScriptCall { script: &script, root: &target.root, retry: application.retry, http, clock };
    php::run(port, subject, body, call).await
}

/// The generation of the FastCGI application with this name, and its options; `None` if it is of another type.
///
/// # Errors
/// 503 if it drains or does not start.
pub fn fastcgi_application<'v>(
    view: &'v View,
    name: &str,
) -> Option<Result<(&'v Arc<FastCgiGeneration>, &'v FastCgiApplication), Failure>> {
    let application = view.configuration().applications.get(name).and_then(Application::as_fastcgi)?;
    Some(generation_of(view, name, view.fastcgi_generation(name)).map(|generation| (generation, application)))
}

/// Has a FastCGI server run the script of a request, and returns the response.
///
/// # Errors
/// The failure that is answered in place of a response.
pub async fn run_fastcgi(
    view: &View,
    subject: &Subject<'_>,
    body: IncomingBody,
    (generation, application): (&Arc<FastCgiGeneration>, &FastCgiApplication),
    target: Option<&str>,
) -> Answer<SpooledBody> {
    let target = generation.target(target).ok_or(Failure::NotFound)?;
    let files = ScriptFiles::below(None);
    let script = match find(&generation.application, &files, &target.paths, subject).await? {
        Found::Script(script) => script,
        Found::Redirect(response) => return Ok(response.map(SpooledBody::Whole)),
    };
    let http = &view.configuration().settings.http;
    fastcgi::run(generation, target, subject, &script, body, application.retry, http).await
}

/// The result of looking for the script of a request.
enum Found {
    Script(Script),
    /// To the same path with a slash at its end.
    Redirect(Response<Bytes>),
}

/// Looks for the script of a request.
///
/// # Errors
/// 403, 404, 503 and 504.
async fn find(
    application: &str,
    files: &ScriptFiles,
    target: &TargetPaths,
    subject: &Subject<'_>,
) -> Result<Found, Failure> {
    // A rewrite of howdah's own names another path than the web server did.
    let front = subject.peer.front.as_ref().filter(|_| !subject.is_rewritten);
    let named = front.map_or(Ok(None), |front| front_script::path_of(front, application, target))?;
    let path = named.as_deref().unwrap_or(subject.path.bytes());
    let mut resolved = find_script(files, target, path).await?;
    if matches!(resolved, Resolved::Folder) && subject.path.bytes().ends_with(b"/") {
        // The web server names the folder without its slash.
        resolved = find_script(files, target, &[path, b"/"].concat()).await?;
    }
    match resolved {
        Resolved::Script(mut script) => {
            if let (Some(front), Some(named)) = (front, &named) {
                front_script::adopt_names(front, named, &mut script);
            }
            Ok(Found::Script(script))
        }
        Resolved::Nothing => {
            let missing = missing(target, path);
            // Applications in root directories of their own may have the same paths.
            if MISSING_SCRIPTS.is_due((application, &missing)) {
                tracing::warn!(script = &*missing.to_string_lossy(), "no such script: answered 404");
            }
            Err(Failure::NotFound)
        }
        Resolved::Folder => {
            let location = folder_location(&subject.target());
            Ok(Found::Redirect(redirect(StatusCode::MOVED_PERMANENTLY, location)))
        }
        Resolved::Forbidden(path) => {
            tracing::warn!(
                path = &*path.to_string_lossy(),
                "the router's user may not look for this script: answered 403"
            );
            Err(Failure::Forbidden)
        }
    }
}

/// The processes of the HTTP application with this name; `None` if it is of another type.
///
/// # Errors
/// 503 if it drains or does not start.
pub fn http_target<'v>(view: &'v View, name: &str) -> Option<Result<ProxyTarget<'v>, Failure>> {
    let application = view.configuration().applications.get(name).and_then(Application::as_http)?;
    let generation = generation_of(view, name, view.http_generation(name));
    Some(generation.map(|generation| ProxyTarget::Application(generation, &application.proxy)))
}

/// The generation of the RoadRunner application with this name, and its options; `None` if it is of another
/// type.
///
/// # Errors
/// 503 if it drains or does not start.
pub fn roadrunner_application<'v>(
    view: &'v View,
    name: &str,
) -> Option<Result<(&'v Arc<RoadRunnerGeneration>, &'v RoadRunnerApplication), Failure>> {
    let application = view.configuration().applications.get(name).and_then(Application::as_roadrunner)?;
    Some(generation_of(view, name, view.roadrunner_generation(name)).map(|generation| (generation, application)))
}

/// The generation of an application that the request's log lines name from now on.
fn generation_of<'v, G>(view: &View, name: &str, generation: Option<&'v Arc<G>>) -> Result<&'v Arc<G>, Failure> {
    let generation = generation.ok_or_else(|| without_generation(view, name))?;
    LogContext::set_application(LoggedApplication::new(name.to_owned(), None));
    Ok(generation)
}

/// The application drains, or it does not start: then the supervisor tries again to start it.
fn without_generation(view: &View, name: &str) -> Failure {
    LogContext::set_application(LoggedApplication::new(name.to_owned(), None));
    let drains = view.configuration().drained.contains(name);
    LogContext::refuse(if drains { Cause::Drained } else { Cause::NotStarted });
    Failure::Unavailable { retry_after: WITHOUT_GENERATION_RETRY_AFTER }
}

/// The file that would have answered this path: the script that it names, or the index of the folder.
fn missing(target: &TargetPaths, path: &[u8]) -> PathBuf {
    let mut file = target.root.as_os_str().as_bytes().to_vec();
    file.extend_from_slice(path);
    if path.ends_with(b"/") {
        file.extend_from_slice(target.index.as_bytes());
    }
    PathBuf::from(OsStr::from_bytes(&file))
}
