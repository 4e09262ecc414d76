//! The spans of one request, for OpenTelemetry: the request itself, its wait in the queue, PHP or another server, and the
//! TLS handshake of its connection. Only recorded requests have them.
//!
//! Clients choose some of the texts. Each is cut to [`MAX_TEXT_BYTES`], so that the spans of a request fit into one frame
//! of the pipe. Names of spans come from the configuration only.

use crate::report::count_by;
use crate::request::record::numbers::RequestNumbers;
use fastrand::Rng;
use howdah_config::Telemetry;
use howdah_metrics::labels::{CAUSES, METHODS, Method, RESPONDERS};
use howdah_metrics::layout::Scalar;
use howdah_protocol::plain_text::beginning;
use howdah_telemetry::context::{SamplingRatio, TraceParent};
use howdah_telemetry::frames::{Encoded, MAX_CONTENT_BYTES};
use howdah_telemetry::messages::{Event, KeyValue, ScopeSpans, Span, SpanKind, Status, StatusCode};
use howdah_telemetry::pipe::with_writer;
use howdah_telemetry::signal::Signal;
use http::header::{HeaderMap, USER_AGENT};
use http::{StatusCode as HttpStatus, Version};
use prost::Message;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

/// The ids of a request's spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    trace: u128,
    /// The caller's span.
    pub caller: Option<u64>,
    /// The span of the request.
    server: u64,
    /// The span of PHP or of another server: the parent of their own spans.
    backend: u64,
    /// Whether the request is recorded.
    pub is_recorded: bool,
}

/// A recorded request.
#[derive(Debug)]
pub struct RequestTrace {
    ids: TraceIds,
    /// When its first byte came.
    since: Instant,
    /// Attributes that are known from the beginning.
    attributes: RefCell<Vec<KeyValue>>,
    trace_state: String,
    application: RefCell<Option<String>>,
    status: Cell<Option<HttpStatus>>,
    /// The server that was asked, and when its answer began.
    asked: Cell<Option<(Asked, Instant, Instant)>>,
    /// PHP's stack, and the time after which it was taken, if the request is slow.
    slow_stack: RefCell<Option<(Duration, String)>>,
    /// The TLS handshake of its connection, if it is the first request there.
    handshake: Option<(Instant, Instant)>,
}

/// A server that is asked by a request, except PHP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An HTTP server, or a process of an HTTP application.
    Proxy,
    /// A worker of RoadRunner.
    RoadRunner,
    /// A FastCGI server.
    FastCgi,
}

/// The head of a request, as far as its span has it.
#[derive(Clone, Copy)]
pub struct TracedHead<'h> {
    /// The method, as the client wrote it.
    pub method: &'h str,
    /// The path, as the client wrote it.
    pub path: &'h str,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The host.
    pub host: &'h str,
    /// The port of the listener.
    pub port: &'h str,
    /// The version.
    pub version: Version,
    /// The client's address.
    pub client: &'h str,
    /// The headers.
    pub headers: &'h HeaderMap,
    /// Its own id.
    pub request_id: Option<&'h str>,
}

/// The header of what systems of traces add.
pub const TRACE_STATE: &str = "tracestate";
/// The most bytes of a text that a client chose.
const MAX_TEXT_BYTES: usize = 512;
/// A host has at most 253 bytes.
const MAX_HOST_BYTES: usize = 255;
const MAX_ROUTE_BYTES: usize = 256;
/// The name of an application is in all spans.
const MAX_NAME_BYTES: usize = 128;
const MAX_METHOD_BYTES: usize = 64;
/// A stack of some frames.
const MAX_STACK_BYTES: usize = 1024;
/// `tracestate` may be this long (W3C Trace Context, 3.3.1.5); a longer one is left out whole.
const MAX_STATE_BYTES: usize = 512;

thread_local! {
    /// Ids are public, so a fast generator is enough; only its seed must differ from that of any other thread and machine.
    static IDS: RefCell<Rng> =
        RefCell::new(Rng::with_seed(getrandom::u64().expect("the kernel always has random bytes")));
}

