//! A request's head in as little memory as it needs, for the many requests that wait for a worker at the same time.
//!
//! hyper parses a head into references to its read buffer of 8 KiB, and takes a second buffer for the next bytes while
//! these references exist. After this copy, hyper uses its first buffer again.

use bytes::BytesMut;
use http::{HeaderValue, Request, Uri};

/// Copies the target and the values of the headers out of the buffer that they were read into.
pub fn compact<B>(request: &mut Request<B>) {
    // The names are no references: http copies those that it does not know.
    let length = request.headers().values().map(HeaderValue::len).sum();
    let mut bytes = BytesMut::with_capacity(length);
    for value in request.headers_mut().values_mut() {
        bytes.extend_from_slice(value.as_bytes());
        if let Ok(copy) = HeaderValue::from_maybe_shared(bytes.split().freeze()) {
            *value = copy;
        }
    }
    // A target with a scheme or an authority, which is rare, stays as it is.
    if request.uri().authority().is_none()
        && let Ok(copy) = Uri::from_maybe_shared(request.uri().to_string().into_bytes())
    {
        *request.uri_mut() = copy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_compact_head_is_the_same_and_does_not_refer_to_the_buffer() {
        let buffer = Bytes::from(b"/a%20b//c?d=ee&&f first second \xff third".to_vec());
        let value = |range| HeaderValue::from_maybe_shared(buffer.slice(range)).unwrap();
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_maybe_shared(buffer.slice(..17)).unwrap();
        request.headers_mut().append("cookie", value(18..23));
        request.headers_mut().append("x-other", value(31..32));
        request.headers_mut().append("cookie", value(24..30));
        let (uri, headers) = (request.uri().to_string(), format!("{:?}", request.headers()));
        assert!(!buffer.is_unique());
        compact(&mut request);
        assert!(buffer.is_unique(), "no reference is left");
        assert_eq!((request.uri().to_string(), format!("{:?}", request.headers())), (uri, headers));
    }

    #[test]
    fn each_form_of_a_target_stays() {
        for target in ["/", "*", "//two/slashes", "/?", "http://host:80/path?query", "host:443"] {
            let mut request = Request::new(());
            *request.uri_mut() = target.parse().unwrap();
            let before = request.uri().clone();
            compact(&mut request);
            assert_eq!(request.uri(), &before, "{target}");
        }
    }
}
