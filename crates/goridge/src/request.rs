//! The context of a request, and the frame around it.
//!
//! All PHP libraries for workers of RoadRunner 2 and 3 understand contexts in JSON. JSON is UTF-8: bytes of a header
//! that are not are replaced. Newer ones also understand protobuf, which keeps them. A library decides by the first
//! request.

use crate::frame::{HEADER_BYTES, OPTION_BYTES, data_frame, flag};
use crate::proto::{write_bool, write_bytes, write_message};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// The context of a request.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestContext<'a> {
    /// The client's address, without the port.
    pub remote_addr: Cow<'a, str>,
    /// `HTTP/1.1`.
    pub protocol: &'a str,
    /// The method.
    pub method: &'a str,
    /// The whole URL.
    pub uri: Cow<'a, str>,
    /// Each header, with its values.
    pub headers: Headers<'a>,
    /// Each cookie, decoded.
    pub cookies: Cookies<'a>,
    /// The query, without the `?`.
    pub raw_query: Cow<'a, str>,
    /// Whether the body is the JSON of a form.
    pub parsed: bool,
    /// The uploaded files, as JSON.
    pub uploads: Option<&'a serde_json::value::RawValue>,
    /// No attributes: in JSON, they are an object.
    pub attributes: Cookies<'a>,
}

/// The encoding of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// JSON.
    Json,
    /// Messages of protobuf.
    Proto,
}

/// Headers: names, each with its values.
#[derive(Clone, Debug, Default)]
pub struct Headers<'a>(pub Vec<(String, Vec<&'a [u8]>)>);

/// Cookies: names and values.
#[derive(Clone, Debug, Default)]
pub struct Cookies<'a>(pub Vec<(Cow<'a, str>, Cow<'a, [u8]>)>);

/// Bytes as text.
struct Text<'a>(&'a [u8]);

/// The longest payload of a frame.
pub const MAX_PAYLOAD: u64 = u32::MAX as u64;

// === impl RequestContext ===

impl RequestContext<'_> {
    /// The frame of this request, up to its body, which has this length; `None` if both together are longer than
    /// [`MAX_PAYLOAD`].
    pub fn frame(&self, codec: Codec, body: u64) -> Option<Vec<u8>> {
        let mut frame = vec![0; HEADER_BYTES + OPTION_BYTES];
        let flags = match codec {
            Codec::Json => {
                serde_json::to_writer(&mut frame, self).expect("a context has only text, and a vector takes all of it");
                flag::JSON
            }
            Codec::Proto => {
                write_proto(&mut frame, self);
                flag::PROTO
            }
        };
        let context = (frame.len() - HEADER_BYTES - OPTION_BYTES) as u64;
        let payload = u32::try_from(context.checked_add(body)?).ok()?;
        frame[..HEADER_BYTES + OPTION_BYTES].copy_from_slice(&data_frame(flags, context as u32, payload));
        Some(frame)
    }
}

impl<'a> Serialize for Headers<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = |values: &[&'a [u8]]| values.iter().map(|value| Text(value)).collect::<Vec<_>>();
        serializer.collect_map(self.0.iter().map(|(name, values)| (name, texts(values))))
    }
}

impl Serialize for Cookies<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, &Text(value)))?;
        map.end()
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(self.0))
    }
}

/// Appends the context as this message of protobuf:
///
/// ```text
/// message Request {
///   string remote_addr = 1; string protocol = 2; string method = 3; string uri = 4; map<string, HeaderValue> header = 5;
///   map<string, HeaderValue> cookies = 6; string raw_query = 7; bool parsed = 8; bytes uploads = 9;
///   map<string, HeaderValue> attributes = 10;
/// }
/// message HeaderValue { repeated bytes value = 1; }
/// ```
fn write_proto(out: &mut Vec<u8>, context: &RequestContext<'_>) {
    write_bytes(out, 1, context.remote_addr.as_bytes());
    write_bytes(out, 2, context.protocol.as_bytes());
    write_bytes(out, 3, context.method.as_bytes());
    write_bytes(out, 4, context.uri.as_bytes());
    for (name, values) in &context.headers.0 {
        write_entry(out, 5, name, values.iter().map(|value| &**value));
    }
    for (name, value) in &context.cookies.0 {
        write_entry(out, 6, name, std::iter::once(&**value));
    }
    write_bytes(out, 7, context.raw_query.as_bytes());
    write_bool(out, 8, context.parsed);
    write_bytes(out, 9, context.uploads.map_or("", |uploads| uploads.get()).as_bytes());
}

