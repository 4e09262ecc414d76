//! The headers that describe the client to a server behind howdah: `X-Forwarded-For`, `-Proto` and `-Host`.
//!
//! The values that the client itself sent are replaced. Only if the peer is a trusted proxy (`forwarded` of the
//! listener), its `X-Forwarded-For` is kept, and the peer's address is added at the end.

use crate::request::subject::Subject;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};

/// The headers of one request.
#[derive(Clone, Debug)]
pub struct ForwardedHeaders {
    /// `None` if the client has no address.
    client: Option<HeaderValue>,
    scheme: HeaderValue,
    /// `None` if the client named no host.
    host: Option<HeaderValue>,
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

// === impl ForwardedHeaders ===

impl ForwardedHeaders {
    /// The headers about the client of this request.
    pub fn of(subject: &Subject<'_>) -> ForwardedHeaders {
        let Subject { parts, peer, origin, .. } = subject;
        let before = parts.headers.get_all(FORWARDED_FOR).iter().filter(|_| origin.is_trusted);
        let mut chain: Vec<&[u8]> = before.map(HeaderValue::as_bytes).collect();
        if !peer.remote_addr.starts_with("unix:") {
            chain.push(peer.remote_addr.as_bytes());
        }
        let authority = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        ForwardedHeaders {
            client: HeaderValue::from_bytes(&chain.join(&b", "[..])).ok().filter(|value| !value.is_empty()),
            scheme: HeaderValue::from_static(origin.scheme.as_str()),
            host: authority.or_else(|| parts.headers.get(HOST).cloned()),
        }
    }

    /// Replaces the headers of a request.
    pub fn set(&self, headers: &mut HeaderMap) {
        let all = [
            (FORWARDED_FOR, &self.client),
            (FORWARDED_HOST, &self.host),
            (FORWARDED_PROTO, &Some(self.scheme.clone())),
        ];
        for (name, value) in all {
            match value {
                Some(value) => drop(headers.insert(name, value.clone())),
                None => drop(headers.remove(name)),
            }
        }
    }
}
