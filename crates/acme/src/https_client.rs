//! HTTPS to the authorities, and to the operator's program: a connection for each request, which the server's certificate, a
//! limit of time and a limit of bytes bound.
//!
//! Plain HTTP is for servers on this machine; the configuration allows it for no others. A client of an `https://` URL sends no request
//! to an `http://` one. The URLs of a directory are checked here, because the library panics with some others. The client remembers how long an authority wants to be left alone (`Retry-After`), because the library
//! passes it on for some answers only.

use bytes::Bytes;
use howdah_blocking_work::connect;
use howdah_protocol::child::system_authorities::system_authorities;
use http::header::{CONTENT_TYPE, DATE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// Sends requests to one server.
#[derive(Clone)]
pub struct HttpsClient {
    tls: Arc<ClientConfig>,
    /// Whether the server is asked over HTTP.
    is_plain: bool,
    /// The last pause that the server wanted, and when.
    retry_after: Arc<Mutex<Option<(Instant, Duration)>>>,
}

type BoxError = Box<dyn StdError + Send + Sync>;

/// A request of an authority that works takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time between a refusal and the end of its order.
const JUST_NOW: Duration = Duration::from_secs(10);
/// A chain has some kilobytes.
const MAX_BODY_BYTES: usize = 256 * 1024;
/// An authority cannot want a longer pause.
const MAX_RETRY_AFTER_SECONDS: u64 = 7 * 24 * 60 * 60;
/// The members of a directory whose URLs are used.
const DIRECTORY_MEMBERS: [&str; 3] = ["newNonce", "newAccount", "newOrder"];
/// Of a text in place of a URL.
const MAX_SHOWN_CHARS: usize = 200;
const AGENT: &str = concat!("howdah/", env!("CARGO_PKG_VERSION"));

// === impl HttpsClient ===

impl HttpsClient {
    /// A client that trusts these certificates, or those of the system.
    ///
    /// # Errors
    /// A sentence, when there are none, or when `url` is no URL.
    pub fn new(url: &str, roots: Option<&str>) -> Result<HttpsClient, String> {
        if !is_url(url) {
            return Err(format!("{url:?} is no URL; correct it"));
        }
        let mut store = RootCertStore::empty();
        let is_plain = url.starts_with("http://");
        match roots {
            Some(pem) => add(&mut store, pem.as_bytes()),
            None if is_plain => {}
            None => {
                let bundle = system_authorities();
                let bundle = bundle.map_err(|problem| format!("{problem}, or name uploaded ones in \"roots\""))?;
                add(&mut store, &bundle);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let tls = Arc::new(builder.with_root_certificates(store).with_no_client_auth());
        Ok(HttpsClient { tls, is_plain, retry_after: Arc::default() })
    }

    /// The pause that the authority has wanted just now, when it refused a request.
    pub fn retry_after(&self) -> Option<Duration> {
        let wanted = *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.filter(|(at, _)| at.elapsed() < JUST_NOW).map(|(_, after)| after)
    }

    /// The status of the answer to a GET.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn status(&self, url: &str) -> Result<StatusCode, BoxError> {
        let request = Request::get(url).body(Full::default())?;
        self.clone().send(request).await.map(|response| response.status())
    }

    async fn send(self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, BoxError> {
        let uri = request.uri().clone();
        let is_https = uri.scheme_str() != Some("http");
        let host = uri.host().ok_or("the URL has no host")?;
        if !is_https && !self.is_plain {
            return Err(format!("{uri} is not asked: a server at https:// may name only such addresses").into());
        }
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let stream = connect(&name, port).await.map_err(|error| format!("cannot connect to {host}:{port}: {error}"))?;
        if !is_https {
            let is_local = stream.peer_addr().is_ok_and(|address| address.ip().is_loopback());
            if !is_local {
                return Err(format!("{host} is asked over HTTPS only").into());
            }
            return self.exchange(stream, request, &uri).await;
        }
        let server = ServerName::try_from(name).map_err(|_| format!("{host} is not the name of a server"))?;
        let shaken = TlsConnector::from(Arc::clone(&self.tls)).connect(server, stream).await;
        let stream = shaken.map_err(|error| format!("no TLS with {host}:{port}: {error}{}", advice(&error)))?;
        self.exchange(stream, request, &uri).await
    }

    async fn exchange(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut request: Request<Full<Bytes>>,
        uri: &Uri,
    ) -> Result<Response<Bytes>, BoxError> {
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        request.headers_mut().insert(HOST, HeaderValue::from_str(authority)?);
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        *request.uri_mut() = uri.path_and_query().map_or("/", |target| target.as_str()).parse()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let (mut parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await?.to_bytes();
        connection.abort();
        let after = bound_retry_after(&mut parts.headers, SystemTime::now());
        if matches!(parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let wanted = after.map(|after| (Instant::now(), after));
            *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
        }
        Ok(Response::from_parts(parts, body))
    }
}

impl HttpClient for HttpsClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // It cannot fail: the body is in memory.
            let body = body.collect().await.map_or_else(|never| match never {}, |body| body.to_bytes());
            let authority = parts.uri.authority().map(ToString::to_string).unwrap_or_default();
            let is_get = parts.method == Method::GET;
            let sent = client.send(Request::from_parts(parts, Full::new(body)));
            let answer = tokio::time::timeout(TIMEOUT, sent).await.unwrap_or_else(|_| {
                Err(Box::new(io::Error::other(format!("no answer within {} s", TIMEOUT.as_secs()))))
            });
            let answer = answer.and_then(|answer| readable(answer, &authority)).and_then(|answer| match is_get {
                true => with_urls(answer, &authority),
                false => Ok(answer),
            });
            answer.map(|answer| answer.map(Full::new).into()).map_err(Error::Other)
        })
    }
}