// === impl TraceIds ===

impl TraceIds {
    /// The ids of a request with this caller.
    pub fn assign(caller: Option<TraceParent>, telemetry: &Telemetry) -> TraceIds {
        let trace = caller.map_or_else(|| IDS.with_borrow_mut(|ids| ids.u128(1..)), |caller| caller.trace);
        let is_recorded = match caller {
            Some(caller) if telemetry.parent_based => caller.is_sampled,
            _ => SamplingRatio::new(telemetry.sampling_ratio).records(trace),
        };
        let caller = caller.map(|caller| caller.parent);
        TraceIds { trace, caller, server: random_id(), backend: random_id(), is_recorded }
    }

    /// The context that PHP and other servers get.
    pub fn for_backends(&self) -> TraceParent {
        TraceParent { trace: self.trace, parent: self.backend, is_sampled: self.is_recorded }
    }
}

/// The id of a span.
fn random_id() -> u64 {
    IDS.with_borrow_mut(|ids| ids.u64(1..))
}

// === impl RequestTrace ===

impl RequestTrace {
    /// The trace of a request that came at `since`.
    pub fn new(
        ids: TraceIds,
        since: Instant,
        head: TracedHead<'_>,
        handshake: Option<(Instant, Instant)>,
    ) -> Box<RequestTrace> {
        Box::new(RequestTrace {
            ids,
            since,
            attributes: RefCell::new(head.attributes()),
            trace_state: trace_state(head.headers),
            application: RefCell::default(),
            status: Cell::default(),
            asked: Cell::default(),
            slow_stack: RefCell::default(),
            handshake,
        })
    }

    /// A step of a route is for the request. The last one counts.
    pub fn set_route(&self, path: &str) {
        const ROUTE: &str = "howdah.route";
        let mut attributes = self.attributes.borrow_mut();
        attributes.retain(|attribute| attribute.key != ROUTE);
        attributes.push(KeyValue::text(ROUTE, beginning(path, MAX_ROUTE_BYTES)));
    }

    /// The application that answers the request.
    pub fn set_application(&self, name: &str) {
        self.application.replace(Some(beginning(name, MAX_NAME_BYTES).to_owned()));
    }

    /// The status of the response.
    pub fn set_status(&self, status: HttpStatus) {
        self.status.set(Some(status));
    }

    /// A server was asked at this time, and has answered, or failed, now.
    pub fn set_asked(&self, asked: Asked, at: Instant) {
        self.asked.set(Some((asked, at, Instant::now())));
    }

    /// PHP's stack after this time: the slow log has it, too.
    pub fn set_slow_stack(&self, after: Duration, stack: &str) {
        self.slow_stack.replace(Some((after, beginning(stack, MAX_STACK_BYTES).to_owned())));
    }

    /// The request has ended: its spans are sent.
    pub fn end(&self, method: &str, numbers: &RequestNumbers) {
        let mut spans = ScopeSpans { scope: None, spans: self.spans(method, numbers, &Clock::now()) };
        let count = spans.spans.len() as u64;
        let mut encoded = spans.encode_to_vec();
        if encoded.len() > MAX_CONTENT_BYTES {
            // The texts of clients are long: there is no room for the stack.
            spans.spans.iter_mut().for_each(|span| span.events.clear());
            encoded = spans.encode_to_vec();
        }
        let spans = Encoded { signal: Signal::Traces, count: u8::try_from(count).unwrap_or(u8::MAX), encoded };
        count_by(Scalar::Spans, count);
        if with_writer(|writer| writer.write(&spans)) != Some(Ok(())) {
            count_by(Scalar::SpansLost, count);
        }
    }

