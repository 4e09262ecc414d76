//! The control API's socket: HTTP/1.1, one request for each connection, on a unix socket or a loopback port.
//!
//! Both are only for howdah's user and root. A unix socket's file is 0600, and the kernel names the user at the other
//! end; on a port, the kernel's tables do. Each request goes to the event loop as a [`ControlRequest`]. A connection
//! that cannot be accepted is logged, and the next one is awaited.

use crate::api::answer::ApiAnswer;
use crate::api::request::ControlRequest;
use crate::os::tcp_peers;
use howdah_config::{Address, Refusal};
use howdah_metrics::exposition::format;
use howdah_protocol::sockets::refused_descriptors::close_elsewhere;
use howdah_protocol::sockets::tcp_peer::is_reset;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, ETAG, HOST, HeaderMap, HeaderValue, IF_MATCH, ORIGIN, SERVER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// The most bytes of a body: a configuration that is longer is refused by its parser anyway.
const MAX_BODY_BYTES: u64 = 16 << 20;
/// How long a client may take for a head, and for a body.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a client of a port is looked up.
const LOOKUP_ATTEMPTS: u32 = 2;
/// How many clients of a port are accepted and not yet looked up.
const LOOKUPS: usize = 4;

/// A socket that listens.
#[derive(Debug)]
pub enum ControlListener {
    /// On a unix socket.
    Unix(UnixListener),
    /// On a loopback port.
    Tcp(TcpListener),
}

/// Which programs reach a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Programs that open files: no browser.
    File,
    /// All programs on the machine, including browsers.
    Port,
}

/// The client at the other end.
struct Client(Option<AsyncFd<OwnedFd>>);

// === impl ControlListener ===

impl ControlListener {
    /// Takes a socket that listens on this address.
    ///
    /// # Errors
    /// When it cannot be watched, or no thread can be started.
    pub fn new(socket: OwnedFd, address: &Address) -> io::Result<ControlListener> {
        Ok(match address {
            Address::Tcp(_) => {
                tcp_peers::start()?;
                ControlListener::Tcp(TcpListener::from_std(socket.into())?)
            }
            Address::Unix(_) | Address::Abstract(_) => ControlListener::Unix(UnixListener::from_std(socket.into())?),
        })
    }

    /// Accepts and serves without end.
    pub async fn serve(self, requests: mpsc::UnboundedSender<ControlRequest>) {
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        loop {
            let accepted = match &self {
                ControlListener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                    if is_trusted(&stream) {
                        tokio::spawn(serve(stream, requests.clone(), Reach::File));
                    } else if let Ok(stream) = stream.into_std() {
                        close_refused(stream);
                    }
                }),
                ControlListener::Tcp(listener) => {
                    // Before that, a client waits in the backlog: any user may connect, and must not take our descriptors.
                    let Ok(turn) = Arc::clone(&lookups).acquire_owned().await else { return };
                    listener.accept().await.map(|(stream, peer)| {
                        let requests = requests.clone();
                        tokio::spawn(async move {
                            let is_trusted = is_trusted_on_port(&stream, peer).await;
                            drop(turn);
                            if is_trusted {
                                serve(stream, requests, Reach::Port).await;
                            }
                        });
                    })
                }
            };
            if let Err(error) = accepted {
                tracing::warn!("the control socket cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

// === impl Client ===

impl Client {
    /// A client that cannot be watched counts as connected.
    fn of(stream: &impl AsFd) -> Client {
        let own = stream.as_fd().try_clone_to_owned();
        #[expect(
            deprecated,
            reason = "its successor is unsafe; an OwnedFd names the same descriptor as long as it lives"
        )]
        let watched = own.and_then(AsyncFd::new);
        Client(watched.ok())
    }

    /// Waits until the client has closed its connection. A client that only has no more to send is still connected. The
    /// end of a TCP connection is noticed at the next write.
    async fn left(&self) {
        let Some(stream) = &self.0 else { return std::future::pending().await };
        while let Ok(mut guard) = stream.ready(Interest::WRITABLE).await
            && !guard.ready().is_write_closed()
        {
            guard.clear_ready();
        }
    }
}

/// Whether root or the user who runs howdah is at the other end.
fn is_trusted(stream: &tokio::net::UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| is_trusted_user(peer.uid()))
}

