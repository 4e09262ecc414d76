//! `send_file`: a script names a file in a header of its response, and howdah sends the file in place of the body.
//!
//! `X-Accel-Redirect` has a path below a configured prefix, `X-Sendfile` a path of the file system. The file is found,
//! confined and sent as one of a `share`: below the configured folder only, also through symbolic links, without dot
//! files and PHP sources. Of the script's headers all stay, except those that describe the bytes of its own body. A
//! file that cannot be sent is answered 404, or 403, with a line in the log.

use crate::dispatch::actions::action_body::ActionBody;
use crate::dispatch::active_configuration::view::View;
use crate::report::OncePerMinute;
use crate::request::path::RequestPath;
use crate::request::subject::Subject;
use crate::response::failure::{Answer, Failure};
use crate::response::header_case;
use crate::response::not_modified::NotModified;
use crate::static_files::{self, FileBody, ShareOutcome, ShareRequest, StaticFiles};
use howdah_config::{Application, MimeTypes, SendFile, SentFile};
use howdah_protocol::plain_text::beginning;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    LAST_MODIFIED,
};
use http::request::Parts;
use http::response;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use std::borrow::Cow;
use std::sync::LazyLock;

const X_ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");
const X_SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");

/// The headers that describe the script's own body.
const OF_THE_BODY: [HeaderName; 6] =
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, ACCEPT_RANGES, ETAG, LAST_MODIFIED];

/// The longest name of a file in a log line, in bytes.
const LOGGED_BYTES: usize = 512;

static NOT_SENT: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

/// The response of a script, or of the file that it names if the application has the option.
///
/// # Errors
/// 404 for a file that is not there or is never sent, 403 for one that the router's user may not read, 503 and 504 if
/// its file system does not answer.
pub async fn apply(
    files: &StaticFiles,
    view: &View,
    application: &str,
    subject: &Subject<'_>,
    response: Response<ActionBody>,
) -> Answer<ActionBody> {
    let configuration = view.configuration();
    let folders = configuration.applications.get(application).map(Application::send_file);
    let Some(folders) = folders.filter(|folders| !folders.is_empty()) else { return Ok(response) };
    // A tunnel goes on: it has no body that a file could replace.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let headers = response.headers();
    if !headers.contains_key(X_ACCEL_REDIRECT) && !headers.contains_key(X_SENDFILE) {
        return Ok(response);
    }
    // Boxed: this is rare, and all requests have the memory of this future.
    Box::pin(send(files, &configuration.settings.http.mime_types, application, folders, subject, response)).await
}

/// The response with the file that the script named.
async fn send(
    files: &StaticFiles,
    mime_types: &MimeTypes,
    application: &str,
    folders: &SendFile,
    subject: &Subject<'_>,
    response: Response<ActionBody>,
) -> Answer<ActionBody> {
    let headers = response.headers();
    let path = headers.get(X_ACCEL_REDIRECT);
    let named = path.or_else(|| headers.get(X_SENDFILE)).map_or(&b""[..], HeaderValue::as_bytes);
    let named = String::from_utf8_lossy(named).into_owned();
    let file = if path.is_some() { by_path(folders, &named) } else { folders.by_file(&named) };
    let Some(SentFile { folder, path }) = file else {
        return not_sent(application, &named, "no folder of \"send_file\" has it", Failure::NotFound);
    };
    let request = ShareRequest {
        place: folder,
        path: &path,
        base: folder,
        index: &[],
        follow_symlinks: None,
        traverse_mounts: true,
        types: None,
        mime_types,
        // A folder is never redirected to.
        target: &|| Cow::Borrowed("/"),
    };
    match static_files::find(files, &request, &readable(subject.parts)).await? {
        ShareOutcome::Response(sent) => Ok(joined(response.into_parts().0, sent).map(ActionBody::File)),
        ShareOutcome::Forbidden => {
            not_sent(application, &named, "the router's user may not read it", Failure::Forbidden)
        }
        ShareOutcome::Php => not_sent(application, &named, "PHP sources are never sent", Failure::NotFound),
        ShareOutcome::NotFound | ShareOutcome::OtherType => {
            not_sent(application, &named, "there is no such file, or it is one that is never sent", Failure::NotFound)
        }
    }
}

fn by_path<'f>(folders: &'f SendFile, target: &str) -> Option<SentFile<'f>> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let path = RequestPath::normalise(path).ok().filter(RequestPath::is_text)?;
    folders.by_path(path.text())
}

fn not_sent<B>(application: &str, named: &str, reason: &str, failure: Failure) -> Answer<B> {
    let named = beginning(named, LOGGED_BYTES);
    // Other applications may name the same file.
    if NOT_SENT.is_due((application, named)) {
        let status = failure.status().as_u16();
        tracing::warn!(file = named, status, "cannot send the file that a script named: {reason}");
    }
    Err(failure)
}

/// The request that reads the file. The conditions and the ranges of other methods than GET and HEAD are not for it.
fn readable(parts: &Parts) -> Cow<'_, Parts> {
    match parts.method {
        Method::GET | Method::HEAD => Cow::Borrowed(parts),
        _ => Cow::Owned(Request::new(()).into_parts().0),
    }
}

/// The file's response with the headers of the script.
fn joined(mut script: response::Parts, mut sent: Response<FileBody>) -> Response<FileBody> {
    if sent.status().is_server_error() {
        return sent;
    }
    let content_type = script.headers.get(CONTENT_TYPE).cloned();
    OF_THE_BODY.iter().for_each(|name| drop(script.headers.remove(name)));
    let has_one_part = sent.headers().contains_key(CONTENT_RANGE);
    let keeps_type = sent.status() == StatusCode::OK || sent.status() == StatusCode::PARTIAL_CONTENT && has_one_part;
    if !keeps_type {
        script.headers.remove(CONTENT_TYPE);
    }
    if let (Some(not_modified), Some(_)) = (sent.extensions_mut().get_mut::<NotModified>(), &content_type) {
        not_modified.content_type = content_type;
    }
    copy(&script.headers, sent.headers_mut());
    header_case::adopt(&mut sent, &script.extensions);
    sent
}

/// Copies all headers but those for the server: `X-Sendfile`, `X-Accel-…`.
fn copy(from: &HeaderMap, to: &mut HeaderMap) {
    for name in from.keys().filter(|name| **name != X_SENDFILE && !name.as_str().starts_with("x-accel-")) {
        to.remove(name);
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
}
