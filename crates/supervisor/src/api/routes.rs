//! Which path and method does what, and the requests that wait: for the change before them, or for the router's load.

use crate::api::answer::{ApiAnswer, no_such_application, no_such_path};
use crate::api::metrics::{self, MetricsMemory};
use crate::api::request::ControlRequest;
use crate::api::{certificates, configuration, processes, recording, slow_log, status};
use crate::control::Control;
use crate::control::stage::Stage;
use crate::policy::pace::router_timeouts;
use howdah_config::{Document, DocumentPath, Refusal, answer};
use howdah_protocol::messages::router::ToRouter;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Instant;

/// The requests that wait.
#[derive(Debug, Default)]
pub struct Api {
    /// Requests for changes.
    changes: VecDeque<ControlRequest>,
    /// Requests for the status, each with the time of its arrival.
    status: Vec<(Instant, ControlRequest)>,
    /// The memory of `GET /metrics`.
    metrics: MetricsMemory,
}

/// How many requests for changes may wait. Each may be as long as a configuration.
const MAX_WAITING: usize = 128;

// === impl Api ===

impl Api {
    /// Answers a request, or lets it wait.
    pub fn on_request(&mut self, request: ControlRequest, control: &mut Control, now: Instant) {
        match control.runtime.stage {
            Stage::Booting | Stage::Serving if !request.is_change() => self.get(request, control, now),
            Stage::Serving => {
                if let Some((name, kind)) = request.recording() {
                    recording::begin(&name, kind, request, control, now);
                } else if self.changes.len() < MAX_WAITING {
                    self.changes.push_back(request);
                } else {
                    let detail = format!("{MAX_WAITING} changes wait for the one under way; ask again later");
                    request.answer(Refusal::new(503, "Too many changes.", detail));
                }
            }
            _ => request.refuse(),
        }
    }

    /// Begins the next change that waits, unless one is in progress. Returns `false` if no change can begin.
    pub fn begin_next(&mut self, control: &mut Control, now: Instant) -> bool {
        if !control.is_idle() {
            return false;
        }
        let Some(request) = self.changes.pop_front() else { return false };
        // A client that has left may have sent its change again.
        if !request.reply.is_closed() {
            change(request, control, now);
        }
        true
    }

    /// Refuses all requests that wait, because howdah shuts down.
    pub fn refuse_all(&mut self) {
        let status = self.status.drain(..).map(|(_, request)| request);
        self.changes.drain(..).chain(status).for_each(ControlRequest::refuse);
    }

    // The status

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.status.first().map(|(since, _)| *since + router_timeouts::STATUS)
    }

    /// Answers requests for the status whose router does not report its load.
    pub fn on_time(&mut self, control: &Control, now: Instant) {
        let expired = self.status.iter().take_while(|(since, _)| *since + router_timeouts::STATUS <= now).count();
        for (_, request) in self.status.drain(..expired) {
            if request.below("metrics").is_some() {
                let text = metrics::text(control, &mut self.metrics, request.format, false);
                let format = request.format;
                request.answer(ApiAnswer::exposition(text, format));
                continue;
            }
            let detail = "the router does not answer; it may be overloaded, or stopped: ask again";
            request.answer(Refusal::new(500, answer::text::NO_STATUS, detail));
        }
    }

    /// Answers the requests for the status: the router has reported its load, or there is no router.
    pub fn on_load(&mut self, control: &mut Control) {
        if self.status.is_empty() {
            return;
        }
        let is_up = control.runtime.router.is_running();
        let is_scrape = |(_, request): &mut (Instant, ControlRequest)| request.below("metrics").is_some();
        for (_, request) in self.status.extract_if(.., is_scrape).collect::<Vec<_>>() {
            let format = request.format;
            let text = metrics::text(control, &mut self.metrics, format, is_up);
            request.answer(ApiAnswer::exposition(text, format));
        }
        if self.status.is_empty() {
            return;
        }
        let status = status::of(control);
        let values = serde_json::to_value(&status).unwrap_or_default();
        // From the text: a value does not keep the order of its members.
        let text = serde_json::to_string(&status).unwrap_or_default();
        let status = match Document::parse(&text) {
            Ok(status) => status,
            Err(error) => return tracing::error!("the status is no document: {error}"),
        };
        for (_, request) in std::mem::take(&mut self.status) {
            let answer = if let Some(name) = request.application_in("status", "processes") {
                processes_of(&name, &values, control)
            } else if let Some(path) = request.below("status") {
                DocumentPath::parse(path).and_then(|path| status.get(&path)).map_err(refuse_status)
            } else {
                let config = control.served().document.hide_keys();
                let certificates = control.runtime.certificates.describe_all();
                Ok(Document::compose([("certificates", certificates), ("config", config), ("status", status.clone())]))
            };
            request.answer(answer.map_or_else(ApiAnswer::from, |found| ApiAnswer::document(&found)));
        }
    }

    fn get(&mut self, request: ControlRequest, control: &mut Control, now: Instant) {
        let answer = if let Some(path) = request.below("config") {
            configuration::get(path, control)
        } else if let Some(path) = request.below("certificates") {
            certificates::get(path, control)
        } else if let Some(name) = request.application_in("status", "slow") {
            match slow_log::get(&name, control) {
                Ok(reply) => return drop(request.reply.send(reply)),
                Err(refusal) => Err(refusal),
            }
        } else if request.below("status").is_some() || request.path == "/metrics" || request.path == "/" {
            self.status.push((now, request));
            if control.runtime.router.is_running() {
                control.runtime.router.send(ToRouter::ReportLoad, Vec::new());
            } else {
                self.on_load(control);
            }
            return;
        } else {
            Err(no_such_path())
        };
        request.answer(answer.unwrap_or_else(ApiAnswer::from));
    }
}

/// Begins a change. No other change is in progress.
fn change(request: ControlRequest, control: &mut Control, now: Instant) {
    if request.below("config").is_some() {
        configuration::edit(request, control, now);
    } else if let Some(path) = request.below("certificates") {
        let answer = certificates::change(path, &request, control);
        request.answer(answer.unwrap_or_else(ApiAnswer::from));
    } else if let Some(path) = request.below("control/applications") {
        match DocumentPath::parse(path).as_ref().map(DocumentPath::segments) {
            Ok([name, action]) if action == "restart" => configuration::restart(name, request, control, now),
            Ok(_) => request.answer(no_such_path()),
            Err(refusal) => request.answer(refusal.clone()),
        }
    } else if request.path == "/" || request.path == "/metrics" || request.below("status").is_some() {
        request.answer(Refusal::new(405, answer::text::INVALID_METHOD, "only GET is possible here"));
    } else {
        request.answer(no_such_path());
    }
}

/// The processes of one application, with each worker.
fn processes_of(name: &str, status: &Value, control: &mut Control) -> Result<Document, Refusal> {
    let Some(application) = status["applications"].get(name) else {
        return Err(no_such_application(name));
    };
    let mut processes = application["processes"].clone();
    processes["workers"] = processes::of(name, control);
    Document::parse(&processes.to_string()).map_err(Refusal::from)
}

/// A refusal of a document, as one of the status.
fn refuse_status(refusal: Refusal) -> Refusal {
    let detail = refusal.detail.map(|detail| match detail.strip_prefix("the configuration") {
        Some(rest) => format!("the status{rest}"),
        None => detail,
    });
    Refusal { error: answer::text::INVALID_PATH.to_owned(), detail, ..refusal }
}
