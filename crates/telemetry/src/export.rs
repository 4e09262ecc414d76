//! The body of a request to a collector.

use crate::frames::Encoded;
use crate::messages::{
    EncodedResource, ExportRequest, InstrumentationScope, KeyValue, Metric, Resource, ScopeMetrics, ScopeSpans,
};
use prost::Message;

/// The service, as a collector shows it.
#[derive(Clone, Debug)]
pub struct Service {
    resource: Resource,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

// === impl Service ===

impl Service {
    /// A service with this name on this machine. The instance is the supervisor's.
    pub fn new(name: &str, instance: &str, host: &str) -> Service {
        let attributes = [
            ("service.name", name),
            ("service.version", VERSION),
            ("service.instance.id", instance),
            ("host.name", host),
            ("telemetry.sdk.name", "howdah"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", VERSION),
        ];
        let attributes = attributes.into_iter().map(|(key, value)| KeyValue::text(key, value)).collect();
        Service { resource: Resource { attributes } }
    }

    /// The body with these spans, or these log records.
    pub fn body(&self, frames: &[Encoded]) -> Vec<u8> {
        // The beginning of a message of spans is that of one of log records.
        let mut encoded = ScopeSpans { scope: Some(scope()), spans: Vec::new() }.encode_to_vec();
        frames.iter().for_each(|frame| encoded.extend_from_slice(&frame.encoded));
        self.request(encoded)
    }

    /// The body with these metrics.
    pub fn metrics(&self, metrics: Vec<Metric>) -> Vec<u8> {
        self.request(ScopeMetrics { scope: Some(scope()), metrics }.encode_to_vec())
    }

    fn request(&self, scope: Vec<u8>) -> Vec<u8> {
        let resource = EncodedResource { resource: Some(self.resource.clone()), scopes: vec![scope] };
        ExportRequest { resources: vec![resource] }.encode_to_vec()
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "howdah".to_owned(), version: VERSION.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Span, SpanKind};
    use crate::signal::Signal;

    #[test]
    fn frames_become_one_request() {
        let encoded = |name: &str| {
            let span = Span { name: name.to_owned(), kind: SpanKind::Server.into(), ..Span::default() };
            Encoded {
                signal: Signal::Traces,
                count: 1,
                encoded: ScopeSpans { scope: None, spans: vec![span] }.encode_to_vec(),
            }
        };
        let body = Service::new("shop", "1", "host").body(&[encoded("a"), encoded("b")]);
        let request = ExportRequest::decode(body.as_slice()).expect("a request");
        let resource = &request.resources[0];
        let attributes = &resource.resource.as_ref().expect("a resource").attributes;
        assert_eq!(attributes[0], KeyValue::text("service.name", "shop"));
        let scope = ScopeSpans::decode(resource.scopes[0].as_slice()).expect("a scope");
        assert_eq!(scope.scope.expect("a scope").name, "howdah");
        assert_eq!(scope.spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
