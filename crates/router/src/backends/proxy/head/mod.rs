//! Makes the heads that are passed on: of a request for the upstream, of a response for the client.
//!
//! The framing of a body is never copied. howdah uses the headers of the client and the upstream to read a body, and
//! writes its own when it sends one. Therefore no program behind howdah can be made to see another end of a body than
//! howdah does.
//!
//! - `hop_by_hop`: headers that are for one connection only; `upgrade`: a change of the protocol
//! - `forwarded_headers`: the headers that name the client; `target`: the request's target

pub mod forwarded_headers;
pub mod hop_by_hop;
pub mod target;
pub mod upgrade;

use crate::backends::proxy::head::forwarded_headers::ForwardedHeaders;
use crate::backends::proxy::head::hop_by_hop::{ConnectionHeaders, accepts_trailers};
use crate::backends::proxy::request_body::{ClientBody, RequestBody};
use crate::protocols::connection::framing::has_body;
use crate::request::record::ids::AssignedHeaders;
use howdah_config::{Endpoint, ProxySettings};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, SERVER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri, Version, response};
use std::rc::Rc;
use std::time::Duration;

/// The parts of a request that are the same for each attempt to send it.
pub struct Outgoing<'a> {
    /// The head that the client sent.
    pub request: &'a Parts,
    /// The target, after rewriting.
    pub target: PathAndQuery,
    /// The client's body.
    pub body: Rc<ClientBody>,
    /// The protocols to which the connection may change.
    pub upgrade: Option<HeaderValue>,
    /// The headers that howdah has set.
    pub assigned: AssignedHeaders,
    /// The headers about the client, if the server gets them.
    pub forwarded: Option<ForwardedHeaders>,
    /// How it is forwarded.
    pub settings: &'a ProxySettings,
    /// Takes the interim responses.
    pub inform: &'a dyn Fn(StatusCode, &HeaderMap),
}

const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

// === impl Outgoing ===

impl Outgoing<'_> {
    /// The request for one attempt.
    pub fn attempt(&self, endpoint: &Endpoint) -> Request<RequestBody> {
        let mut request = Request::new(self.body.attempt());
        *request.method_mut() = self.request.method.clone();
        *request.uri_mut() = Uri::from(self.target.clone());
        let headers = request.headers_mut();
        headers.reserve(self.request.headers.len() + 2);
        headers.insert(HOST, self.host(endpoint));
        let of_connection = ConnectionHeaders::of(&self.request.headers);
        for (name, value) in &self.request.headers {
            let is_kept = self.assigned.contains(name) || !of_connection.contains(name);
            if is_kept && !matches!(*name, HOST | CONTENT_LENGTH) {
                headers.append(name, value.clone());
            }
        }
        if let Some(forwarded) = &self.forwarded {
            forwarded.set(headers);
        }
        if let Some(upgrade) = &self.upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, upgrade.clone());
        } else if accepts_trailers(&self.request.headers) {
            headers.insert(CONNECTION, HeaderValue::from_static("TE"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        self.frame(headers);
        request
    }

    /// The host of the target, if it has one (RFC 9112, 3.2.2), or the client's `Host`, or the address of the upstream.
    fn host(&self, endpoint: &Endpoint) -> HeaderValue {
        let authority = self.request.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        authority.or_else(|| self.request.headers.get(HOST).cloned()).unwrap_or_else(|| match endpoint {
            Endpoint::Tcp(address) => HeaderValue::from_str(&address.to_string()).expect("an address is visible ASCII"),
            Endpoint::Name { .. } => HeaderValue::from_str(&endpoint.to_string()).expect("a name is visible ASCII"),
            Endpoint::Unix(_) | Endpoint::Abstract(_) => HeaderValue::from_static("localhost"),
        })
    }

    fn frame(&self, headers: &mut HeaderMap) {
        let has_framing = || {
            let headers = &self.request.headers;
            headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
        };
        match self.body.exact_len() {
            None => drop(headers.insert(TRANSFER_ENCODING, CHUNKED)),
            // Some servers require a length for a POST: they distinguish an empty body from no body.
            Some(0) if !has_framing() => {}
            Some(len) => drop(headers.insert(CONTENT_LENGTH, len.into())),
        }
    }
}

/// Makes the head of a response for the client of this request, from the upstream's head. `len` is the length of its body.
///
/// # Errors
/// The problem, if the upstream's framing is ambiguous. A reader that understands it in another way than howdah would
/// take a part of the body for another response.
pub fn response(mut head: response::Parts, len: Option<u64>, request: &Parts) -> Result<Response<()>, &'static str> {
    let has_body = has_body(&request.method, head.status);
    if has_body {
        check_framing(&head.headers)?;
    }
    let len = match head.status {
        StatusCode::NO_CONTENT => None,
        _ if has_body => len,
        // The length that a body would have.
        _ => single(&head.headers, CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok()),
    };
    // Without the names, hyper sends no trailers.
    let trailer = head.headers.get(TRAILER).cloned();
    ConnectionHeaders::of(&head.headers).remove_from(&mut head.headers);
    head.headers.remove(SERVER);
    head.headers.remove(CONTENT_LENGTH);
    if let Some(len) = len {
        head.headers.insert(CONTENT_LENGTH, len.into());
    } else if has_body && request.version == Version::HTTP_10 {
        // HTTP/1.0 has no chunks: the end of the connection marks the end of the body. hyper would promise to keep it
        // alive.
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    } else if let Some(trailer) = trailer
        && has_body
        && (matches!(request.version, Version::HTTP_2 | Version::HTTP_3) || accepts_trailers(&request.headers))
    {
        head.headers.insert(TRAILER, trailer);
    }
    Ok(assemble(head))
}

