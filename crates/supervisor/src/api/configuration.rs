//! `/config`, and `/control/applications/NAME/restart`: the requests that change what runs.

use crate::api::answer::{ApiAnswer, no_such_application};
use crate::api::reply::Reply;
use crate::api::request::ControlRequest;
use crate::control::Control;
use crate::control::changes::change::Origin;
use crate::control::changes::change_request::{ChangeKind, ChangeRequest};
use howdah_config::{Configuration, Context, Document, DocumentPath, Refusal, answer, etag};
use std::time::Instant;
use tokio::sync::oneshot;

/// A part of the configuration.
pub fn get(path: &str, control: &Control) -> Result<ApiAnswer, Refusal> {
    let document = &control.served().document;
    let found = document.hide_keys().get(&DocumentPath::parse(path)?)?;
    Ok(ApiAnswer::document(&found).with_etag(document.etag()))
}

/// Begins a change of the configuration.
pub fn edit(request: ControlRequest, control: &mut Control, now: Instant) {
    match edited(&request, control) {
        Ok((document, configuration)) => {
            let kind = ChangeKind::Configuration(format!("{} {}", request.method, request.path));
            begin(request, kind, document, configuration, control, now);
        }
        Err(refusal) => request.answer(refusal),
    }
}

/// Restarts an application.
pub fn restart(name: &str, request: ControlRequest, control: &mut Control, now: Instant) {
    if !matches!(request.method.as_str(), "GET" | "POST") {
        let detail = "GET or POST restarts an application";
        return request.answer(Refusal::new(405, answer::text::METHOD_NOT_ALLOWED, detail));
    }
    let active = control.changes.active();
    if !active.configuration.applications.contains_key(name) {
        return request.answer(no_such_application(name));
    }
    if active.configuration.drained.contains(name) {
        let detail = format!("the application {name:?} drains; end that with `howdah drain {name} --end`");
        return request.answer(Refusal::new(409, answer::text::NOT_RESTARTED, detail));
    }
    let (document, configuration) = (active.document.clone(), active.configuration.clone());
    begin(request, ChangeKind::Restart(name.to_owned()), document, configuration, control, now);
}

fn begin(
    request: ControlRequest,
    kind: ChangeKind,
    document: Document,
    configuration: Configuration,
    control: &mut Control,
    now: Instant,
) {
    let restarted = match &kind {
        ChangeKind::Restart(name) => Some(name.clone()),
        ChangeKind::Configuration(_) => None,
    };
    let (sender, outcome) = oneshot::channel();
    let _ = request.reply.send(match restarted {
        Some(_) => Reply::Restart(outcome),
        None => Reply::Change(outcome),
    });
    let origin = Origin::Request(ChangeRequest { kind, since: now, outcome: sender });
    control.changes.begin(document, configuration, origin, restarted.as_deref().as_slice(), now);
}

/// The configuration that the request asks for.
fn edited(request: &ControlRequest, control: &Control) -> Result<(Document, Configuration), Refusal> {
    let current = &control.changes.active().document;
    if let Some(expected) = &request.if_match
        && !etag::if_match(expected, &current.etag())
    {
        let detail = "the configuration was changed since; GET it again, with its ETag, and repeat the change";
        return Err(Refusal::new(412, "Precondition Failed.", detail));
    }
    let path = DocumentPath::parse(request.below("config").unwrap_or_default())?;
    let next = match request.method.as_str() {
        "PUT" => current.put(&path, Document::parse_bytes(&request.body)?)?,
        "POST" if !path.is_root() => current.post(&path, Document::parse_bytes(&request.body)?)?,
        "DELETE" => current.delete(&path)?,
        _ => {
            let detail = "GET, PUT and DELETE are possible, and POST to an array";
            return Err(Refusal::new(405, answer::text::METHOD_NOT_ALLOWED, detail));
        }
    };
    // A key is hidden in what a client has read. A client that sends it back keeps the key.
    let next = next.with_keys_of(current);
    let names = control.runtime.certificates.names();
    let configuration = Configuration::of_in(&next, Context { certificates: Some(&names) })?;
    Ok((next, configuration))
}
