//! The ids of a request: its own, in `X-Request-Id`, and that of its trace, in `traceparent` (W3C Trace Context).
//!
//! With `settings/telemetry`, each request belongs to a trace: to that of the client, or to a new one. Its header then names
//! the span of howdah that is the parent of what the application does, and PHP, upstreams and workers get it.
//!
//! A client can send anything. An id that is kept has few characters, all of which are harmless in a log, in a header and
//! in a shell; another one is replaced.

use crate::request::record::trace::{TRACE_STATE, TraceIds};
use howdah_config::{RequestIdSettings, Telemetry};
use howdah_telemetry::context::TraceParent;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// The ids of a request, as its headers have them.
#[derive(Clone, Debug, Default)]
pub struct RequestIds {
    /// Its own id, if it has one.
    pub request: Option<HeaderValue>,
    /// The value of `traceparent`, if it is valid.
    pub trace_parent: Option<TraceParent>,
    /// The ids of its spans, if it is recorded.
    pub recorded: Option<TraceIds>,
    /// The headers that have them.
    pub headers: AssignedHeaders,
}

/// The headers that howdah has set in a request. They are not the client's: servers behind howdah get them also if the client
/// names them in `Connection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssignedHeaders {
    request_id: bool,
    trace_parent: bool,
}

/// The header of a request's id.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header of a trace.
pub const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// The longest id that is kept, in bytes.
const MAX_BYTES: usize = 128;

// === impl RequestIds ===

impl RequestIds {
    /// The ids of the request with these headers. It gets one, if the settings require that.
    pub fn assign(
        headers: &mut HeaderMap,
        settings: Option<&RequestIdSettings>,
        telemetry: Option<&Telemetry>,
    ) -> RequestIds {
        let request = settings.map(|settings| {
            let id = match the_only(headers, &X_REQUEST_ID).filter(|id| settings.accept && is_well_formed(id)) {
                Some(id) => id.clone(),
                None => random(),
            };
            headers.insert(X_REQUEST_ID, id.clone());
            id
        });
        let caller = trace_parent_of(headers);
        let assigned = AssignedHeaders { request_id: request.is_some(), trace_parent: telemetry.is_some() };
        let Some(telemetry) = telemetry else {
            return RequestIds { request, trace_parent: caller, recorded: None, headers: assigned };
        };
        let ids = TraceIds::assign(caller, telemetry);
        if ids.caller.is_none() {
            // It belongs to the caller's trace, which is not known.
            headers.remove(TRACE_STATE);
        }
        let trace_parent = ids.for_backends();
        let value = HeaderValue::from_bytes(&trace_parent.header());
        headers.insert(TRACE_PARENT, value.expect("digits are a header's value"));
        let recorded = ids.is_recorded.then_some(ids);
        RequestIds { request, trace_parent: Some(trace_parent), recorded, headers: assigned }
    }

    /// The id of the trace.
    pub fn trace(&self) -> Option<String> {
        self.trace_parent.map(|trace_parent| trace_parent.trace_id())
    }
}

// === impl AssignedHeaders ===

impl AssignedHeaders {
    /// Whether howdah has set this header.
    pub fn contains(self, name: &HeaderName) -> bool {
        self.request_id && *name == X_REQUEST_ID || self.trace_parent && *name == TRACE_PARENT
    }
}

/// The caller's trace; `None` if it names none.
fn trace_parent_of(headers: &HeaderMap) -> Option<TraceParent> {
    TraceParent::parse(the_only(headers, &TRACE_PARENT)?.to_str().ok()?)
}

/// A header that is not repeated.
fn the_only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

fn is_well_formed(id: &HeaderValue) -> bool {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(byte);
    (1..=MAX_BYTES).contains(&id.len()) && id.as_bytes().iter().all(is_safe)
}

fn random() -> HeaderValue {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel always has random bytes");
    let digits = format!("{:032x}", u128::from_ne_bytes(bytes));
    HeaderValue::from_str(&digits).expect("hexadecimal digits are a header's value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(sent: &[&str], accept: bool) -> String {
        let mut headers = HeaderMap::new();
        for id in sent {
            headers.append(X_REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).expect("a value"));
        }
        let settings = RequestIdSettings { accept, response: false };
        let id = RequestIds::assign(&mut headers, Some(&settings), None).request.expect("an id");
        assert_eq!(headers.get_all(X_REQUEST_ID).iter().collect::<Vec<_>>(), [&id], "one header, with the id");
        id.to_str().expect("text").to_owned()
    }

    #[test]
    fn a_well_formed_id_is_kept_and_any_other_one_is_replaced() {
        let long = "a".repeat(128);
        for kept in ["a", "5f3c-1_2.3:4", "Root=1-67891233-abcdef", long.as_str()] {
            assert_eq!(assigned(&[kept], true), kept);
        }
        let too_long = "a".repeat(129);
        let hostile = ["", "a b", "a\"b", "\u{e9}", "<script>", "$(id)", "a;b", "a\tb", too_long.as_str()];
        for sent in hostile.iter().map(|id| vec![*id]).chain([vec!["a", "b"], vec![]]) {
            let id = assigned(&sent, true);
            assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{sent:?}: {id}");
        }
        assert_ne!(assigned(&["a"], false), "a");
        assert_ne!(assigned(&[], true), assigned(&[], true));
    }

    #[test]
    fn without_the_setting_nothing_is_changed() {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_static("<x>"));
        assert!(RequestIds::assign(&mut headers, None, None).request.is_none());
        assert_eq!(headers[X_REQUEST_ID], "<x>");
    }

    #[test]
    fn a_trace_is_that_of_w3c_trace_context() {
        const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        let table = [
            (format!("00-{TRACE}-00f067aa0ba902b7-01"), true),
            (format!("01-{TRACE}-00f067aa0ba902b7-01-more"), true),
            (format!("00-{TRACE}-00f067aa0ba902b7-01-more"), false),
            (format!("ff-{TRACE}-00f067aa0ba902b7-01"), false),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), false),
            (format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()), false),
            (format!("00-{TRACE}-00f067aa0ba902b7"), false),
            (String::new(), false),
        ];
        for (text, is_valid) in table {
            let mut headers = HeaderMap::new();
            headers.insert(TRACE_PARENT, text.parse().expect("a value"));
            let found = RequestIds::assign(&mut headers, None, None).trace();
            assert_eq!(found.as_deref(), is_valid.then_some(TRACE), "{text}");
        }
    }
}