/// The headers of an interim response that are passed on.
pub fn interim(mut headers: HeaderMap) -> HeaderMap {
    ConnectionHeaders::of(&headers).remove_from(&mut headers);
    headers.remove(SERVER);
    headers.remove(CONTENT_LENGTH);
    headers
}

/// The head of a 101 that the client requested.
pub fn switching_protocols(mut head: response::Parts) -> Response<()> {
    let protocol = head.headers.get(UPGRADE).cloned();
    ConnectionHeaders::of(&head.headers).remove_from(&mut head.headers);
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(SERVER);
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    assemble(head)
}

/// How long to keep an idle connection, if the upstream states its timeout (`Keep-Alive: timeout=5`): a second less, so
/// that it is not closed at the moment of its next use.
pub fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let timeout = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    Some(Duration::from_secs(timeout.trim().parse::<u64>().ok()?.saturating_sub(1)))
}

fn assemble(head: response::Parts) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    // The reason, and the names of the headers as they were written.
    *response.extensions_mut() = head.extensions;
    response
}

/// RFC 9112, 6.3: a reader may follow the chunks, or the length. howdah does not decode other transfer codings.
fn check_framing(headers: &HeaderMap) -> Result<(), &'static str> {
    if !headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return Err("it sent both Transfer-Encoding and Content-Length");
    }
    match single(headers, TRANSFER_ENCODING) {
        Some(coding) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err("it sent a Transfer-Encoding other than chunked"),
    }
}