fn add(store: &mut RootCertStore, pem: &[u8]) {
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
}

/// A refusal is JSON; other ones are those of a proxy in front of the authority.
fn readable(answer: Response<Bytes>, authority: &str) -> Result<Response<Bytes>, BoxError> {
    let status = answer.status();
    let is_json = answer.headers().get(CONTENT_TYPE).is_some_and(is_json);
    if (status.is_server_error() || status.is_client_error()) && !is_json {
        return Err(format!("{authority} answers {status}").into());
    }
    Ok(answer)
}

/// A directory whose members are URLs, or an answer that is no directory: other ones to a GET have no such members.
fn with_urls(answer: Response<Bytes>, authority: &str) -> Result<Response<Bytes>, BoxError> {
    let directory: serde_json::Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    for member in DIRECTORY_MEMBERS {
        if let Some(text) = directory[member].as_str().filter(|text| !is_url(text)) {
            let text: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            return Err(format!("the directory of {authority} has no URL as its {member:?}: {text:?}").into());
        }
    }
    Ok(answer)
}

fn is_url(text: &str) -> bool {
    let url = text.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    url.is_some_and(|url| url.host().is_some_and(|host| !host.is_empty()))
}

/// `application/problem+json`, with or without parameters.
fn is_json(kind: &HeaderValue) -> bool {
    kind.to_str().is_ok_and(|kind| kind.split(';').next().unwrap_or_default().trim_end().ends_with("json"))
}

/// The pause that the authority wants, in seconds, also for the library: a date counts from the authority's own date,
/// because the clock of this machine may be wrong, and a senseless number would make the library panic.
fn bound_retry_after(headers: &mut HeaderMap, clock: SystemTime) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim);
    let here = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(clock);
    let seconds = text(RETRY_AFTER).and_then(|text| match text.parse::<u64>() {
        Ok(seconds) => Some(seconds),
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(here).ok()?.as_secs()),
    });
    let bounded = seconds.map(|seconds| seconds.min(MAX_RETRY_AFTER_SECONDS));
    match bounded {
        Some(seconds) => drop(headers.insert(RETRY_AFTER, seconds.into())),
        None => drop(headers.remove(RETRY_AFTER)),
    }
    bounded.map(Duration::from_secs)
}

