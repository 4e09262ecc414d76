//! A request becomes an answer.

use crate::commands::dashboard::access::origin::{self, Effect};
use crate::commands::dashboard::access::sessions::{COOKIE_NAME, Sessions};
use crate::commands::dashboard::answer::Answer;
use crate::commands::dashboard::calls::howdah::Howdah;
use crate::commands::dashboard::calls::now::Now;
use crate::commands::dashboard::calls::{application, configuration, drain, recordings};
use crate::commands::dashboard::history::poller::seconds;
use crate::commands::dashboard::history::query::Query;
use crate::commands::dashboard::history::store::{MAX_SECONDS, Store};
use crate::commands::dashboard::server::page;
use crate::commands::dashboard::server::routes::{Call, NoCall};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use serde_json::json;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Everything that answers need.
#[derive(Debug)]
pub struct Service {
    /// The howdah that is shown.
    pub howdah: Howdah,
    /// The browsers that have shown the token.
    pub sessions: Sessions,
    /// The names of this machine beside `localhost` and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// The present state.
    pub now: Now,
    /// The last hours.
    pub history: Mutex<Store>,
}

/// The most bytes of a body: a configuration of 4 MiB, as a JSON string.
const MAX_BODY_BYTES: usize = 9 << 20;
/// The most bytes of a token: any user of the machine may show one.
const MAX_TOKEN_BYTES: usize = 1024;
/// How long a browser may take for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

// === impl Service ===

impl Service {
    /// Answers a request.
    pub async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        match self.check(&head.method, head.uri.path(), &head.headers) {
            Ok(Checked::Page(answer)) => answer,
            Ok(Checked::Call(Call::History)) => self.history(head.uri.query().unwrap_or_default()),
            Ok(Checked::Call(call)) => match read(body, max_body_bytes(&call)).await {
                Ok(body) => self.call(call, &head.headers, &body).await.unwrap_or_else(|refusal| refusal),
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        }
    }

    /// Whether the request is answered. Nothing of its body is read before that.
    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Checked, Answer> {
        let forbidden = |reason: &str| Answer::error(StatusCode::FORBIDDEN, reason);
        if *method == Method::GET
            && let Some(answer) = page::file(path)
        {
            origin::check(headers, Effect::Page, &self.allowed_hosts).map_err(forbidden)?;
            return Ok(Checked::Page(answer));
        }
        // First: a stranger learns nothing else.
        origin::check(headers, Effect::Read, &self.allowed_hosts).map_err(forbidden)?;
        let call = Call::parse(method, path).map_err(|problem| match problem {
            NoCall::NotFound => Answer::error(StatusCode::NOT_FOUND, "the dashboard has no such page"),
            NoCall::WrongMethod => {
                Answer::error(StatusCode::METHOD_NOT_ALLOWED, "the dashboard does not answer this method here")
            }
        })?;
        origin::check(headers, call.effect(), &self.allowed_hosts).map_err(forbidden)?;
        if call != Call::LogIn && !self.sessions.has(headers) {
            let reason = "this browser has no session: open the URL that howdah dashboard has printed, with its token";
            return Err(Answer::error(StatusCode::UNAUTHORIZED, reason));
        }
        if self.read_only && call.changes_howdah() {
            return Err(forbidden("the dashboard is read-only: it was started with --read-only"));
        }
        Ok(Checked::Call(call))
    }