    fn spans(&self, method: &str, numbers: &RequestNumbers, clock: &Clock) -> Vec<Span> {
        let application = self.application.borrow();
        let with_application = |mut attributes: Vec<KeyValue>| {
            attributes.extend(application.iter().map(|name| KeyValue::text("howdah.application", name.as_str())));
            attributes
        };
        let mut spans = Vec::with_capacity(4);
        let mut add = |id, name: &str, kind: SpanKind, from, to, attributes| {
            spans.push(Span {
                trace_id: self.ids.trace.to_be_bytes().to_vec(),
                span_id: u64::to_be_bytes(id).to_vec(),
                parent_span_id: self.ids.server.to_be_bytes().to_vec(),
                name: name.to_owned(),
                kind: kind.into(),
                start_time_unix_nano: clock.unix_nanoseconds(from),
                end_time_unix_nano: clock.unix_nanoseconds(to),
                attributes,
                flags: IS_SAMPLED | PARENT_IS_KNOWN,
                ..Span::default()
            });
        };
        if let Some((from, to)) = self.handshake {
            add(random_id(), "TLS handshake", SpanKind::Internal, from, to, Vec::new());
        }
        if let Some((times, end)) = numbers.php_times() {
            let began = end.checked_sub(times.ran).unwrap_or(end);
            let queued = began.checked_sub(times.queue).unwrap_or(began);
            add(random_id(), "queue", SpanKind::Internal, queued, began, with_application(Vec::new()));
            let cpu = times.cpu.map(|cpu| KeyValue::double("howdah.php.cpu_seconds", cpu.as_secs_f64()));
            add(self.ids.backend, "PHP", SpanKind::Internal, began, end, with_application(cpu.into_iter().collect()));
            if let (Some((after, stack)), Some(php)) = (&*self.slow_stack.borrow(), spans.last_mut()) {
                php.events.push(Event {
                    time_unix_nano: clock.unix_nanoseconds(began + *after),
                    name: "slow".to_owned(),
                    attributes: vec![KeyValue::text("code.stacktrace", stack.as_str())],
                });
            }
        } else if let Some((asked, from, to)) = self.asked.get() {
            let (name, kind) = match asked {
                Asked::Proxy => ("proxy", SpanKind::Client),
                Asked::RoadRunner => ("RoadRunner worker", SpanKind::Internal),
                Asked::FastCgi => ("FastCGI", SpanKind::Client),
            };
            add(self.ids.backend, name, kind, from, to, with_application(Vec::new()));
        }
        let server = self.server_span(method, numbers, clock, with_application(self.attributes.borrow().clone()));
        spans.push(server);
        spans
    }

    fn server_span(
        &self,
        method: &str,
        numbers: &RequestNumbers,
        clock: &Clock,
        mut attributes: Vec<KeyValue>,
    ) -> Span {
        let known = METHODS[Method::of(method) as usize];
        let method = if known == "other" { "HTTP" } else { known };
        let name = match self.application.borrow().as_deref() {
            Some(application) => format!("{method} {application}"),
            None => method.to_owned(),
        };
        attributes.push(KeyValue::text("howdah.responder", RESPONDERS[numbers.responder() as usize]));
        attributes
            .push(KeyValue::int("http.response.body.size", i64::try_from(numbers.body_bytes()).unwrap_or(i64::MAX)));
        let cause = numbers.cause().map(|cause| CAUSES[cause as usize]);
        attributes.extend(cause.map(|cause| KeyValue::text("howdah.refused", cause)));
        let status = self.status.get();
        let code = status.map(|status| KeyValue::int("http.response.status_code", status.as_u16().into()));
        attributes.extend(code);
        let has_failed = status.is_some_and(|status| status.is_server_error());
        if let Some(status) = status.filter(|_| has_failed) {
            let reason = cause.map_or_else(|| status.as_str().to_owned(), str::to_owned);
            attributes.push(KeyValue::text("error.type", reason));
        }
        let caller = self.ids.caller;
        Span {
            trace_id: self.ids.trace.to_be_bytes().to_vec(),
            span_id: self.ids.server.to_be_bytes().to_vec(),
            trace_state: self.trace_state.clone(),
            parent_span_id: caller.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
            name,
            kind: SpanKind::Server.into(),
            start_time_unix_nano: clock.unix_nanoseconds(self.since),
            end_time_unix_nano: clock.unix_nanoseconds(clock.instant),
            attributes,
            events: Vec::new(),
            status: has_failed.then(|| Status { message: String::new(), code: StatusCode::Error.into() }),
            flags: IS_SAMPLED | PARENT_IS_KNOWN | if caller.is_some() { PARENT_IS_REMOTE } else { 0 },
        }
    }
}

