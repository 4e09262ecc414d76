use super::encoder::tests::{decode, text};
use super::*;
use crate::response::body::ResponseBody;
use crate::static_files::FileBody;
use http::header::{HOST, LAST_MODIFIED};
use http_body::Body as _;
use http_body_util::BodyExt;

fn compression(json: &str) -> Compression {
    let text = format!(r#"{{"settings": {{"http": {{"compression": {json}}}}}}}"#);
    howdah_config::Configuration::parse(&text).expect("a configuration").settings.http.compression
}

fn gzip() -> Compression {
    compression(r#"{"types": ["text/*", "!text/csv"], "compressors": {"encoding": "gzip", "min_length": 100}}"#)
}

fn request(method: &str, accept: Option<&str>) -> Parts {
    let mut request = http::Request::builder().method(method).uri("/").header(HOST, "x");
    if let Some(accept) = accept {
        request = request.header(ACCEPT_ENCODING, accept);
    }
    request.body(()).expect("a request").into_parts().0
}

fn response(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Response<ResponseBody<FileBody>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(ResponseBody::bytes(Bytes::copy_from_slice(body))).expect("a response")
}

fn header(response: &Response<ResponseBody<FileBody>>, name: HeaderName) -> Option<&str> {
    let mut values = response.headers().get_all(&name).iter();
    let value = values.next().map(|value| value.to_str().expect("text"));
    assert_eq!(values.next(), None, "{name}");
    value
}

#[tokio::test]
async fn a_response_is_compressed_at_once_or_while_it_is_sent() {
    for length in [100, AT_ONCE_BYTES, AT_ONCE_BYTES + 1, 10 * AT_ONCE_BYTES] {
        let body = text(length);
        let headers = [("content-type", "Text/HTML; charset=utf-8"), ("content-length", &length.to_string())];
        let answer = apply(&gzip(), &request("GET", Some("gzip")), response(200, &headers, &body)).unwrap();
        assert_eq!(header(&answer, CONTENT_ENCODING), Some("gzip"));
        assert_eq!(header(&answer, VARY), Some("Accept-Encoding"));
        assert_eq!(header(&answer, CONTENT_LENGTH), None);
        let exact = answer.body().size_hint().exact();
        let compressed = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(exact, (length <= AT_ONCE_BYTES).then_some(compressed.len() as u64));
        assert!(decode(Encoding::Gzip(6), &compressed).unwrap() == body, "{length}");
    }
}

#[test]
fn the_response_decides_compression_and_vary() {
    const TEXT: (&str, &str) = ("content-type", "text/plain");
    /// Status, headers, length of the body, Content-Encoding, Vary.
    type Case<'c> = (u16, &'c [(&'c str, &'c str)], usize, bool, Option<&'c str>);
    let vary = Some("Accept-Encoding");
    let table: &[Case<'_>] = &[
        (200, &[TEXT], 200, true, vary),
        (404, &[TEXT], 200, true, vary),
        (302, &[TEXT], 200, true, vary),
        (500, &[TEXT], 200, true, vary),
        (200, &[TEXT], 99, false, None),
        (200, &[TEXT], 0, false, None),
        (200, &[], 200, false, None),
        (200, &[("content-type", "image/png")], 200, false, None),
        (200, &[("content-type", "text/csv")], 200, false, None),
        (200, &[("content-type", "text/csv; header=present")], 200, false, None),
        (204, &[TEXT], 200, false, None),
        (205, &[TEXT], 200, false, None),
        (206, &[TEXT, ("content-range", "bytes 0-199/1000")], 200, false, vary),
        (416, &[TEXT, ("content-range", "bytes */1000")], 200, false, None),
        (304, &[TEXT], 0, false, None),
        (200, &[TEXT, ("content-encoding", "br")], 200, false, None),
        (200, &[TEXT, ("content-encoding", "identity")], 200, false, None),
        (200, &[TEXT, ("cache-control", "no-transform")], 200, false, None),
        (200, &[TEXT, ("cache-control", "public, No-Transform, max-age=1")], 200, false, None),
        (200, &[TEXT, ("cache-control", "public"), ("cache-control", "no-transform")], 200, false, None),
        (200, &[TEXT, ("cache-control", "no-store")], 200, true, vary),
        (200, &[TEXT, ("content-md5", "x")], 200, false, None),
        (200, &[TEXT, ("vary", "*")], 200, true, Some("*")),
        (200, &[TEXT, ("vary", "Cookie, accept-encoding")], 200, true, Some("Cookie, accept-encoding")),
    ];
    for (status, headers, length, is_compressed, vary) in table {
        let answer = |accept| {
            let request = request("GET", accept);
            apply(&gzip(), &request, response(*status, headers, &text(*length))).expect("acceptable")
        };
        let compressed = answer(Some("gzip"));
        assert_eq!(compressed.status().as_u16(), *status);
        let is_gzip = header(&compressed, CONTENT_ENCODING) == Some("gzip");
        assert_eq!(is_gzip, *is_compressed, "{status} {headers:?} {length}");
        for answer in [compressed, answer(None), answer(Some("br"))] {
            assert_eq!(header(&answer, VARY), *vary, "{status} {headers:?} {length}");
        }
    }
    let vary_on_more = [TEXT, ("vary", "X-Accept-Encoding")];
    let answer = apply(&gzip(), &request("GET", None), response(200, &vary_on_more, &text(200))).unwrap();
    let vary: Vec<_> = answer.headers().get_all(VARY).iter().collect();
    assert_eq!(vary, ["X-Accept-Encoding", "Accept-Encoding"]);
}

#[test]
fn a_strong_validator_becomes_weak() {
    let table = [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\"")];
    for (before, after) in table {
        let headers = [
            ("content-type", "text/html"),
            ("etag", before),
            ("accept-ranges", "bytes"),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ];
        let plain = apply(&gzip(), &request("GET", None), response(200, &headers, &text(200))).unwrap();
        assert_eq!((header(&plain, ETAG), header(&plain, ACCEPT_RANGES)), (Some(before), Some("bytes")));
        let compressed = apply(&gzip(), &request("GET", Some("gzip")), response(200, &headers, &text(200))).unwrap();
        assert_eq!((header(&compressed, ETAG), header(&compressed, ACCEPT_RANGES)), (Some(after), None));
        assert!(compressed.headers().contains_key(LAST_MODIFIED));
        // A file's 304 has the headers of its 200.
        for (accept, etag) in [(None, before), (Some("gzip"), after)] {
            let mut not_modified = response(304, &headers[1..2], b"");
            let content_type = HeaderValue::from_static("text/html");
            not_modified.extensions_mut().insert(NotModified { content_type: Some(content_type), length: 200 });
            let answer = apply(&gzip(), &request("GET", accept), not_modified).unwrap();
            assert_eq!((header(&answer, ETAG), header(&answer, VARY)), (Some(etag), Some("Accept-Encoding")));
            assert_eq!(header(&answer, CONTENT_ENCODING), None);
        }
    }
}

#[test]
fn head_has_the_headers_of_get() {
    let any_length = compression(r#"{"compressors": {"encoding": "gzip"}}"#);
    let (known, unknown) =
        (&[("content-type", "text/html"), ("content-length", "200")], &[("content-type", "text/html")]);
    let short = &[("content-type", "text/html"), ("content-length", "99")];
    type Case<'c> = (&'c Compression, &'c [(&'c str, &'c str)], bool);
    let table: [Case<'_>; 5] = [
        (&gzip(), known, true),
        (&gzip(), short, false),
        (&gzip(), unknown, false),
        (&any_length, unknown, true),
        (&any_length, short, true),
    ];
    for (compression, headers, expected) in table {
        let answer = apply(compression, &request("HEAD", Some("gzip")), response(200, headers, b"")).unwrap();
        assert_eq!(header(&answer, CONTENT_ENCODING), expected.then_some("gzip"), "{headers:?}");
        assert!(!expected || header(&answer, CONTENT_LENGTH).is_none());
        assert!(answer.body().is_end_stream());
    }
}

#[test]
fn only_get_and_head_get_a_406() {
    let answer = |method, length| {
        let headers = [("content-type", "text/html")];
        let request = request(method, Some("br, identity;q=0"));
        apply(&gzip(), &request, response(200, &headers, &text(length))).map(|answer| answer.status().as_u16())
    };
    assert_eq!(answer("GET", 200), Err(Failure::NotAcceptable));
    assert_eq!(answer("GET", 20), Ok(200));
    assert_eq!(answer("POST", 200), Ok(200));
}

#[test]
fn each_encoding_has_its_own_minimum_length() {
    let compression = compression(
        r#"{"compressors": [{"encoding": "zstd", "min_length": 1000}, {"encoding": "gzip", "min_length": 100}]}"#,
    );
    for (length, expected) in [(1000, Some("zstd")), (999, Some("gzip")), (99, None)] {
        let headers = [("content-type", "text/html")];
        let request = request("GET", Some("gzip, zstd"));
        let answer = apply(&compression, &request, response(200, &headers, &text(length))).unwrap();
        assert_eq!(header(&answer, CONTENT_ENCODING), expected, "{length}");
    }
}

#[test]
fn an_http_1_0_client_learns_the_end_from_the_connection() {
    let headers = [("content-type", "text/html")];
    for (length, connection) in [(200, None), (AT_ONCE_BYTES + 1, Some("close"))] {
        let mut request = request("GET", Some("gzip"));
        request.version = Version::HTTP_10;
        let answer = apply(&gzip(), &request, response(200, &headers, &text(length))).unwrap();
        assert_eq!(header(&answer, CONNECTION), connection);
    }
}
