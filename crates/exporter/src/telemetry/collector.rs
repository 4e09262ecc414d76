//! A collector: one connection, and one request at a time, over HTTP (protocol buffers in a POST) or gRPC.
//!
//! A connection is kept for the next request. If the collector has closed it meanwhile, the request is sent once more over a
//! new one. A request has a limit of time, and an answer a limit of bytes.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest as Http2Sender;
use howdah_blocking_work::connect;
use howdah_config::{Telemetry, TelemetryProtocol};
use howdah_telemetry::messages::ExportResponse;
use howdah_telemetry::signal::Signal;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest as Http1Sender;
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// A collector.
pub struct Collector {
    settings: Telemetry,
    headers: HeaderMap,
    tls: Option<Arc<ClientConfig>>,
    connection: Option<Connection>,
}

/// Why a request has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It may succeed later.
    Away(String),
    /// It will not succeed.
    Refused(String),
}

enum Sender {
    Http1(Http1Sender<Full<Bytes>>),
    Http2(Http2Sender<Bytes>),
}

struct Connection {
    sender: Sender,
    /// The connection's own work.
    task: JoinHandle<()>,
}

/// The status of an answer, its body, and the status of gRPC with its message.
struct Answer {
    status: StatusCode,
    body: Bytes,
    grpc: Option<(i32, String)>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// How long a request may take, the connection included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An answer has some bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The head of an answer over gRPC has some headers; so have its trailers.
const MAX_HEAD_BYTES: u32 = 16 * 1024;
/// The longest reason of a collector in a log line.
const MAX_REASON_CHARS: usize = 200;
const AGENT: &str = concat!("OTel-OTLP-Exporter-howdah/", env!("CARGO_PKG_VERSION"));
/// The flag and the length before a message of gRPC.
const GRPC_PREFIX_BYTES: usize = 5;
/// The codes of gRPC after which a request is sent again (OTLP specification, "Failures").
const TEMPORARY_CODES: [i32; 7] = [1, 4, 8, 10, 11, 14, 15];

// === impl Collector ===

impl Collector {
    /// A collector with these headers, over TLS if there is a configuration for it.
    pub fn new(settings: &Telemetry, headers: &[(String, String)], tls: Option<Arc<ClientConfig>>) -> Collector {
        let header = |(name, value): &(String, String)| {
            let (name, mut value) = (name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?);
            value.set_sensitive(true);
            Some((name, value))
        };
        let headers = headers.iter().filter_map(header).collect();
        Collector { settings: settings.clone(), headers, tls, connection: None }
    }

