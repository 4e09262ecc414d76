//! The first requests of a generation: the supervisor orders them, before any configuration names the generation.
//!
//! One thread sends them, one after the other, as GET requests from 127.0.0.1, with the CGI variables of any request and
//! `HOWDAH_WARM_UP=1`. The workers of a generation share one opcache, so each request is sent once, and any worker may
//! run it. In worker mode each worker keeps the application in its own memory: the request is sent again, as often as there
//! are workers and at the same time, until each of them has run it, or [`EACH_WORKER`] is over. A repeated request that no
//! worker takes in time is no failure.
//!
//! Warm-up requests are neither logged nor counted. The thread keeps its port until a configuration names the
//! generation or the supervisor drops the generation: a generation gives each thread its eventfd only once.
//!
//! A status of 500 or more, a worker that dies, a response that breaks off and a timeout make the warm-up fail:
//! the supervisor receives the reason. Any other status of 400 or more is logged as a warning: then the URI is probably
//! wrong, not the application.

use crate::backends::cgi;
use crate::backends::php::generation::SharedGeneration;
use crate::backends::php::port::{self, CancelOnDrop, GenerationPort, Remainder, RunningRequest};
use crate::backends::php::run::kind_of;
use crate::backends::script::{Resolved, find_script};
use crate::net::peer::Peer;
use crate::report::{Panicked, SupervisorLink, contained};
use crate::request::authority;
use crate::request::path::RequestPath;
use crate::request::subject::{Origin, Subject};
use crate::response::failure::Failure;
use howdah_channel::WorkerId;
use howdah_channel::request::{RequestHeadWriter, code};
use howdah_channel::response;
use howdah_config::Scheme;
use howdah_protocol::messages::router::FromRouter;
use howdah_protocol::messages::warm_up::{LONGEST_WARM_UP, WarmUpRequest};
use http::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet, spawn_local};
use tokio::time::timeout;

/// The supervisor's order to warm a generation up.
pub struct WarmUpOrder {
    /// The generation.
    pub generation: Arc<SharedGeneration>,
    /// The requests, in order.
    pub requests: Vec<WarmUpRequest>,
    /// Whether each worker must run them.
    pub each_worker: bool,
    /// Receives the result.
    pub supervisor: SupervisorLink,
}

/// A warm-up. Dropping it cancels it, and releases the port.
pub struct Warming {
    #[expect(dead_code, reason = "kept until a configuration names the generation")]
    port: Rc<GenerationPort>,
    task: AbortHandle,
}

/// The answer to a warm-up request that has not failed.
struct Warmed {
    status: StatusCode,
    /// The worker that ran it, and the port to its pool.
    worker: Option<(Rc<GenerationPort>, WorkerId)>,
}

/// How long all workers may take to run the requests. A worker that has not run one by then is used nevertheless.
const EACH_WORKER: Duration = Duration::from_secs(20);
/// How often a request is sent to as many workers as there are. A quick worker may run it several times.
const ROUNDS: usize = 4;
const CLIENT: &str = "127.0.0.1";
const AGENT: HeaderValue = HeaderValue::from_static("howdah (warm-up)");
/// The longest URI that a message shows whole, in characters.
const URI_CHARS: usize = 200;

// === impl Warming ===

