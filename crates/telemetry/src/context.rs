//! The trace that a request belongs to: `traceparent` of W3C Trace Context, and whether the request is recorded.

use data_encoding::HEXLOWER;
use std::fmt::{self, Display, Formatter};

/// A valid `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the trace, which is not 0.
    pub trace: u128,
    /// The id of the span that is the parent, which is not 0.
    pub parent: u64,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

/// The fraction of the traces that are recorded. The id of a trace decides, so that all servers decide alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRatio(f64);

const SAMPLED: u8 = 1;
/// The length of a `traceparent` of version 00.
const HEADER_BYTES: usize = 55;

// === impl TraceParent ===

impl TraceParent {
    /// The value of a header: `00-TRACE-PARENT-FLAGS`. A later version may have more after that. `None` if it is not valid.
    pub fn parse(value: &str) -> Option<TraceParent> {
        let mut parts = value.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let has_form = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
        if !has_form || version == "ff" || version == "00" && parts.next().is_some() {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let parent = u64::from_str_radix(parent, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(TraceParent { trace, parent, is_sampled: flags & SAMPLED != 0 })
    }

    /// The id of the trace, as logs have it.
    pub fn trace_id(&self) -> String {
        HEXLOWER.encode(&self.trace.to_be_bytes())
    }

    /// The value of a header: ASCII characters.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = *b"00-TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT-PPPPPPPPPPPPPPPP-FF";
        HEXLOWER.encode_mut(&self.trace.to_be_bytes(), &mut header[3..35]);
        HEXLOWER.encode_mut(&self.parent.to_be_bytes(), &mut header[36..52]);
        HEXLOWER.encode_mut(&[if self.is_sampled { SAMPLED } else { 0 }], &mut header[53..]);
        header
    }
}

impl Display for TraceParent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.header()).map_err(|_| fmt::Error)?)
    }
}

fn is_hex(part: &str, length: usize) -> bool {
    part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

// === impl SamplingRatio ===

impl SamplingRatio {
    /// A fraction from 0 to 1.
    pub fn new(ratio: f64) -> SamplingRatio {
        SamplingRatio(ratio.clamp(0.0, 1.0))
    }

    /// Whether a trace without a caller's decision is recorded, as by OpenTelemetry's `TraceIdRatioBased`.
    pub fn records(self, trace: u128) -> bool {
        const BITS: u32 = 63;
        let random = (trace as u64) >> 1;
        random < (self.0 * (1_u64 << BITS) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_header_is_read() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let table = [
            (format!("00-{trace}-00f067aa0ba902b7-01"), Some(true)),
            (format!("00-{trace}-00f067aa0ba902b7-00"), Some(false)),
            (format!("00-{trace}-00f067aa0ba902b7-03"), Some(true)),
            (format!("cc-{trace}-00f067aa0ba902b7-01-more"), Some(true)),
            (format!("00-{trace}-00f067aa0ba902b7-01-more"), None),
            (format!("ff-{trace}-00f067aa0ba902b7-01"), None),
            (format!("00-{trace}-0000000000000000-01"), None),
            (format!("00-{:032}-00f067aa0ba902b7-01", 0), None),
            (format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()), None),
            (format!("00-{trace}-+0f067aa0ba902b7-01"), None),
            (format!("00-{trace}-00f067aa0ba902b7"), None),
            (String::new(), None),
            ("---".to_owned(), None),
            ("\u{e9}".repeat(20), None),
        ];
        for (text, expected) in table {
            let found = TraceParent::parse(&text);
            assert_eq!(found.map(|parent| parent.is_sampled), expected, "{text}");
            if let Some(parent) = found {
                assert_eq!((format!("{:x}", parent.trace), parent.parent), (trace.to_owned(), 0x00f0_67aa_0ba9_02b7));
            }
        }
    }

    #[test]
    fn a_context_is_written_as_it_is_read() {
        for is_sampled in [true, false] {
            let parent = TraceParent { trace: 1, parent: 0xab, is_sampled };
            assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
            let flags = if is_sampled { "01" } else { "00" };
            assert_eq!(parent.to_string(), format!("00-{:032x}-{:016x}-{flags}", parent.trace, parent.parent));
        }
    }

    #[test]
    fn the_id_of_a_trace_decides() {
        let table = [(0.0, 0, false), (0.5, 1, true), (0.5, u128::from(u64::MAX), false), (1.0, u128::MAX, true)];
        for (ratio, trace, expected) in table {
            assert_eq!(SamplingRatio::new(ratio).records(trace), expected, "{ratio} {trace:x}");
        }
        let ids = (0..10_000_u64).map(|n| u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let recorded = ids.filter(|id| SamplingRatio::new(0.25).records(*id)).count();
        assert!((2400..2600).contains(&recorded), "{recorded}");
    }
}
