//! The action that runs an application: its script is found, and PHP runs it.

use crate::dispatch::view::View;
use crate::php::script::{self, Resolved};
use crate::php::{self, PhpBody, ScriptCall};
use crate::request::incoming::IncomingBody;
use crate::request::subject::Subject;
use crate::response::failure::{Answer, Failure};
use crate::response::redirect::{folder_location, redirect};
use http::StatusCode;

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
) -> Answer<PhpBody> {
    let application = view.configuration().applications.get(name).ok_or(Failure::NotFound)?;
    let port = view.ports.get(name).ok_or(Failure::Internal)?;
    let paths = &port.generation.paths;
    let target = paths.target(target).ok_or(Failure::NotFound)?;
    let script = match script::resolve(target, &port.script_files, subject.path.bytes()) {
        Resolved::Script(script) => script,
        Resolved::Nothing => return Err(Failure::NotFound),
        Resolved::Folder => {
            let location = folder_location(&subject.parts.uri);
            return Ok(redirect(StatusCode::MOVED_PERMANENTLY, location).map(PhpBody::complete));
        }
        Resolved::Forbidden(path) => {
            tracing::warn!(?path, "the router's user may not look for this script: answered 403");
            return Err(Failure::Forbidden);
        }
    };
    let http = &view.configuration().settings.http;
    let call = ScriptCall { script: &script, root: &target.root, retry: application.retry, http };
    php::run(port, subject, body, call).await
}
