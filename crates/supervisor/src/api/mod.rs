//! The control API: which path and method does what. NGINX Unit's paths, methods and answers, and ETags.
//!
//! - `/config…`: GET, PUT, POST, DELETE a part of the configuration ([`Document`])
//! - `/certificates…`: GET, and PUT and DELETE of one
//! - `/status…`: GET, what howdah does; below `/applications/NAME`, `/processes` has each worker, and `/slow` is the slow log
//! - `/control/applications/NAME/restart`: GET, as in Unit, or POST
//! - `/control/applications/NAME/profile`: POST, where its time goes
//! - `/`: GET, all of it
//!
//! What changes something waits until the change before it has ended. Nobody's change is overwritten by accident: with
//! `If-Match` a change is made only to the configuration that has this ETag (RFC 9110, 13.1.1).

pub mod control_socket;
pub mod processes;
pub mod profile;
pub mod slow_log;
pub mod status;

use crate::control::change::{Origin, first_line};
use crate::control::stage::Stage;
use crate::event_loop::Supervisor;
use crate::store::certificates;
use howdah_config::{Configuration, Context, Document, DocumentPath, Refusal, answer, etag};
use howdah_protocol::router_messages::ToRouter;
use serde_json::Value;
use std::time::Instant;
use tokio::sync::oneshot;

/// A request.
#[derive(Debug)]
pub struct Ask {
    /// Its method.
    pub method: String,
    /// Its path, still encoded.
    pub path: String,
    /// The header `If-Match`.
    pub if_match: Option<String>,
    /// Its body.
    pub body: Vec<u8>,
    /// Who waits for the answer.
    pub reply: oneshot::Sender<Answer>,
}

/// An answer: JSON, or what howdah hands on as it is.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the body is JSON.
    pub is_json: bool,
    /// The configuration's ETag.
    pub etag: Option<String>,
}

/// Whom to answer when a change has ended, and how.
#[derive(Debug)]
pub struct Reply {
    /// What was asked for.
    pub asked: Asked,
    /// When that was.
    pub since: Instant,
    /// Who waits.
    pub reply: oneshot::Sender<Answer>,
}

/// A change that somebody asked for.
#[derive(Debug)]
pub enum Asked {
    /// Another configuration, by this method and path.
    Configuration(String),
    /// This application anew: the configuration remains what it is.
    Restart(String),
}

/// The status of what is right, but cannot be done.
const NOT_APPLIED: u16 = 500;
/// So many changes wait for the one under way; each may be as long as a configuration.
const WAITING_AT_MOST: usize = 128;

// === impl Answer ===

impl Answer {
    fn success(text: &str) -> Answer {
        Answer::json(200, answer::success(text))
    }

    fn document(document: &Document) -> Answer {
        Answer::json(200, document.pretty())
    }

    /// Bytes that come of an application.
    pub fn bytes(body: Vec<u8>) -> Answer {
        Answer { status: 200, body, is_json: false, etag: None }
    }

    fn json(status: u16, body: String) -> Answer {
        Answer { status, body: body.into_bytes(), is_json: true, etag: None }
    }

    fn with_etag(self, etag: String) -> Answer {
        Answer { etag: Some(etag), ..self }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        Answer::json(refusal.status, refusal.to_json())
    }
}

// === impl Reply ===

impl Reply {
    /// Answers, and tells the log.
    pub fn send(self, result: Result<&Document, &str>) {
        let took = self.since.elapsed().as_millis();
        let (success, failure) = match &self.asked {
            Asked::Configuration(_) => (answer::text::RECONFIGURED, answer::text::NOT_APPLIED),
            Asked::Restart(_) => (answer::text::RESTARTED, answer::text::NOT_RESTARTED),
        };
        match (&self.asked, result.map_err(first_line)) {
            (Asked::Configuration(how), Ok(_)) => {
                tracing::info!("a new configuration is in force ({how}) after {took} ms");
            }
            (Asked::Configuration(how), Err(reason)) => {
                tracing::error!("a new configuration was not put in force ({how}): {reason}");
            }
            (Asked::Restart(name), Ok(_)) => tracing::info!("the application {name:?} was restarted after {took} ms"),
            (Asked::Restart(name), Err(reason)) => {
                tracing::error!("the application {name:?} was not restarted; what ran before goes on: {reason}");
            }
        }
        let answer = match result {
            Ok(document) => Answer::success(success).with_etag(document.etag()),
            Err(reason) => Refusal::new(NOT_APPLIED, failure, reason).into(),
        };
        let _ = self.reply.send(answer);
    }
}