    async fn call(&self, call: Call, headers: &HeaderMap, body: &[u8]) -> Result<Answer, Answer> {
        let howdah = &self.howdah;
        match call {
            Call::LogIn => self.log_in(body),
            Call::LogOut => {
                self.sessions.close(headers);
                Ok(Answer::json(&json!({})))
            }
            Call::About => Ok(self.about()),
            Call::History => Ok(self.history("")),
            Call::Now => Ok(Answer::json(&self.now.read(howdah).await)),
            Call::Workers(name) => application::workers(howdah, &name).await,
            Call::Slow(name) => application::slow(howdah, &name).await,
            Call::Stack(name) => recordings::stack(howdah, &name, body).await,
            Call::Profile(name) => recordings::profile(howdah, &name, body).await,
            Call::Leaks(name) => recordings::leaks(howdah, &name, body).await,
            Call::Restart(name) => application::restart(howdah, &name).await,
            Call::Configuration => configuration::read(howdah).await,
            Call::CheckConfiguration => Ok(configuration::check(body)),
            Call::ApplyConfiguration => configuration::apply(howdah, body).await,
            Call::Schema => Ok(Answer::file("application/json", howdah_config::SCHEMA.as_bytes())),
            Call::Certificates => configuration::certificates(howdah).await,
            Call::Drain => drain::drain(howdah, body).await,
        }
    }

    fn about(&self) -> Answer {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let (place, is_kept) = match history.place() {
            Ok(folder) => (folder.display().to_string(), true),
            Err(reason) => (reason.to_owned(), false),
        };
        Answer::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "control": self.howdah.address(),
            "read_only": self.read_only,
            "history": { "place": place, "is_kept": is_kept, "hours": MAX_SECONDS / 3600 },
        }))
    }

    fn history(&self, query: &str) -> Answer {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        Answer::json(&Query::parse(query).answer(&history, seconds()))
    }

    fn log_in(&self, body: &[u8]) -> Result<Answer, Answer> {
        let token = std::str::from_utf8(body).unwrap_or_default();
        let internal = |reason: String| Answer::error(StatusCode::INTERNAL_SERVER_ERROR, &reason);
        let Some(session) = self.sessions.open(token).map_err(internal)? else {
            tracing::warn!("a browser has shown a wrong token");
            let reason = "this is not the token of the running howdah dashboard; open the URL that it has printed";
            return Err(Answer::error(StatusCode::UNAUTHORIZED, reason));
        };
        let cookie = format!("{COOKIE_NAME}={}; Path=/api; HttpOnly; SameSite=Strict", session.cookie.text());
        Ok(Answer::json(&json!({ "key": session.key.text() })).with_cookie(cookie))
    }
}

/// A request that is answered.
enum Checked {
    Page(Answer),
    Call(Call),
}

fn max_body_bytes(call: &Call) -> usize {
    if *call == Call::LogIn { MAX_TOKEN_BYTES } else { MAX_BODY_BYTES }
}