    /// Sends a body. Returns how many spans or numbers of it the collector has refused.
    ///
    /// # Errors
    /// When it did not take the body.
    pub async fn send(&mut self, signal: Signal, body: &[u8]) -> Result<u64, Problem> {
        let answer = tokio::time::timeout(TIMEOUT, self.exchange(signal, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
        let judged = answer.map_err(Problem::Away).and_then(|answer| answer.judge(self.settings.protocol));
        if judged.is_err() {
            self.connection = None;
        }
        judged
    }

    async fn exchange(&mut self, signal: Signal, body: &[u8]) -> Result<Answer, String> {
        if let Some(mut connection) = self.connection.take()
            && let Ok(answer) = connection.exchange(self.request(signal), body).await
        {
            self.connection = Some(connection);
            return Ok(answer);
        }
        let mut connection = self.connect().await?;
        let answer = connection.exchange(self.request(signal), body).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn request(&self, signal: Signal) -> Request<()> {
        let url = &self.settings.endpoint;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        request.headers_mut().extend(self.headers.clone());
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let (path, content_type) = match (self.settings.protocol, signal) {
            (TelemetryProtocol::Grpc, signal) => {
                request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
                let scheme = if url.is_https { "https" } else { "http" };
                (format!("{scheme}://{}{}", url.authority(), signal.method()), "application/grpc")
            }
            (TelemetryProtocol::Http, Signal::Traces) => (url.traces_path(), "application/x-protobuf"),
            (TelemetryProtocol::Http, Signal::Metrics) => {
                (url.metrics_path().unwrap_or_default(), "application/x-protobuf")
            }
            (TelemetryProtocol::Http, Signal::Logs) => (url.logs_path().unwrap_or_default(), "application/x-protobuf"),
        };
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if self.settings.protocol == TelemetryProtocol::Http
            && let Ok(host) = HeaderValue::from_str(&url.authority())
        {
            request.headers_mut().insert(HOST, host);
        }
        // The configuration has checked the URL.
        *request.uri_mut() = path.parse().unwrap_or_default();
        request
    }

    async fn connect(&self) -> Result<Connection, String> {
        let url = &self.settings.endpoint;
        let (host, authority) = (url.host.as_str(), url.authority());
        let stream =
            connect(host, url.port).await.map_err(|error| format!("cannot connect to {authority}: {error}"))?;
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => {
                let server = ServerName::try_from(host.to_owned());
                let server = server.map_err(|_| format!("{host} is not the name of a server"))?;
                let shaken = TlsConnector::from(Arc::clone(tls)).connect(server, stream).await;
                Box::new(shaken.map_err(|error| format!("no TLS with {authority}: {error}"))?)
            }
            None => Box::new(stream),
        };
        let problem = |error: &dyn std::fmt::Display| format!("no HTTP with {authority}: {error}");
        match self.settings.protocol {
            TelemetryProtocol::Http => {
                let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
                let (sender, connection) = shaken.map_err(|error| problem(&error))?;
                let task = tokio::spawn(async move { drop(connection.await) });
                Ok(Connection { sender: Sender::Http1(sender), task })
            }
            TelemetryProtocol::Grpc => {
                let shaken = http2().handshake(stream).await;
                let (sender, connection) = shaken.map_err(|error| problem(&error))?;
                let task = tokio::spawn(async move { drop(connection.await) });
                Ok(Connection { sender: Sender::Http2(sender), task })
            }
        }
    }
}

/// A collector must not fill our memory with answers that were not asked for, and with large heads.
fn http2() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder.enable_push(false).max_header_list_size(MAX_HEAD_BYTES);
    builder
}

// === impl Connection ===

impl Connection {
    async fn exchange(&mut self, request: Request<()>, body: &[u8]) -> Result<Answer, String> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.map_err(|error| error.to_string())?;
                let request = request.map(|()| Full::new(Bytes::copy_from_slice(body)));
                let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
                let (parts, body) = response.into_parts();
                let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| error.to_string())?;
                Ok(Answer { status: parts.status, body: body.to_bytes(), grpc: None })
            }
            Sender::Http2(sender) => exchange_grpc(sender, request, body).await.map_err(|error| error.to_string()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn exchange_grpc(
    sender: &mut Http2Sender<Bytes>,
    request: Request<()>,
    body: &[u8],
) -> Result<Answer, h2::Error> {
    let mut ready = sender.clone().ready().await?;
    let (response, mut stream) = ready.send_request(request, false)?;
    let mut message = BytesMut::with_capacity(GRPC_PREFIX_BYTES + body.len());
    message.put_u8(0);
    message.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    message.put_slice(body);
    stream.send_data(message.freeze(), true)?;
    let (parts, mut answer) = response.await?.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(data) = answer.data().await {
        let data = data?;
        answer.flow_control().release_capacity(data.len())?;
        if bytes.len() < MAX_ANSWER_BYTES {
            bytes.extend_from_slice(&data);
        }
    }
    let trailers = answer.trailers().await?;
    // An answer without a message may have its status in the head.
    let grpc = trailers.as_ref().and_then(grpc_status).or_else(|| grpc_status(&parts.headers));
    let body = if bytes.len() >= GRPC_PREFIX_BYTES { bytes.split_off(GRPC_PREFIX_BYTES) } else { BytesMut::new() };
    Ok(Answer { status: parts.status, body: body.freeze(), grpc })
}

fn grpc_status(headers: &HeaderMap) -> Option<(i32, String)> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
    Some((code, message.to_owned()))
}

// === impl Answer ===

impl Answer {
    /// How many spans or numbers were refused.
    fn judge(&self, protocol: TelemetryProtocol) -> Result<u64, Problem> {
        let is_temporary = matches!(self.status.as_u16(), 408 | 429 | 502 | 503 | 504);
        if !self.status.is_success() {
            let reason = format!("it answers {}{}", self.status, self.reason());
            return Err(if is_temporary { Problem::Away(reason) } else { Problem::Refused(reason) });
        }
        match (&self.grpc, protocol) {
            (Some((0, _)), _) | (None, TelemetryProtocol::Http) => {}
            (Some((code, message)), _) => {
                let reason = format!("it answers with the gRPC status {code}: {}", cut(message));
                let is_temporary = TEMPORARY_CODES.contains(code);
                return Err(if is_temporary { Problem::Away(reason) } else { Problem::Refused(reason) });
            }
            (None, TelemetryProtocol::Grpc) => {
                return Err(Problem::Away("it answers without a gRPC status".to_owned()));
            }
        }
        let response = ExportResponse::decode(self.body.clone()).unwrap_or_default();
        let rejected = response.partial_success.map_or(0, |partial| partial.rejected);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }

    /// The beginning of an answer that is text.
    fn reason(&self) -> String {
        let text = std::str::from_utf8(&self.body).unwrap_or_default().trim();
        if text.is_empty() || text.chars().any(char::is_control) { String::new() } else { format!(": {}", cut(text)) }
    }
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_telemetry::messages::PartialSuccess;

    #[test]
    fn an_answer_decides_whether_a_request_is_sent_again() {
        use TelemetryProtocol::{Grpc, Http};
        let partial = PartialSuccess { rejected: 3, error_message: "no".to_owned() };
        let partial = ExportResponse { partial_success: Some(partial) }.encode_to_vec();
        let none: &[u8] = b"";
        let table = [
            (200, none, None, Http, Ok(0)),
            (200, partial.as_slice(), None, Http, Ok(3)),
            (200, b"<html>".as_slice(), None, Http, Ok(0)),
            (429, none, None, Http, Err(true)),
            (503, none, None, Http, Err(true)),
            (400, b"bad".as_slice(), None, Http, Err(false)),
            (404, none, None, Http, Err(false)),
            (200, partial.as_slice(), Some(0), Grpc, Ok(3)),
            (200, none, Some(14), Grpc, Err(true)),
            (200, none, Some(16), Grpc, Err(false)),
            (200, none, None, Grpc, Err(true)),
        ];
        for (status, body, grpc, protocol, expected) in table {
            let status = StatusCode::from_u16(status).expect("a status");
            let grpc = grpc.map(|code| (code, "a message\u{1b}".to_owned()));
            let answer = Answer { status, body: Bytes::copy_from_slice(body), grpc };
            let judged = answer.judge(protocol).map_err(|problem| matches!(problem, Problem::Away(_)));
            assert_eq!(judged, expected, "{status} {body:?} {:?}", answer.grpc);
        }
    }
}