fn write_entry<'a>(out: &mut Vec<u8>, field: u8, name: &str, values: impl Iterator<Item = &'a [u8]>) {
    let mut list = Vec::new();
    // An empty value is a value.
    values.for_each(|value| write_message(&mut list, 1, value));
    let mut entry = Vec::new();
    write_message(&mut entry, 1, name.as_bytes());
    write_message(&mut entry, 2, &list);
    write_message(out, field, &entry);
}

/// The name of a header as Go writes it, and therefore RoadRunner: `Content-Type`.
pub fn canonical_name(name: &str) -> String {
    let mut previous = '-';
    let canonical = |c: char| match std::mem::replace(&mut previous, c) {
        '-' => c.to_ascii_uppercase(),
        _ => c.to_ascii_lowercase(),
    };
    name.chars().map(canonical).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameHeader;

    #[test]
    fn a_frame_has_the_context_that_workers_expect() {
        let uploads = serde_json::value::RawValue::from_string("[1]".to_owned()).expect("JSON");
        let context = RequestContext {
            remote_addr: "127.0.0.1".into(),
            protocol: "HTTP/1.1",
            method: "GET",
            uri: "http://h/x?a=1".into(),
            headers: Headers(vec![("Accept".to_owned(), vec![b"a", b"b\"\xff"])]),
            cookies: Cookies(vec![("sid".into(), Cow::Borrowed(b"v"))]),
            raw_query: "a=1".into(),
            parsed: false,
            uploads: Some(&uploads),
            attributes: Cookies::default(),
        };
        let frame = context.frame(Codec::Json, 5).expect("a frame");
        let expected = concat!(
            r#"{"remoteAddr":"127.0.0.1","protocol":"HTTP/1.1","method":"GET","uri":"http://h/x?a=1","#,
            r#""headers":{"Accept":["a","b\"�"]},"cookies":{"sid":"v"},"rawQuery":"a=1","parsed":false,"#,
            r#""uploads":[1],"attributes":{}}"#
        );
        assert_eq!(std::str::from_utf8(&frame[16..]), Ok(expected));
        let header = FrameHeader::decode(frame.first_chunk().expect("a header")).expect("a header");
        assert_eq!((header.options, header.flags), (1, flag::JSON));
        assert_eq!(header.payload as usize, expected.len() + 5);
        assert_eq!(frame[12..16], (expected.len() as u32).to_le_bytes());
        let frame = context.frame(Codec::Proto, 5).expect("a frame");
        let header = FrameHeader::decode(frame.first_chunk().expect("a header")).expect("a header");
        assert_eq!((header.options, header.flags, header.payload as usize), (1, flag::PROTO, frame.len() - 16 + 5));
        assert_eq!(RequestContext::default().frame(Codec::Json, MAX_PAYLOAD), None);
    }

    #[test]
    fn a_context_in_protobuf_is_the_message_of_roadrunner() {
        let uploads = serde_json::value::RawValue::from_string("{}".to_owned()).expect("JSON");
        let context = RequestContext {
            remote_addr: "127.0.0.1".into(),
            protocol: "HTTP/1.1",
            method: "GET",
            uri: "http://127.0.0.1:1/x?a=1".into(),
            headers: Headers(vec![("A".to_owned(), vec![b"\xff", b""])]),
            cookies: Cookies(vec![("c".into(), Cow::Borrowed(b"d"))]),
            raw_query: "a=1".into(),
            parsed: true,
            uploads: Some(&uploads),
            attributes: Cookies::default(),
        };
        let mut bytes = Vec::new();
        write_proto(&mut bytes, &context);
        // The first four fields, and the query, are as they were recorded between rr 2024.1 and its PHP library.
        let expected: [&[u8]; 4] = [
            b"\x0a\x09127.0.0.1\x12\x08HTTP/1.1\x1a\x03GET\x22\x18http://127.0.0.1:1/x?a=1",
            b"\x2a\x0a\x0a\x01A\x12\x05\x0a\x01\xff\x0a\x00",
            b"\x32\x08\x0a\x01c\x12\x03\x0a\x01d",
            b"\x3a\x03a=1\x40\x01\x4a\x02{}",
        ];
        assert_eq!(bytes, expected.concat());
        let mut empty = Vec::new();
        write_proto(&mut empty, &RequestContext::default());
        assert_eq!(empty, b"", "defaults are left out");
    }

    #[test]
    fn names_of_headers_are_written_as_in_go() {
        for (name, expected) in [("content-type", "Content-Type"), ("ETAG", "Etag"), ("x-a--b", "X-A--B"), ("", "")] {
            assert_eq!(canonical_name(name), expected);
        }
    }
}