/// The remedy for a failed handshake, if the clock of this machine may be the reason.
fn advice(error: &io::Error) -> &'static str {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => "; check the clock of this machine",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_authority_of_https_leads_to_no_server_of_http() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/order", listener.local_addr().unwrap());
        listener.set_nonblocking(true).unwrap();
        let of_https = HttpsClient::new("https://authority.example/directory", Some("")).unwrap();
        let refused = of_https.status(&url).await.unwrap_err().to_string();
        assert!(refused.contains("is not asked"), "{refused}");
        assert!(listener.accept().is_err(), "nothing was asked");
        let of_http = HttpsClient::new("http://127.0.0.1/directory", None).unwrap();
        let asked = tokio::time::timeout(Duration::from_millis(200), of_http.status(&url)).await;
        assert!(asked.is_err() && listener.accept().is_ok(), "it waits for the answer");
    }

    #[test]
    fn a_client_has_a_url() {
        assert!(HttpsClient::new("https://ca.example:1/x", Some("")).is_ok());
        for text in ["https://[::1/", "https://:1/"] {
            assert!(HttpsClient::new(text, Some("")).is_err_and(|reason| reason.contains("correct it")), "{text}");
        }
    }

    #[test]
    fn the_members_of_a_directory_are_urls() {
        let asked = |body: String| with_urls(Response::new(body.into()), "ca.example");
        let directory = |text: &str| {
            let mut members = serde_json::json!({"newNonce": "https://ca/n", "newOrder": "http://[::1]:80/o"});
            members["newAccount"] = text.into();
            asked(members.to_string())
        };
        assert!(directory("https://ca/account").is_ok());
        for text in
            ["", "*", "/account", "ca/account", "ca.example:443", "https://", "https://ca/a b", "\0", "ftp://ca/a"]
        {
            let refused = directory(text).unwrap_err().to_string();
            assert_eq!(refused, format!("the directory of ca.example has no URL as its \"newAccount\": {text:?}"));
        }
        assert!(directory(&"x".repeat(10_000)).unwrap_err().to_string().len() < 300);
        for other in ["", "no JSON", "[]", "7", r#"{"suggestedWindow": {}}"#, r#"{"newNonce": 7}"#] {
            assert!(asked(other.to_owned()).is_ok(), "the library refuses it, or needs it: {other}");
        }
    }

    #[test]
    fn json_may_have_parameters() {
        for (kind, expected) in [
            ("application/json", true),
            ("application/problem+json; charset=utf-8", true),
            ("text/html", false),
            ("text/html; x=json", false),
        ] {
            assert_eq!(is_json(&HeaderValue::from_static(kind)), expected, "{kind}");
        }
    }

    #[test]
    fn retry_after_is_a_number_or_a_date_of_the_authoritys_clock() {
        let date = |seconds| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        // The clock of this machine is at 0.
        let table = [
            (" 120 ".to_owned(), None, Some(120)),
            ("18446744073709551615".to_owned(), None, Some(MAX_RETRY_AFTER_SECONDS)),
            (date(100), None, Some(100)),
            (date(1_000_000_100), Some(1_000_000_000), Some(100)),
            (date(1_000_000_000), Some(1_000_000_100), None),
            (date(1_000_000_000), None, Some(MAX_RETRY_AFTER_SECONDS)),
            (String::new(), None, None),
            ("soon".to_owned(), None, None),
            ("-1".to_owned(), None, None),
        ];
        for (text, of_authority, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            if let Some(seconds) = of_authority {
                headers.insert(DATE, date(seconds).parse().unwrap());
            }
            let after = bound_retry_after(&mut headers, SystemTime::UNIX_EPOCH);
            assert_eq!(after.map(|after| after.as_secs()), expected, "{text}");
            let passed_on = headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap().parse::<u64>().unwrap());
            assert_eq!(passed_on, expected, "{text}");
        }
    }

    #[test]
    fn a_certificate_of_another_time_may_be_the_fault_of_the_clock() {
        let error = |cause| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(cause));
        assert!(advice(&error(CertificateError::Expired)).contains("clock"));
        assert!(advice(&error(CertificateError::NotValidYet)).contains("clock"));
        assert_eq!(advice(&error(CertificateError::UnknownIssuer)), "");
        assert_eq!(advice(&io::Error::other("x")), "");
    }
}