/// Closes the connection of a client that is not trusted. With an older kernel, what it has sent may have descriptors.
fn close_refused(stream: std::os::unix::net::UnixStream) {
    let takes_no_more = stream.shutdown(Shutdown::Read).is_ok();
    let is_empty = takes_no_more && rustix::io::ioctl_fionread(&stream).is_ok_and(|bytes| bytes == 0);
    if !is_empty {
        close_elsewhere(stream);
    }
}

fn is_trusted_user(user: u32) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    let is_trusted = user == 0 || user == ours;
    if !is_trusted {
        tracing::warn!("the control socket refused user id {user}; only root and {ours} may use it");
    }
    is_trusted
}

/// The same for a port. A client that the kernel's tables do not show is refused. They are read in pieces, so that one
/// look-up may miss it.
async fn is_trusted_on_port(stream: &TcpStream, peer: SocketAddr) -> bool {
    let Ok(own) = stream.local_addr() else { return false };
    for _ in 0..LOOKUP_ATTEMPTS {
        let user = tcp_peers::user_of(peer, own).await;
        // The port of a client that has closed its connection may belong to another one.
        if let Some(user) = user.filter(|_| !is_reset(stream)) {
            return is_trusted_user(user);
        }
        if has_closed(stream) {
            tracing::debug!(%peer, "a client of the control socket has closed its connection at once");
            return false;
        }
    }
    tracing::warn!(%peer, "the control socket refused a client whose user is not known");
    false
}

/// Whether the peer has closed its connection, as health checks do: it sends no more, and no process holds its end.
fn has_closed(stream: &TcpStream) -> bool {
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut polled = [PollFd::new(stream, closed)];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().intersects(closed)
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + AsFd + Unpin,
    requests: mpsc::UnboundedSender<ControlRequest>,
    reach: Reach,
) {
    let client = Arc::new(Client::of(&stream));
    let service = service_fn(|request| {
        let (requests, client) = (requests.clone(), client.clone());
        async move { Ok::<_, Infallible>(response(answer(request, &requests, &client, reach).await)) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        .keep_alive(false)
        // Some clients shut down their side at once: socat, nc -N.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("a connection to the control socket ended early: {error}");
    }
}

async fn answer(
    request: Request<Incoming>,
    requests: &mpsc::UnboundedSender<ControlRequest>,
    client: &Client,
    reach: Reach,
) -> ApiAnswer {
    let (head, body) = request.into_parts();
    if is_of_a_web_page(&head.headers, reach) {
        let detail = "a web page may not use the control API; ask with curl or howdah, for localhost or an IP address";
        return Refusal::new(403, "Forbidden.", detail).into();
    }
    if reach == Reach::Port && head.method == Method::GET && head.uri.path().starts_with("/control/") {
        let detail = "a GET on a port changes nothing, because links and pictures of a page are GETs; use POST";
        return Refusal::new(405, howdah_config::answer::text::INVALID_METHOD, detail).into();
    }
    let body = match tokio::time::timeout(READ_TIMEOUT, read(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) => return refusal.into(),
        Err(_) => return Refusal::new(408, "Request Timeout.", "the body did not come").into(),
    };
    let (sender, reply) = oneshot::channel();
    let request = ControlRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        if_match: if_match(&head.headers),
        format: format::accepted(&accept(&head.headers)),
        body,
        reply: sender,
    };
    let ended = || Refusal::new(503, "howdah is shutting down.", "it takes no more changes").into();
    let needs_client = request.needs_client();
    if requests.send(request).is_err() {
        return ended();
    }
    let answer = async { reply.await.ok()?.answer().await };
    tokio::select! {
        answer = answer => answer.unwrap_or_else(ended),
        // The client has left. The supervisor notices that the receiver of its reply is closed.
        () = client.left(), if needs_client => ended(),
    }
}

/// Whether a browser asks for a page that it shows. A page can ask for any port of the machine that it is shown on, under
/// a name of its own, too (DNS rebinding); but it cannot choose the `Host`, nor leave out what browsers add: `Origin`, or,
/// for pictures and the like, `Sec-Fetch-Site`, which is `none` for what the user has typed.
fn is_of_a_web_page(headers: &HeaderMap, reach: Reach) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_foreign = !matches!(site, None | Some(b"none" | b"same-origin"));
    headers.contains_key(ORIGIN) || is_foreign || (reach == Reach::Port && has_a_name(headers))
}

