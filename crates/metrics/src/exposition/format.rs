//! The format that a client asks for.

use howdah_protocol::messages::exporter::Format;

/// Native histograms need the first one.
const OFFERED: [(&str, Format); 4] = [
    ("application/vnd.google.protobuf", Format::Protobuf),
    ("application/openmetrics-text", Format::OpenMetrics),
    ("text/plain", Format::Prometheus),
    ("*/*", Format::Prometheus),
];
/// Parameters of a format that must have these values if they are there. Prometheus 3 adds others, such as `escaping`.
const PARAMETERS: [(&str, &str); 2] = [("proto", "io.prometheus.client.MetricFamily"), ("encoding", "delimited")];

/// The format that a client likes best, by its `Accept`. Prometheus' text is the default.
pub fn accepted(accept: &str) -> Format {
    let mut best = (0.0, Format::Prometheus);
    for range in accept.split(',') {
        if let Some((quality, format)) = offered(range)
            && quality > best.0
        {
            best = (quality, format);
        }
    }
    best.1
}

/// The `Content-Type`.
pub fn content_type(format: Format) -> &'static str {
    match format {
        Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Format::Protobuf => {
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
        }
    }
}

/// The format of a range, and how much the client likes it.
fn offered(range: &str) -> Option<(f32, Format)> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let (_, format) = OFFERED.into_iter().find(|(name, _)| *name == kind)?;
    let mut quality = 1.0;
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim() {
            "q" => quality = value.trim().parse().unwrap_or(0.0),
            name if format == Format::Protobuf => {
                let expected = PARAMETERS.into_iter().find(|(known, _)| *known == name);
                if expected.is_some_and(|(_, expected)| expected != value.trim().trim_matches('"')) {
                    return None;
                }
            }
            _ => {}
        }
    }
    Some((quality, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_the_format() {
        const PROTOBUF: &str =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let with = |rest: &str| format!("{PROTOBUF}{rest}");
        let table = [
            // Prometheus 2.42, without and with native histograms, and 3.
            ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1".to_owned(), Format::OpenMetrics),
            (with(",application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Format::Protobuf),
            (with(";q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.1"), Format::Protobuf),
            ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3".to_owned(), Format::OpenMetrics),
            (with(";q=0.2, text/plain; q=0.5"), Format::Prometheus),
            ("APPLICATION/OPENMETRICS-TEXT".to_owned(), Format::OpenMetrics),
            ("application/vnd.google.protobuf; encoding=text".to_owned(), Format::Prometheus),
            ("application/vnd.google.protobuf; proto=other; encoding=delimited".to_owned(), Format::Prometheus),
            (with(";q=0"), Format::Prometheus),
            (with(";q=x"), Format::Prometheus),
        ];
        for (accept, expected) in table {
            assert_eq!(accepted(&accept), expected, "{accept}");
        }
        for accept in ["", "*/*", "text/plain;version=0.0.4", "application/json", ";;,,=;q"] {
            assert_eq!(accepted(accept), Format::Prometheus, "{accept}");
        }
    }
}