fn single(headers: &HeaderMap, name: http::HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(builder: http::request::Builder, upgrade: Option<&'static str>) -> Vec<String> {
        let request = builder.body(()).expect("request").into_parts().0;
        let target = request.uri.path_and_query().expect("path").clone();
        let upgrade = upgrade.map(HeaderValue::from_static);
        let body = ClientBody::none();
        let settings = &ProxySettings::default();
        let assigned = AssignedHeaders::default();
        let (forwarded, inform) = (None, &|_: StatusCode, _: &HeaderMap| {});
        let outgoing = Outgoing { request: &request, target, body, upgrade, assigned, forwarded, settings, inform };
        let sent = outgoing.attempt(&"127.0.0.1:81".parse().expect("endpoint"));
        let first = format!("{} {}", sent.method(), sent.uri());
        let headers = sent.headers().iter();
        let headers = headers.map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII")));
        std::iter::once(first).chain(headers).collect()
    }

    #[test]
    fn a_request_keeps_its_end_to_end_headers() {
        let request = || Request::builder().uri("/a%20b?c=d").header("host", "example.org:8080");
        assert_eq!(outgoing(request(), None), ["GET /a%20b?c=d", "host: example.org:8080"]);
        let all = request()
            .header("cookie", "a=b")
            .header("connection", "close, x-secret, host")
            .header("x-secret", "1")
            .header("te", "gzip;q=0.5")
            .header("expect", "100-continue")
            .header("upgrade", "websocket")
            .header("accept", "*/*")
            .header("accept", "text/html");
        let expected = ["GET /a%20b?c=d", "host: example.org:8080", "cookie: a=b", "accept: */*", "accept: text/html"];
        assert_eq!(outgoing(all, None), expected);
        let with_trailers = request().header("connection", "te").header("te", "gzip, Trailers");
        let expected = ["GET /a%20b?c=d", "host: example.org:8080", "connection: TE", "te: trailers"];
        assert_eq!(outgoing(with_trailers, None), expected);
    }

    #[test]
    fn the_host_of_the_target_has_priority_and_the_servers_address_is_last() {
        let absolute = Request::builder().uri("http://a.org/x").header("host", "b.org");
        assert_eq!(outgoing(absolute, None), ["GET /x", "host: a.org"]);
        let bare = Request::builder().uri("http://a.org");
        assert_eq!(outgoing(bare, None), ["GET /", "host: a.org"]);
        let none = Request::builder().uri("/x");
        assert_eq!(outgoing(none, None), ["GET /x", "host: 127.0.0.1:81"]);
        let options = Request::builder().method("OPTIONS").uri("*").header("host", "a.org");
        assert_eq!(outgoing(options, None), ["OPTIONS *", "host: a.org"]);
    }

    #[test]
    fn an_empty_body_has_a_length_if_the_client_gave_it_one() {
        let post = || Request::builder().method("POST").uri("/").header("host", "h");
        assert_eq!(outgoing(post(), None), ["POST /", "host: h"]);
        for (name, value) in [("content-length", "0"), ("content-length", "00"), ("transfer-encoding", "chunked")] {
            let expected = ["POST /", "host: h", "content-length: 0"];
            assert_eq!(outgoing(post().header(name, value), None), expected);
        }
    }

    #[test]
    fn the_headers_of_an_upgrade_are_written_by_us() {
        let request = Request::builder()
            .uri("/")
            .header("host", "h")
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-key", "k");
        let expected = ["GET /", "host: h", "sec-websocket-key: k", "connection: Upgrade", "upgrade: websocket"];
        assert_eq!(outgoing(request, Some("websocket")), expected);
    }

    fn incoming(
        status: u16,
        method: &str,
        version: Version,
        len: Option<u64>,
        headers: &[(&str, &str)],
    ) -> Result<Vec<String>, &'static str> {
        let mut head = Response::builder().status(status);
        for (name, value) in headers {
            head = head.header(*name, *value);
        }
        let head = head.body(()).expect("response").into_parts().0;
        let request = Request::builder().method(method).version(version).header("te", "trailers");
        let response = response(head, len, &request.body(()).expect("request").into_parts().0)?;
        let headers = response.headers().iter();
        Ok(headers.map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))).collect())
    }

    #[test]
    fn a_response_gets_its_own_framing() {
        type Case<'a> = (u16, &'a str, Version, Option<u64>, &'a [(&'a str, &'a str)], Result<&'a [&'a str], &'a str>);
        let (one, zero) = (Version::HTTP_11, Version::HTTP_10);
        let cases: [Case<'_>; 18] = [
            (200, "GET", one, None, &[("trailer", "a, b")], Ok(&["trailer: a, b"])),
            (200, "GET", zero, None, &[("trailer", "a")], Ok(&["connection: close"])),
            (200, "GET", one, Some(3), &[("trailer", "a")], Ok(&["content-length: 3"])),
            (200, "GET", one, Some(3), &[("content-length", "3")], Ok(&["content-length: 3"])),
            (200, "GET", one, Some(3), &[("content-length", "3"), ("content-length", "3")], Ok(&["content-length: 3"])),
            (200, "GET", one, None, &[("transfer-encoding", "chunked")], Ok(&[])),
            (200, "GET", zero, None, &[("transfer-encoding", "Chunked")], Ok(&["connection: close"])),
            (200, "GET", one, None, &[], Ok(&[])),
            (200, "GET", one, None, &[("connection", "close, x"), ("x", "1"), ("server", "s")], Ok(&[])),
            (200, "HEAD", one, Some(0), &[("content-length", "42")], Ok(&["content-length: 42"])),
            (200, "HEAD", one, Some(0), &[("content-length", "4"), ("content-length", "2")], Ok(&[])),
            (200, "HEAD", zero, Some(0), &[("transfer-encoding", "chunked")], Ok(&[])),
            (204, "GET", one, Some(0), &[("content-length", "0")], Ok(&[])),
            (
                304,
                "GET",
                one,
                Some(0),
                &[("content-length", "42"), ("etag", "e")],
                Ok(&["etag: e", "content-length: 42"]),
            ),
            (
                200,
                "GET",
                one,
                None,
                &[("transfer-encoding", "chunked"), ("content-length", "3")],
                Err("it sent both Transfer-Encoding and Content-Length"),
            ),
            (
                200,
                "GET",
                one,
                None,
                &[("transfer-encoding", "gzip, chunked")],
                Err("it sent a Transfer-Encoding other than chunked"),
            ),
            (
                200,
                "GET",
                one,
                None,
                &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
                Err("it sent a Transfer-Encoding other than chunked"),
            ),
            (204, "GET", one, Some(0), &[("transfer-encoding", "gzip")], Ok(&[])),
        ];
        for (status, method, version, len, headers, expected) in cases {
            let expected = expected.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect());
            assert_eq!(incoming(status, method, version, len, headers), expected, "{status} {method} {headers:?}");
        }
    }

    #[test]
    fn a_keep_alive_timeout_is_used_with_a_margin() {
        let cases = [
            ("timeout=5", Some(4)),
            ("max=100, timeout=5", Some(4)),
            ("timeout=0", Some(0)),
            ("timeout=x", None),
            ("5", None),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("keep-alive", HeaderValue::from_static(value));
            assert_eq!(keep_alive(&headers), expected.map(Duration::from_secs), "{value}");
        }
    }
}