/// Whether it asks for a host by a name that another party may have given to this machine.
fn has_a_name(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).to_ascii_lowercase());
    let host = host.unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host.as_str(), |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { &host }
    });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    !(name.is_empty() || name == "localhost" || bare.parse::<IpAddr>().is_ok())
}

/// The whole body. A body that is too long is read to its end as well: a client reads no answer while it sends.
async fn read(mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let mut length = 0_u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::new(400, "Invalid request.", "the body ended early"))?;
        let data = frame.into_data().unwrap_or_default();
        length += data.len() as u64;
        match length <= MAX_BODY_BYTES {
            true => bytes.extend_from_slice(&data),
            false => bytes = Vec::new(),
        }
    }
    if length > MAX_BODY_BYTES {
        let detail = format!("the body has {length} bytes; at most {MAX_BODY_BYTES} are accepted");
        return Err(Refusal::new(413, "Payload Too Large.", detail));
    }
    Ok(bytes)
}

/// The header `If-Match`: several are one, with commas between (RFC 9110, 5.3).
fn if_match(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(IF_MATCH).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    values.map(String::from).reduce(|all, value| format!("{all}, {value}"))
}

/// The header `Accept`, all of them together.
fn accept(headers: &HeaderMap) -> String {
    let values: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

fn response(answer: ApiAnswer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body.into()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(SERVER, HeaderValue::from_static(concat!("howdah/", env!("CARGO_PKG_VERSION"))));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Some(etag) = answer.etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) {
        headers.insert(ETAG, etag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_has_closed_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(!has_closed(&accepted));
        client.try_write(b"x").unwrap();
        drop(client);
        while !has_closed(&accepted) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_web_page_is_known_by_its_headers() {
        use Reach::{File, Port};
        type Case = (Reach, &'static str, &'static [(&'static str, &'static str)], bool);
        let table: [Case; _] = [
            (Port, "localhost", &[], false),
            (Port, "localhost:8081", &[], false),
            (Port, "127.0.0.1:8081", &[], false),
            (Port, "[::1]:8081", &[], false),
            (Port, "", &[], false),
            (Port, "evil.example", &[], true),
            (Port, "evil.example:8081", &[], true),
            // Scripts for Unit write any name there: a socket has none.
            (File, "unit", &[], false),
            (File, "unit", &[("origin", "http://evil.example")], true),
            (Port, "localhost", &[("origin", "http://evil.example")], true),
            (Port, "localhost", &[("origin", "null")], true),
            (Port, "localhost", &[("sec-fetch-site", "cross-site")], true),
            (Port, "127.0.0.1:8081", &[("sec-fetch-site", "same-site")], true),
            (Port, "localhost", &[("sec-fetch-site", "none")], false),
            (Port, "localhost", &[("sec-fetch-site", "same-origin")], false),
        ];
        for (reach, host, more, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            for (name, value) in more {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(is_of_a_web_page(&headers, reach), expected, "{host} {more:?}");
        }
    }
}
