//! Sends requests when they are due, whatever the server does with the earlier ones (an open loop).
//!
//! A client that waits for a response before its next request slows down with the server and hides the server's worst
//! moments ("coordinated omission", Gil Tene). Here a request's time counts from the moment at which it was due, not from
//! the moment at which a connection was free. Connections are reused, the last used first. If none is free, a new one is
//! opened, up to a limit; at the limit requests wait here, and the wait counts.

use super::schedule::{Page, RateStep, choose, moments};
use super::tally::{Outcome, Tally};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until};

/// The requests to send.
#[derive(Clone, Debug)]
pub struct Load {
    /// The rates, one step after the other.
    pub steps: Vec<RateStep>,
    /// The pages, with their weights.
    pub pages: Vec<Page>,
    /// A unix socket for all requests, instead of the hosts of their URLs.
    pub socket: Option<PathBuf>,
    /// The limit of connections.
    pub connections: usize,
    /// A response 200 without this text is wrong.
    pub expected: Option<String>,
    /// The timeout of a request.
    pub timeout: Duration,
}

/// The port of a URL without one.
const HTTP_PORT: u16 = 80;

type Sender = SendRequest<Empty<Bytes>>;

struct Client {
    load: Load,
    uris: Vec<Uri>,
    /// Free connections, by their authority.
    free: RefCell<HashMap<String, Vec<Sender>>>,
    allowed: Semaphore,
    start: Instant,
    tally: RefCell<Tally>,
}

/// Sends all requests, and waits for their responses.
///
/// # Errors
/// A page's URL is not valid.
pub async fn run(load: Load) -> Result<Tally, String> {
    let uris = load.pages.iter().map(|page| page.url.parse().map_err(|error| format!("{:?}: {error}", page.url)));
    let client = Rc::new(Client {
        uris: uris.collect::<Result<_, _>>()?,
        free: RefCell::default(),
        allowed: Semaphore::new(load.connections),
        start: Instant::now(),
        tally: RefCell::default(),
        load,
    });
    LocalSet::new()
        .run_until(async {
            let mut in_progress = JoinSet::new();
            for (number, due) in moments(&client.load.steps).enumerate() {
                let at = client.start + due;
                if at > Instant::now() {
                    sleep_until(at).await;
                } else if number % 16 == 0 {
                    // Late: the requests in progress need the processor, too.
                    tokio::task::yield_now().await;
                }
                in_progress.spawn_local(Rc::clone(&client).send(number as u64, due));
                while in_progress.try_join_next().is_some() {}
            }
            while in_progress.join_next().await.is_some() {}
        })
        .await;
    Ok(client.tally.take())
}

// === impl Client ===

impl Client {
    async fn send(self: Rc<Self>, number: u64, due: Duration) {
        let uri = &self.uris[choose(&self.load.pages, number)];
        let outcome = match tokio::time::timeout(self.load.timeout, self.exchange(uri)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(reason)) => Outcome::Lost(reason),
            Err(_) => Outcome::Lost("timeout"),
        };
        self.tally.borrow_mut().record(due, self.start.elapsed().saturating_sub(due), outcome);
    }

    async fn exchange(&self, uri: &Uri) -> Result<Outcome, &'static str> {
        let _permit = self.allowed.acquire().await.expect("never closed");
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let mut is_used = true;
        let mut sender = match self.free(&authority) {
            Some(sender) => sender,
            None => {
                is_used = false;
                connect(uri, self.load.socket.as_deref()).await?
            }
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        loop {
            let request = Request::get(path).header("host", &authority).body(Empty::new()).expect("a URI is a target");
            let response = async {
                sender.ready().await?;
                let response = sender.send_request(request).await?;
                let status = response.status().as_u16();
                Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
            };
            match response.await {
                Ok((status, body)) => {
                    self.free.borrow_mut().entry(authority).or_default().push(sender);
                    return Ok(self.judge(status, &body));
                }
                // The server closed the connection while it was free: no request is lost.
                Err(error) if is_used && (error.is_canceled() || error.is_closed()) => {
                    is_used = false;
                    sender = connect(uri, self.load.socket.as_deref()).await?;
                }
                Err(error) => return Err(loss(&error)),
            }
        }
    }

    fn free(&self, authority: &str) -> Option<Sender> {
        let mut free = self.free.borrow_mut();
        let free = free.get_mut(authority)?;
        std::iter::from_fn(|| free.pop()).find(|sender| !sender.is_closed())
    }

    fn judge(&self, status: u16, body: &[u8]) -> Outcome {
        let is_expected = |text: &String| body.windows(text.len().max(1)).any(|window| window == text.as_bytes());
        match status {
            200 if !self.load.expected.as_ref().is_none_or(is_expected) => Outcome::Wrong,
            status => Outcome::Status(status),
        }
    }
}