impl Warming {
    /// Begins a warm-up on this thread.
    pub fn begin(port: Rc<GenerationPort>, order: WarmUpOrder) -> Warming {
        let task = spawn_local(carry_out(Rc::clone(&port), order)).abort_handle();
        Warming { port, task }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry_out(port: Rc<GenerationPort>, order: WarmUpOrder) {
    let mut current = None;
    let all = async {
        let mut warm = Vec::new();
        for request in &order.requests {
            current = Some(request);
            let first = judge(request, answer(&port, request).await)?;
            if first.status.is_client_error() {
                warn(&port, request, first.status);
            }
            warm.push(first.worker);
        }
        if order.each_worker {
            let each = async {
                for (request, warm) in order.requests.iter().zip(warm) {
                    current = Some(request);
                    let Some((pool, worker)) = warm else { continue };
                    warm_each_worker(&port, &pool, request, BTreeSet::from([worker.index])).await?;
                }
                Ok(())
            };
            return timeout(EACH_WORKER, each).await.unwrap_or(Ok(()));
        }
        Ok(())
    };
    let result = contained(pin!(timeout(LONGEST_WARM_UP, all))).await;
    let name = || current.map(name).unwrap_or_default();
    let result = match result {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => {
            Err(format!("{} had no answer when the warm-up had taken {} s", name(), LONGEST_WARM_UP.as_secs()))
        }
        Err(Panicked) => Err(format!("{} met a bug of howdah; the log has a line about it", name())),
    };
    order.supervisor.send(&FromRouter::WarmUpEnded { generation: port.generation.id, failure: result.err() });
}

/// Sends a request until each worker of the pool that runs it has done that. These have.
async fn warm_each_worker(
    port: &Rc<GenerationPort>,
    pool: &Rc<GenerationPort>,
    request: &WarmUpRequest,
    mut warm: BTreeSet<u16>,
) -> Result<(), String> {
    for _ in 0..ROUNDS {
        let workers = pool.generation.living_workers();
        if warm.len() >= workers {
            break;
        }
        let mut round = JoinSet::new();
        for _ in 0..workers {
            let (port, request) = (Rc::clone(port), request.clone());
            round.spawn_local(async move {
                match answer(&port, &request).await {
                    Err(Failure::Unavailable { .. }) => Ok(None),
                    answered => judge(&request, answered).map(|warmed| warmed.worker),
                }
            });
        }
        while let Some(checked) = round.join_next().await {
            let checked = checked.map_err(|_| format!("{} met a bug of howdah", name(request)))?;
            warm.extend(checked?.map(|(_, worker)| worker.index));
        }
    }
    Ok(())
}

fn warn(port: &GenerationPort, request: &WarmUpRequest, status: StatusCode) {
    tracing::warn!(
        "the warm-up request {} of {:?} was answered {}: is it what you meant?",
        name(request),
        port.generation.application,
        status.as_u16()
    );
}

/// Decides whether the warm-up has failed.
fn judge(request: &WarmUpRequest, answered: Result<Warmed, Failure>) -> Result<Warmed, String> {
    let name = name(request);
    match answered {
        Ok(Warmed { status, .. }) if status.is_server_error() => {
            Err(format!("{name} was answered {}", status.as_u16()))
        }
        Ok(warmed) => Ok(warmed),
        Err(Failure::GatewayTimeout) => Err(format!("{name} took longer than \"limits/timeout\" allows")),
        Err(Failure::WorkerDied { .. } | Failure::BadGateway) => {
            Err(format!("the worker that ran {name} ended before it had answered"))
        }
        Err(failure) => Err(format!("{name} was answered {}", failure.status().as_u16())),
    }
}

/// Sends a request to PHP, and reads its response to the end. See [`crate::backends::php::run`].
async fn answer(port: &Rc<GenerationPort>, request: &WarmUpRequest) -> Result<Warmed, Failure> {
    let without_worker = |status| Ok(Warmed { status, worker: None });
    let paths = &port.generation.paths;
    let target = paths.target(request.target.as_deref()).ok_or(Failure::Internal)?;
    let parts = parts(request)?;
    let peer = peer(request);
    let mut origin = Origin::of(&peer, None, &parts, Instant::now());
    origin.scheme = if request.https { Scheme::Https } else { Scheme::Http };
    let Ok(host) = authority::host(&parts) else { return without_worker(StatusCode::BAD_REQUEST) };
    let Ok(path) = RequestPath::normalise(parts.uri.path()) else {
        return without_worker(StatusCode::BAD_REQUEST);
    };
    let subject = Subject::new(&parts, &peer, &origin, &host, path);
    let (port, script) = match port.script_of_path(subject.path.bytes()) {
        Some(found) => found,
        None => match find_script(&port.script_files, target, subject.path.bytes()).await? {
            Resolved::Script(script) => (port.port_of_script(&script), script),
            Resolved::Folder => return without_worker(StatusCode::MOVED_PERMANENTLY),
            Resolved::Nothing => return without_worker(StatusCode::NOT_FOUND),
            Resolved::Forbidden(_) => return without_worker(StatusCode::FORBIDDEN),
        },
    };
    let write_head = |head: &mut RequestHeadWriter| {
        cgi::write(head, &subject, &port.generation.server_software, &target.root, &script, None);
        // It must be the last variable: the worker looks only at that one.
        head.known(code::HOWDAH_WARM_UP, b"1");
    };
    let wait = port.admit(&parts.uri, kind_of(&subject, &script)).await?;
    let running = port::submit(port, write_head, b"", Remainder::None, None, wait).await?;
    let request = CancelOnDrop { port: Rc::clone(port), running };
    let started = port::head(port, &request.running, |_| {}).await?;
    let (head, _) = response::parse(&started.bytes).ok().flatten().ok_or(Failure::BadGateway)?;
    let status = StatusCode::from_u16(head.status).map_err(|_| Failure::BadGateway)?;
    if !started.complete {
        read_to_end(port, &request.running).await?;
    }
    let worker = request.running.worker().map(|worker| (Rc::clone(port), worker));
    Ok(Warmed { status, worker })
}

/// A response that breaks off is a failure.
async fn read_to_end(port: &Rc<GenerationPort>, running: &Rc<RunningRequest>) -> Result<(), Failure> {
    while let Some(piece) = poll_fn(|context| port::poll_body(port, running, context)).await {
        piece.map_err(|_| Failure::BadGateway)?;
    }
    Ok(())
}

fn parts(request: &WarmUpRequest) -> Result<Parts, Failure> {
    let uri = request.uri.parse().map_err(|_| Failure::BadRequest("the warm-up's URI"));
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.uri = uri?;
    let bad = |_| Failure::BadRequest("the warm-up's headers");
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(&request.host).map_err(|_| bad(()))?);
    headers.insert(USER_AGENT, AGENT);
    for (name, value) in &request.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(()))?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad(()))?;
        headers.try_insert(name, value).map_err(|_| Failure::HeadTooLarge)?;
    }
    parts.headers = headers;
    Ok(parts)
}

