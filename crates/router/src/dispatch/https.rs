//! The duties of a listener for HTTPS before and after the routes: its redirect to HTTPS, the same URL with another scheme;
//! its demand for a certificate of the client; `Strict-Transport-Security`, and `Alt-Svc` for HTTP/3.
//!
//! A certificate authority asks for `/.well-known/acme-challenge/` over plain HTTP: those requests are passed on, if the
//! listener has a destination for them.

use crate::net::peer::Peer;
use crate::net::tls::challenges;
use crate::request::subject::Subject;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_config::Listener;
use http::header::{ALT_SVC, HeaderValue, STRICT_TRANSPORT_SECURITY};
use http::{HeaderMap, Method, StatusCode, Version};

/// For how long a client may remember that there is HTTP/3.
const ALT_SVC_SECONDS: u32 = 86_400;
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// The status and the `Location` for a request; `None` if the listener redirects nothing, or not this request.
///
/// # Errors
/// 400 for a request without a host.
pub fn redirect(listener: &Listener, subject: &Subject<'_>) -> Result<Option<(StatusCode, HeaderValue)>, Failure> {
    let Some(redirect) = &listener.redirect else { return Ok(None) };
    if listener.pass.is_some() && subject.path.bytes().starts_with(CHALLENGES) {
        return Ok(None);
    }
    if subject.host.is_empty() {
        return Err(Failure::BadRequest("no host, so the URL with HTTPS is not known"));
    }
    // Other methods than these keep their method and their body with 308 only.
    let status = match subject.parts.method {
        Method::GET | Method::HEAD => StatusCode::MOVED_PERMANENTLY,
        _ => StatusCode::PERMANENT_REDIRECT,
    };
    let port = redirect.port.map(|port| format!(":{port}")).unwrap_or_default();
    let target = subject.parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let location = HeaderValue::from_str(&format!("https://{}{port}{target}", subject.host));
    let location = location.map_err(|_| Failure::BadRequest("the URL cannot be a Location header"))?;
    Ok(Some((status, location)))
}

/// The answer to a challenge of a certificate authority (HTTP-01), whatever the routes do with its path. Requests for
/// other tokens are ordinary ones: another program may wait for them.
pub fn challenge(subject: &Subject<'_>) -> Option<Bytes> {
    let token = subject.path.bytes().strip_prefix(CHALLENGES)?;
    let is_read = matches!(subject.parts.method, Method::GET | Method::HEAD);
    challenges::http_body(std::str::from_utf8(token).ok()?).filter(|_| is_read).map(Bytes::from)
}

/// Refuses the requests of a client that showed no certificate while that was optional. Another connection would ask for it.
///
/// # Errors
/// 421.
pub fn check_certificate(listener: &Listener, peer: &Peer) -> Result<(), Failure> {
    let is_required =
        listener.tls.as_ref().and_then(|tls| tls.clients.as_ref()).is_some_and(|clients| clients.required);
    if is_required && peer.tls.as_ref().is_none_or(|tls| tls.client.is_none()) {
        tracing::info!("the client showed no certificate when it connected, and one is required since: answered 421");
        return Err(Failure::Misdirected);
    }
    Ok(())
}

/// Announces HTTP/3 to the clients of the other versions, unless the application has chosen its own `Alt-Svc`.
pub fn add_alt_svc(listener: &Listener, peer: &Peer, version: Version, headers: &mut HeaderMap) {
    if listener.http3.is_some()
        && version != Version::HTTP_3
        && let Ok(value) = HeaderValue::from_str(&format!("h3=\":{}\"; ma={ALT_SVC_SECONDS}", peer.server_port))
    {
        headers.entry(ALT_SVC).or_insert(value);
    }
}

/// Adds `Strict-Transport-Security`, unless the application has chosen its own.
pub fn add_hsts(listener: &Listener, peer: &Peer, headers: &mut HeaderMap) {
    if let Some(hsts) = listener.tls.as_ref().and_then(|tls| tls.hsts.as_ref())
        && peer.tls.is_some()
        && let Ok(value) = HeaderValue::from_str(&hsts.header)
    {
        headers.entry(STRICT_TRANSPORT_SECURITY).or_insert(value);
    }
}