/// Connects to the unix socket, if there is one, else over TCP.
async fn connect(uri: &Uri, socket: Option<&Path>) -> Result<Sender, &'static str> {
    match socket {
        Some(path) => begin(UnixStream::connect(path).await.map_err(unconnected)?).await,
        None => {
            let stream = TcpStream::connect(address(uri)).await.map_err(unconnected)?;
            let _ = stream.set_nodelay(true);
            begin(stream).await
        }
    }
}

fn unconnected(error: io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "reset",
        // The backlog of a unix socket is full.
        io::ErrorKind::WouldBlock => "backlog full (EAGAIN)",
        _ => "no connection",
    }
}

async fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<Sender, &'static str> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| "no connection")?;
    tokio::task::spawn_local(async move {
        // Its errors are errors of the requests, too.
        let _ = connection.await;
    });
    Ok(sender)
}

fn address(uri: &Uri) -> (&str, u16) {
    (uri.host().unwrap_or_default().trim_matches(['[', ']']), uri.port_u16().unwrap_or(HTTP_PORT))
}

/// The reason why a connection gave no complete response.
fn loss(error: &hyper::Error) -> &'static str {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        _ if error.is_incomplete_message() => "cut off",
        _ if error.is_parse() => "malformed response",
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => "reset",
        // hyper's errors of bodies.
        Some(io::ErrorKind::UnexpectedEof) => "cut off",
        Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => "malformed response",
        _ => "connection lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers each request after the delay.
    async fn server(delay: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while stream.read(&mut buffer).await.is_ok_and(|len| len > 0) {
                        tokio::time::sleep(delay).await;
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await.unwrap();
                    }
                });
            }
        });
        format!("http://{address}/")
    }

    /// Closes each connection after this response; without one, before it has read the request, which resets the
    /// connection.
    async fn closing_server(response: Option<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.readable().await.unwrap();
                if let Some(response) = response {
                    let _ = stream.read(&mut [0; 4096]).await.unwrap();
                    stream.write_all(response.as_bytes()).await.unwrap();
                }
            }
        });
        format!("http://{address}/")
    }

    fn load(url: &str, connections: usize) -> Load {
        Load {
            steps: vec!["100:0.2".parse().unwrap()],
            pages: vec![url.parse().unwrap()],
            connections,
            socket: None,
            expected: Some("hello".into()),
            timeout: Duration::from_secs(5),
        }
    }

    #[test]
    fn a_url_without_a_port_is_of_port_80() {
        for (url, expected) in [
            ("http://localhost/", ("localhost", 80)),
            ("http://localhost:8080/a", ("localhost", 8080)),
            ("http://[::1]/", ("::1", 80)),
        ] {
            assert_eq!(address(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_slow_server_does_not_slow_the_load() {
        let url = server(Duration::from_millis(100)).await;
        let report = run(load(&url, 100)).await.unwrap().report();
        assert_eq!(report["outcomes"], serde_json::json!({"200": 20}));
        assert!(report["ok"]["p99"].as_f64().unwrap() < 1000.0, "{report}");
    }

    #[tokio::test]
    async fn the_wait_for_a_connection_counts() {
        let url = server(Duration::from_millis(50)).await;
        let report = run(load(&url, 1)).await.unwrap().report();
        // Twenty requests of 50 ms, one after the other: the last one was due after 190 ms.
        assert!(report["ok"]["max"].as_f64().unwrap() > 700.0, "{report}");
    }

    #[tokio::test]
    async fn each_failure_has_a_name() {
        let url = server(Duration::ZERO).await;
        let wrong = Load { expected: Some("bye".into()), ..load(&url, 10) };
        assert_eq!(run(wrong).await.unwrap().report()["outcomes"], serde_json::json!({"wrong": 20}));
        for (response, outcome) in [
            (Some(""), "cut off"),
            (Some("HTTP/1.1 200 OK\r\nContent-Le"), "cut off"),
            (Some("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"), "cut off"),
            (Some("220 mail.example ESMTP\r\n\r\n"), "malformed response"),
            (Some("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n"), "malformed response"),
        ] {
            let url = closing_server(response).await;
            let report = run(load(&url, 10)).await.unwrap().report();
            assert_eq!(report["outcomes"], serde_json::json!({ outcome: 20 }), "{response:?}");
        }
        // A reset may also arrive before the request is sent, or while the connection is shut down.
        let report = run(load(&closing_server(None).await, 10)).await.unwrap().report();
        let outcomes = report["outcomes"].as_object().unwrap();
        assert!(outcomes.keys().all(|name| ["reset", "connection lost"].contains(&name.as_str())), "{report}");
        assert_eq!(report["requests"], 20);
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let report = run(load(&format!("http://{closed}/"), 10)).await.unwrap().report();
        assert_eq!(report["outcomes"], serde_json::json!({"connection refused": 20}));
    }
}