/// The flags of a span (`SpanFlags` of OTLP).
const IS_SAMPLED: u32 = 1;
const PARENT_IS_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;

// === impl TracedHead ===

impl TracedHead<'_> {
    fn attributes(self) -> Vec<KeyValue> {
        let known = METHODS[Method::of(self.method) as usize];
        let version = match self.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            Version::HTTP_3 => "3",
            _ => "1.1",
        };
        let mut attributes = vec![
            KeyValue::text("http.request.method", if known == "other" { "_OTHER" } else { known }),
            KeyValue::text("url.scheme", self.scheme),
            KeyValue::text("url.path", beginning(self.path, MAX_TEXT_BYTES)),
            KeyValue::text("client.address", beginning(self.client, MAX_NAME_BYTES)),
            KeyValue::text("network.protocol.version", version),
        ];
        if known == "other" {
            attributes.push(KeyValue::text("http.request.method_original", beginning(self.method, MAX_METHOD_BYTES)));
        }
        if !self.host.is_empty() {
            attributes.push(KeyValue::text("server.address", beginning(self.host, MAX_HOST_BYTES)));
        }
        attributes.extend(self.port.parse().ok().map(|port| KeyValue::int("server.port", port)));
        let agent = self.headers.get(USER_AGENT);
        let agent = agent.map(|agent| beginning(&String::from_utf8_lossy(agent.as_bytes()), MAX_TEXT_BYTES).to_owned());
        attributes.extend(agent.map(|agent| KeyValue::text("user_agent.original", agent)));
        attributes.extend(self.request_id.map(|id| KeyValue::text("howdah.request_id", id)));
        attributes
    }
}

fn trace_state(headers: &HeaderMap) -> String {
    let parts: Vec<_> = headers.get_all(TRACE_STATE).iter().filter_map(|value| value.to_str().ok()).collect();
    let state = parts.join(",");
    if state.len() <= MAX_STATE_BYTES { state } else { String::new() }
}

/// One moment on both clocks.
struct Clock {
    instant: Instant,
    unix: Duration,
}

impl Clock {
    fn now() -> Clock {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { instant: Instant::now(), unix }
    }

