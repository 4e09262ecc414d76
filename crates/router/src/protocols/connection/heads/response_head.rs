//! The head of a response, as HTTP/2 and HTTP/3 have it: without the headers that are for a connection of HTTP/1.

use crate::protocols::connection::framing::{drop_framing, set_length};
use bytes::Bytes;
use http::header::{DATE, HeaderValue, SEC_WEBSOCKET_ACCEPT};
use http::{Method, Response, StatusCode, response};
use http_body_util::Empty;
use hyper::body::Body;
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

/// The head to send with this body.
pub fn of<B: Body>(head: response::Parts, body: &B, method: &Method) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    let headers = response.headers_mut();
    drop_framing(headers);
    headers.entry(DATE).or_insert_with(date);
    set_length(headers, head.status, body, method);
    response
}

/// The head that grants a tunnel, from the 101 of the upstream.
pub fn of_tunnel(head: response::Parts) -> Response<()> {
    let mut response = of(head, &Empty::<Bytes>::new(), &Method::HEAD);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
    response
}

/// The current time. The text is made once a second.
fn date() -> HeaderValue {
    thread_local! {
        static LAST: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(of, text)| {
        if *of != second || text.is_empty() {
            *text = HeaderValue::from_str(&httpdate::fmt_http_date(now)).expect("a date is visible ASCII");
            *of = second;
        }
        text.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    fn head(method: &Method, status: u16, headers: &[(&str, &str)]) -> Vec<String> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let (head, ()) = response.body(()).unwrap().into_parts();
        let head = of(head, &Full::new(Bytes::from_static(b"hello")), method);
        let mut lines: Vec<_> = head.headers().iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        assert!(lines.iter().any(|line| line.starts_with("date: ")));
        lines.retain(|line| !line.starts_with("date: "));
        lines
    }

    #[test]
    fn headers_of_connections_are_dropped() {
        let of_connections = ["Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "TE"]
            .map(|name| (name, "x"));
        assert_eq!(head(&Method::GET, 200, &of_connections), ["content-length: 5"]);
    }

    #[test]
    fn the_length_is_that_of_the_body() {
        assert_eq!(head(&Method::HEAD, 200, &[]), ["content-length: 5"]);
        assert_eq!(head(&Method::GET, 200, &[("Content-Length", "7")]), ["content-length: 7"]);
        assert_eq!(head(&Method::GET, 204, &[("Content-Length", "7")]), [""; 0]);
        assert_eq!(head(&Method::GET, 304, &[]), [""; 0]);
    }
}