// === impl Ask ===

impl Ask {
    fn is_change(&self) -> bool {
        self.method != "GET" || self.path.starts_with("/control/")
    }

    /// Whether it is of no use without its client. A change is, as of a script that does not wait.
    pub(crate) fn is_for_its_client(&self) -> bool {
        self.of_application("control", "profile").is_some()
    }

    /// The application whose `what` is meant, below this name.
    fn of_application(&self, name: &str, what: &str) -> Option<String> {
        match DocumentPath::parse(self.below(name)?.strip_prefix("/applications")?).ok()?.segments() {
            [application, last] if last == what => Some(application.clone()),
            _ => None,
        }
    }

    /// The rest of the path, if it begins with this name.
    fn below(&self, name: &str) -> Option<&str> {
        let rest = self.path.strip_prefix('/')?.strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Takes a request in. Changes wait for each other.
    pub(crate) fn on_ask(&mut self, ask: Ask, now: Instant) {
        match self.stage {
            Stage::Booting | Stage::Serving if !ask.is_change() => self.answer_get(ask, now),
            Stage::Serving => {
                if let Some(name) = ask.of_application("control", "profile") {
                    self.begin_profile(&name, ask, now);
                } else if self.asks.len() < WAITING_AT_MOST {
                    self.asks.push_back(ask);
                } else {
                    let detail = format!("{WAITING_AT_MOST} changes wait for the one under way; ask again later");
                    let _ = ask.reply.send(Refusal::new(503, "Too many changes.", detail).into());
                }
            }
            _ => refuse(ask),
        }
    }

    /// Begins the next change that waits, if none is under way. `false` if there is none to begin.
    pub(crate) fn take_ask(&mut self, now: Instant) -> bool {
        if self.change.is_some() || !matches!(self.stage, Stage::Serving) {
            return false;
        }
        let Some(ask) = self.asks.pop_front() else { return false };
        // Nobody waits for it any more: it may have been sent again.
        if !ask.reply.is_closed() {
            self.carry_out(ask, now);
        }
        true
    }

    /// Tells all who wait that howdah ends.
    pub(crate) fn refuse_asks(&mut self) {
        let status_asks = std::mem::take(&mut self.status_asks).into_iter().map(|(_, ask)| ask);
        std::mem::take(&mut self.asks).into_iter().chain(status_asks).for_each(refuse);
    }

    fn answer_get(&mut self, ask: Ask, now: Instant) {
        let document = &self.in_force().document;
        let answer = if let Some(path) = ask.below("config") {
            let found = DocumentPath::parse(path).and_then(|path| document.hide_keys().get(&path));
            found.map(|found| Answer::document(&found).with_etag(document.etag()))
        } else if let Some(path) = ask.below("certificates") {
            self.describe_certificates(path).map(|found| Answer::document(&found))
        } else if let Some(name) = ask.of_application("status", "slow") {
            self.show_slow_log(&name)
        } else if ask.below("status").is_some() || ask.path == "/" {
            // The answer comes with the router's numbers.
            self.status_asks.push((now, ask));
            match &mut self.router {
                Some(router) => router.link.send(ToRouter::ReportLoad, Vec::new()),
                None => self.answer_status(),
            }
            return;
        } else {
            Err(no_such_path())
        };
        let _ = ask.reply.send(answer.unwrap_or_else(Answer::from));
    }

    /// Answers all who asked for the status.
    pub(crate) fn answer_status(&mut self) {
        if self.status_asks.is_empty() {
            return;
        }
        let status = status::of(self);
        let told = serde_json::to_value(&status).unwrap_or_default();
        // From the text: in the value its members have lost their order.
        let text = serde_json::to_string(&status).unwrap_or_default();
        let status = match Document::parse(&text) {
            Ok(status) => status,
            Err(error) => return tracing::error!("the status cannot be told: {error}"),
        };
        for (_, ask) in std::mem::take(&mut self.status_asks) {
            if let Some(answer) = self.processes(&ask, &told) {
                let _ = ask.reply.send(answer);
                continue;
            }
            let answer = match ask.below("status") {
                Some(path) => DocumentPath::parse(path)
                    .and_then(|path| status.get(&path))
                    .map_err(of_status)
                    .map(|found| Answer::document(&found)),
                None => {
                    let config = self.in_force().document.hide_keys();
                    let certificates = self.certificates.describe_all();
                    let all = [("certificates", certificates), ("config", config), ("status", status.clone())];
                    Ok(Answer::document(&Document::compose(all)))
                }
            };
            let _ = ask.reply.send(answer.unwrap_or_else(Answer::from));
        }
    }

    /// The processes of one application, each of them.
    fn processes(&mut self, ask: &Ask, status: &Value) -> Option<Answer> {
        let name = ask.of_application("status", "processes")?;
        let Some(application) = status["applications"].get(&name) else {
            return Some(no_such_application(&name).into());
        };
        let mut processes = application["processes"].clone();
        processes["workers"] = self.describe_workers(&name);
        Some(
            Document::parse(&processes.to_string())
                .map_or_else(|error| Refusal::from(error).into(), |all| Answer::document(&all)),
        )
    }

    fn carry_out(&mut self, ask: Ask, now: Instant) {
        let result = if ask.below("config").is_some() {
            self.edit(ask, now)
        } else if let Some(path) = ask.below("certificates") {
            let answer = self.change_certificates(path, &ask).unwrap_or_else(Answer::from);
            let _ = ask.reply.send(answer);
            Ok(())
        } else if let Some(path) = ask.below("control/applications") {
            match DocumentPath::parse(path).as_ref().map(DocumentPath::segments) {
                Ok([name, action]) if action == "restart" => self.restart(&name.clone(), ask, now),
                Ok(_) => Err((ask.reply, no_such_path())),
                Err(refusal) => Err((ask.reply, refusal.clone())),
            }
        } else if ask.path == "/" || ask.below("status").is_some() {
            Err((ask.reply, Refusal::new(405, answer::text::INVALID_METHOD, "only GET is possible here")))
        } else {
            Err((ask.reply, no_such_path()))
        };
        if let Err((reply, refusal)) = result {
            let _ = reply.send(refusal.into());
        }
    }

    fn edit(&mut self, ask: Ask, now: Instant) -> Result<(), (oneshot::Sender<Answer>, Refusal)> {
        let next = match self.edited(&ask) {
            Ok(next) => next,
            Err(refusal) => return Err((ask.reply, refusal)),
        };
        let (document, configuration) = next;
        let asked = Asked::Configuration(format!("{} {}", ask.method, ask.path));
        let reply = Reply { asked, since: now, reply: ask.reply };
        self.begin_change(document, configuration, Origin::Api(reply), &[], now);
        Ok(())
    }

    fn edited(&self, ask: &Ask) -> Result<(Document, Configuration), Refusal> {
        let current = &self.current.document;
        if let Some(expected) = &ask.if_match
            && !etag::if_match(expected, &current.etag())
        {
            let detail = "the configuration was changed since; GET it again, with its ETag, and repeat the change";
            return Err(Refusal::new(412, "Precondition Failed.", detail));
        }
        let path = DocumentPath::parse(ask.below("config").unwrap_or_default())?;
        let next = match ask.method.as_str() {
            "PUT" => current.put(&path, Document::parse_bytes(&ask.body)?)?,
            "POST" if !path.is_root() => current.post(&path, Document::parse_bytes(&ask.body)?)?,
            "DELETE" => current.delete(&path)?,
            _ => {
                let detail = "GET, PUT and DELETE are possible, and POST to an array";
                return Err(Refusal::new(405, answer::text::METHOD_NOT_ALLOWED, detail));
            }
        };
        // A key that was read and sent back is hidden.
        let next = next.with_keys_of(current);
        let names = self.certificates.names();
        let configuration = Configuration::of_in(&next, Context { certificates: Some(&names) })?;
        Ok((next, configuration))
    }

    /// All certificates, one of them, or a part of one.
    fn describe_certificates(&self, path: &str) -> Result<Document, Refusal> {
        let path = DocumentPath::parse(path)?;
        let Some(name) = path.segments().first() else { return Ok(self.certificates.describe_all()) };
        let one = Document::compose([(name.as_str(), self.certificates.describe(name)?)]);
        one.get(&path).map_err(|refusal| Refusal { error: answer::text::INVALID_PATH.to_owned(), ..refusal })
    }

    /// Adds or removes one.
    fn change_certificates(&mut self, path: &str, ask: &Ask) -> Result<Answer, Refusal> {
        let path = DocumentPath::parse(path)?;
        let detail = "PUT or DELETE /certificates/NAME";
        let name = match path.segments() {
            [name] => name,
            [] => return Err(Refusal::new(405, answer::text::INVALID_METHOD, detail)),
            _ => return Err(Refusal::new(400, answer::text::INVALID_CERTIFICATE_NAME, detail)),
        };
        match ask.method.as_str() {
            "PUT" => {
                self.certificates.put(name, &ask.body)?;
                tracing::info!("the certificate {name:?} was uploaded");
                Ok(Answer::success(answer::text::CERTIFICATE_UPLOADED))
            }
            "DELETE" => {
                self.certificates.delete(name, &certificates::used(&self.current.configuration))?;
                tracing::info!("the certificate {name:?} was deleted");
                Ok(Answer::success(answer::text::CERTIFICATE_DELETED))
            }
            _ => Err(Refusal::new(405, answer::text::INVALID_METHOD, "GET, PUT and DELETE are possible here")),
        }
    }

    fn restart(&mut self, name: &str, ask: Ask, now: Instant) -> Result<(), (oneshot::Sender<Answer>, Refusal)> {
        if !matches!(ask.method.as_str(), "GET" | "POST") {
            let refusal = Refusal::new(405, answer::text::METHOD_NOT_ALLOWED, "GET or POST restarts an application");
            return Err((ask.reply, refusal));
        }
        if !self.current.configuration.applications.contains_key(name) {
            return Err((ask.reply, no_such_application(name)));
        }
        let reply = Reply { asked: Asked::Restart(name.to_owned()), since: now, reply: ask.reply };
        let (document, configuration) = (self.current.document.clone(), self.current.configuration.clone());
        self.begin_change(document, configuration, Origin::Api(reply), &[name], now);
        Ok(())
    }
}

/// Who is meant is not there.
pub fn no_such_application(name: &str) -> Refusal {
    Refusal::new(404, answer::text::NO_SUCH_VALUE, format!("there is no application {name:?}"))
}

fn refuse(ask: Ask) {
    let refusal = Refusal::new(503, "howdah is not ready.", "it starts or shuts down; ask again");
    let _ = ask.reply.send(refusal.into());
}

/// A refusal of a document, as one of the status.
fn of_status(refusal: Refusal) -> Refusal {
    let detail = refusal.detail.map(|detail| match detail.strip_prefix("the configuration") {
        Some(rest) => format!("the status{rest}"),
        None => detail,
    });
    Refusal { error: answer::text::INVALID_PATH.to_owned(), detail, ..refusal }
}

fn no_such_path() -> Refusal {
    let detail = "howdah answers below /config, /certificates, /status and /control/applications";
    Refusal::new(404, answer::text::NO_SUCH_VALUE, detail)
}