    fn unix_nanoseconds(&self, at: Instant) -> u64 {
        let before = self.instant.saturating_duration_since(at);
        u64::try_from(self.unix.saturating_sub(before).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::record::numbers::PhpTimes;
    use howdah_config::Configuration;
    use howdah_telemetry::frames::MAX_FRAME_BYTES;
    use http::header::HeaderValue;

    fn telemetry(options: &str) -> Telemetry {
        let endpoint = r#""endpoint": "http://127.0.0.1:4318", "protocol": "http""#;
        let text = format!(r#"{{"settings": {{"telemetry": {{{endpoint}{options}}}}}}}"#);
        Configuration::parse(&text).expect("a configuration").settings.telemetry.expect("telemetry")
    }

    #[test]
    fn the_caller_decides_unless_only_the_ratio_counts() {
        let caller = |is_sampled| Some(TraceParent { trace: 1 << 64 | 1 << 62, parent: 5, is_sampled });
        let table = [
            (r#", "sampling_ratio": 0"#, caller(true), true),
            (r#", "sampling_ratio": 1"#, caller(false), false),
            (r#", "sampling_ratio": 1, "parent_based": false"#, caller(false), true),
            (r#", "sampling_ratio": 0, "parent_based": false"#, caller(true), false),
            (r#", "sampling_ratio": 0"#, None, false),
            ("", None, true),
        ];
        for (options, caller, expected) in table {
            let ids = TraceIds::assign(caller, &telemetry(options));
            assert_eq!((ids.is_recorded, ids.for_backends().is_sampled), (expected, expected), "{options} {caller:?}");
            assert_eq!(ids.caller, caller.map(|caller| caller.parent));
            assert!(caller.is_none_or(|caller| caller.trace == ids.trace), "the trace goes on");
        }
    }

    #[test]
    fn each_request_has_other_ids() {
        let telemetry = telemetry("");
        let ids: Vec<_> = (0..200).map(|_| TraceIds::assign(None, &telemetry)).collect();
        let different: std::collections::BTreeSet<_> =
            ids.iter().map(|ids| (ids.trace, ids.server, ids.backend)).collect();
        assert_eq!(different.len(), ids.len());
    }

    #[test]
    fn the_longest_texts_fit_into_a_frame() {
        let long = "\u{20ac}".repeat(3000);
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_bytes(&[0xff; 8000]).expect("a value"));
        headers.append(TRACE_STATE, HeaderValue::from_str(&"a".repeat(MAX_STATE_BYTES)).expect("a value"));
        let id = "i".repeat(128);
        let head = TracedHead {
            method: &long,
            path: &long,
            scheme: "https",
            host: &long,
            port: "65535",
            version: Version::HTTP_2,
            client: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            headers: &headers,
            request_id: Some(&id),
        };
        let ids = TraceIds::assign(Some(TraceParent { trace: 1, parent: 2, is_sampled: true }), &telemetry(""));
        let now = Instant::now();
        let trace = RequestTrace::new(ids, now, head, Some((now, now)));
        trace.set_route("routes/0");
        trace.set_route(&long);
        trace.set_application(&"a".repeat(1000));
        trace.set_status(HttpStatus::BAD_GATEWAY);
        let numbers = RequestNumbers::default();
        let second = Duration::from_secs(1);
        numbers.set_php_times(PhpTimes { queue: second, ran: second, cpu: Some(second) });
        let spans = trace.spans("GET", &numbers, &Clock::now());
        assert_eq!(
            spans.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
            [
                "TLS handshake".to_owned(),
                "queue".to_owned(),
                "PHP".to_owned(),
                format!("GET {}", "a".repeat(MAX_NAME_BYTES)),
            ]
        );
        let server = &spans[3];
        assert!(
            spans[..3].iter().all(|span| span.parent_span_id == server.span_id && span.trace_id == server.trace_id)
        );
        assert_eq!(spans[2].start_time_unix_nano - spans[1].start_time_unix_nano, 1_000_000_000);
        assert_eq!(spans[2].end_time_unix_nano - spans[2].start_time_unix_nano, 1_000_000_000);
        let routes: Vec<_> = server.attributes.iter().filter(|attribute| attribute.key == "howdah.route").collect();
        assert_eq!(routes, [&KeyValue::text("howdah.route", beginning(&long, MAX_ROUTE_BYTES))]);
        let length = ScopeSpans { scope: None, spans }.encode_to_vec().len();
        assert!(length < MAX_FRAME_BYTES - 100, "{length}");

        let head = TracedHead { path: "/", host: "a", method: "GET", headers: &HeaderMap::new(), ..head };
        let trace = RequestTrace::new(ids, now, head, None);
        trace.set_slow_stack(second / 2, "nap shop.php:3\nrun shop.php:9");
        let spans = trace.spans("GET", &numbers, &Clock::now());
        let [event] = spans[1].events.as_slice() else { panic!("one event") };
        assert_eq!(event.time_unix_nano - spans[1].start_time_unix_nano, 500_000_000);
        assert_eq!(event.attributes, [KeyValue::text("code.stacktrace", "nap shop.php:3\nrun shop.php:9")]);
    }
}