async fn read<B>(body: B, max_bytes: usize) -> Result<Bytes, Answer>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    match timeout(BODY_TIMEOUT, Limited::new(body, max_bytes).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => {
            let reason = format!("the body did not end, or has more than {max_bytes} bytes");
            Err(Answer::error(StatusCode::PAYLOAD_TOO_LARGE, &reason))
        }
        Err(_) => Err(Answer::error(StatusCode::REQUEST_TIMEOUT, "the body did not come")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_client::connection::tests::api;
    use http_body_util::Full;
    use hyper::header::{COOKIE, HOST, ORIGIN, SET_COOKIE};

    const OWN: &str = "http://127.0.0.1:8088";

    fn service(read_only: bool) -> Service {
        let api =
            api(vec![("/config", (200, "{}")), ("/control/applications/shop/restart", (200, r#"{"success": "Ok"}"#))]);
        Service {
            howdah: Howdah::new(api),
            sessions: Sessions::new().unwrap(),
            allowed_hosts: Vec::new(),
            read_only,
            now: Now::default(),
            history: Mutex::new(Store::open(Err("none".to_owned()), 1000, 0)),
        }
    }

    fn ask(service: &Service, request: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, Option<String>) {
        let (method, path) = request.split_once(' ').unwrap();
        let mut built = Request::builder().method(method).uri(path).header(HOST, "127.0.0.1:8088");
        for (name, value) in headers {
            built = built.header(*name, *value);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let request = built.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = runtime.block_on(service.answer(request)).into_response();
        let cookie = response.headers().get(SET_COOKIE).map(|value| value.to_str().unwrap().to_owned());
        assert!(response.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
        let (head, body) = response.into_parts();
        let body = runtime.block_on(body.collect()).unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap(), cookie)
    }

    /// The headers of a session.
    fn log_in(service: &Service) -> [(String, String); 2] {
        let (status, body, cookie) = ask(service, "POST /api/login", &[("origin", OWN)], service.sessions.token());
        let cookie = cookie.unwrap();
        assert!(status == 200 && cookie.ends_with("; Path=/api; HttpOnly; SameSite=Strict"), "{cookie}");
        let key: serde_json::Value = serde_json::from_str(&body).unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        [(COOKIE.to_string(), cookie), ("x-howdah-key".to_owned(), key["key"].as_str().unwrap().to_owned())]
    }

    #[test]
    fn data_needs_a_session_and_the_page_needs_none() {
        let service = service(false);
        assert_eq!(ask(&service, "GET /", &[], "").0, 200);
        assert_eq!(ask(&service, "GET /app.js", &[], "").0, 200);
        assert_eq!(ask(&service, "GET /api/config", &[], "").0, 401);
        assert_eq!(ask(&service, "POST /api/login", &[("origin", OWN)], "guessed").0, 401);
        assert_eq!(ask(&service, "POST /api/login", &[("origin", OWN)], &"x".repeat(1025)).0, 413);
        assert_eq!(ask(&service, "POST /api/login", &[], service.sessions.token()).0, 403);
        let session = log_in(&service);
        let [cookie, key] = session.each_ref().map(|(name, value)| (name.as_str(), value.as_str()));
        assert_eq!(ask(&service, "GET /api/config", &[cookie, key], "").0, 200);
        assert_eq!(ask(&service, "GET /api/config", &[cookie], "").0, 401);
        assert_eq!(ask(&service, "GET /api/config", &[key], "").0, 401);
        assert_eq!(ask(&service, "GET /api/config", &[cookie, key, ("origin", "http://evil.example")], "").0, 403);
        let (restart, own) = ("POST /api/applications/shop/restart", (ORIGIN.as_str(), OWN));
        assert_eq!(ask(&service, restart, &[cookie, key], "").0, 403);
        assert_eq!(ask(&service, restart, &[cookie, key, own], "").0, 200);
        assert_eq!(ask(&service, "POST /api/logout", &[cookie, key, own], "").0, 200);
        assert_eq!(ask(&service, "GET /api/config", &[cookie, key], "").0, 401);
    }

    #[test]
    fn a_read_only_dashboard_changes_nothing() {
        let service = service(true);
        let session = log_in(&service);
        let [cookie, key] = session.each_ref().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = [cookie, key, (ORIGIN.as_str(), OWN)];
        assert_eq!(ask(&service, "GET /api/config", &headers, "").0, 200);
        assert_eq!(ask(&service, "POST /api/config/check", &headers, "{}").1, r#"{"valid":true,"warnings":[]}"#);
        for change in ["POST /api/applications/shop/restart", "PUT /api/config", "POST /api/drain"] {
            let (status, body, _) = ask(&service, change, &headers, "{}");
            assert!(status == 403 && body.contains("--read-only"), "{change}: {body}");
        }
    }

    #[test]
    fn an_error_of_a_configuration_has_its_position() {
        let service = service(false);
        let session = log_in(&service);
        let [cookie, key] = session.each_ref().map(|(name, value)| (name.as_str(), value.as_str()));
        let (_, body, _) =
            ask(&service, "POST /api/config/check", &[cookie, key, ("origin", OWN)], "{\n \"rutes\": []}");
        assert!(body.contains(r#""line":2"#) && body.contains(r#""valid":false"#), "{body}");
    }
}