fn peer(request: &WarmUpRequest) -> Peer {
    Peer {
        remote_addr: CLIENT.into(),
        remote_port: "0".into(),
        server_addr: CLIENT.into(),
        server_port: if request.https { "443" } else { "80" }.into(),
        ..Peer::of_unix_socket(CLIENT, 0)
    }
}

fn name(request: &WarmUpRequest) -> String {
    let mut name: String = request.uri.chars().take(URI_CHARS).collect();
    if name.len() < request.uri.len() {
        name.push_str("...");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str) -> WarmUpRequest {
        WarmUpRequest {
            target: None,
            uri: uri.to_owned(),
            host: "shop:80".to_owned(),
            https: true,
            headers: vec![("X-A".to_owned(), "ä".to_owned()), ("User-Agent".to_owned(), "mine".to_owned())],
        }
    }

    #[test]
    fn a_warm_up_request_looks_like_one_of_a_client() {
        let parts = parts(&request("/a?b=c")).unwrap();
        assert_eq!((parts.method.as_str(), parts.uri.query()), ("GET", Some("b=c")));
        assert_eq!(authority::host(&parts), Ok("shop".to_owned()));
        assert_eq!(parts.headers["x-a"].as_bytes(), "ä".as_bytes());
        assert_eq!(parts.headers[USER_AGENT], "mine");
        assert_eq!(peer(&request("/")).server_port, "443");
    }

    #[test]
    fn every_uri_that_a_configuration_may_have_is_valid() {
        for uri in ["/", "/a[b]", "/~x/?a=b&c[]=1;d?e", "/%C3%A4!$'()*+,:@", "//x"] {
            assert!(parts(&request(uri)).is_ok(), "{uri}");
        }
    }

    #[test]
    fn a_long_uri_is_shortened() {
        assert_eq!(name(&request("/x")), "/x");
        assert_eq!(name(&request(&"/x".repeat(500))).len(), URI_CHARS + 3);
    }
}
