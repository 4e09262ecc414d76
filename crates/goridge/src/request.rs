//! The context of a request, and the frame around it.
//!
//! All PHP libraries for workers of RoadRunner 2 and 3 understand contexts in JSON. JSON is UTF-8: bytes of a header
//! that are not are replaced.

use crate::frame::{HEADER_BYTES, OPTION_BYTES, data_frame, flag};
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
    pub headers: Fields<'a>,
    /// Each cookie, decoded.
    pub cookies: Cookies<'a>,
    /// The query, without the `?`.
    pub raw_query: Cow<'a, str>,
    /// Whether the body is the JSON of a form.
    pub parsed: bool,
    /// The uploaded files, as JSON.
    pub uploads: Option<&'a serde_json::value::RawValue>,
    /// No attributes: they are an object.
    pub attributes: Cookies<'a>,
}

/// Headers: names, each with its values.
#[derive(Clone, Debug, Default)]
pub struct Fields<'a>(pub Vec<(String, Vec<Cow<'a, str>>)>);

/// Cookies: names and values.
#[derive(Clone, Debug, Default)]
pub struct Cookies<'a>(pub Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// The longest payload of a frame.
pub const MAX_PAYLOAD: u64 = u32::MAX as u64;

// === impl RequestContext ===

impl RequestContext<'_> {
    /// The frame of this request, up to its body, which has this length; `None` if both together are longer than
    /// [`MAX_PAYLOAD`].
    pub fn frame(&self, body: u64) -> Option<Vec<u8>> {
        let mut frame = vec![0; HEADER_BYTES + OPTION_BYTES];
        serde_json::to_writer(&mut frame, self).expect("a context has only text, and a vector takes all of it");
        let context = (frame.len() - HEADER_BYTES - OPTION_BYTES) as u64;
        let payload = u32::try_from(context.checked_add(body)?).ok()?;
        frame[..HEADER_BYTES + OPTION_BYTES].copy_from_slice(&data_frame(flag::JSON, context as u32, payload));
        Some(frame)
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, values)| (name, values)))
    }
}

impl Serialize for Cookies<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
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
            headers: Fields(vec![("Accept".to_owned(), vec!["a".into(), "b\"".into()])]),
            cookies: Cookies(vec![("sid".into(), "v".into())]),
            raw_query: "a=1".into(),
            parsed: false,
            uploads: Some(&uploads),
            attributes: Cookies::default(),
        };
        let frame = context.frame(5).expect("a frame");
        let expected = concat!(
            r#"{"remoteAddr":"127.0.0.1","protocol":"HTTP/1.1","method":"GET","uri":"http://h/x?a=1","#,
            r#""headers":{"Accept":["a","b\""]},"cookies":{"sid":"v"},"rawQuery":"a=1","parsed":false,"#,
            r#""uploads":[1],"attributes":{}}"#
        );
        assert_eq!(std::str::from_utf8(&frame[16..]), Ok(expected));
        let header = FrameHeader::decode(frame.first_chunk().expect("a header")).expect("a header");
        assert_eq!((header.options, header.flags), (1, flag::JSON));
        assert_eq!(header.payload as usize, expected.len() + 5);
        assert_eq!(frame[12..16], (expected.len() as u32).to_le_bytes());
        assert_eq!(RequestContext::default().frame(MAX_PAYLOAD), None);
    }

    #[test]
    fn names_of_headers_are_written_as_in_go() {
        for (name, expected) in [("content-type", "Content-Type"), ("ETAG", "Etag"), ("x-a--b", "X-A--B"), ("", "")] {
            assert_eq!(canonical_name(name), expected);
        }
    }
}
