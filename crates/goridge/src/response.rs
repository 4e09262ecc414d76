//! The context of a response: its status and its headers.

use crate::frame::{Violation, quoted, shortened};
use crate::proto::{Fields, Malformed, Value};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The context of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ResponseContext {
    /// The status, which a worker may choose freely.
    pub status: i64,
    /// The names and values of the headers, in their order.
    #[serde(default)]
    pub headers: ResponseFields,
}

/// Headers: names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseFields(pub Vec<(String, Vec<u8>)>);

/// The value or the values of a header.
struct Values(Vec<String>);

/// The most bytes of all headers. A name with many values counts once for each: the JSON of them is shorter.
const MAX_HEADER_BYTES: usize = 256 * 1024;
/// The most values of headers. Far fewer are sent to a client.
const MAX_VALUES: usize = 10_000;

// === impl ResponseFields ===

impl ResponseFields {
    /// The names and the values, without space around them.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.0.iter().map(|(name, value)| (name.as_bytes(), value.trim_ascii()))
    }
}

// === impl ResponseContext ===

impl ResponseContext {
    /// The context in this JSON.
    ///
    /// # Errors
    /// When the text is not such a context.
    pub fn from_json(json: &[u8]) -> Result<ResponseContext, Violation> {
        serde_json::from_slice(json).map_err(|error| {
            // The error may have a whole text of the worker.
            let (beginning, error) = (quoted(json), shortened(&error.to_string()));
            Violation(format!("its response begins with {beginning}, which is not the JSON of a response: {error}"))
        })
    }

    /// The context in this message of protobuf:
    ///
    /// ```text
    /// message Response { int64 status = 1; map<string, HeaderValue> headers = 2; }
    /// message HeaderValue { repeated bytes value = 1; }
    /// ```
    ///
    /// # Errors
    /// When the bytes are not such a message, or there are too many headers.
    pub fn from_proto(message: &[u8]) -> Result<ResponseContext, Violation> {
        let malformed = |_| Violation("its response is not the protobuf message of a response".to_owned());
        let (mut context, mut length) = (ResponseContext::default(), 0);
        let mut fields = Fields(message);
        while let Some(field) = fields.next().map_err(malformed)? {
            match field {
                (1, Value::Number(status)) => context.status = status.cast_signed(),
                (2, Value::Bytes(entry)) => {
                    read_entry(entry, &mut context.headers, &mut length).map_err(malformed)?;
                    if length > MAX_HEADER_BYTES {
                        return Err(Violation(format!(
                            "its response has headers of more than {MAX_HEADER_BYTES} bytes"
                        )));
                    }
                    if context.headers.0.len() > MAX_VALUES {
                        return Err(Violation(format!("its response has more than {MAX_VALUES} values of headers")));
                    }
                }
                (1 | 2, _) => return Err(malformed(Malformed)),
                _ => {}
            }
        }
        Ok(context)
    }
}

impl<'de> Deserialize<'de> for ResponseFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ResponseFields, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = ResponseFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of headers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResponseFields, A::Error> {
                let (mut fields, mut length): (Vec<_>, usize) = (Vec::new(), 0);
                while let Some((name, Values(values))) = map.next_entry::<String, Values>()? {
                    if fields.len() + values.len() > MAX_VALUES {
                        return Err(de::Error::custom(format_args!("more than {MAX_VALUES} values of headers")));
                    }
                    length += values.iter().map(|value| name.len() + value.len()).sum::<usize>();
                    if length > MAX_HEADER_BYTES {
                        return Err(de::Error::custom(format_args!("headers of more than {MAX_HEADER_BYTES} bytes")));
                    }
                    fields.extend(values.into_iter().map(|value| (name.clone(), value.into_bytes())));
                }
                Ok(ResponseFields(fields))
            }

            // PHP writes an array without elements, which may be an object, as [].
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ResponseFields, A::Error> {
                match list.next_element::<de::IgnoredAny>()? {
                    None => Ok(ResponseFields::default()),
                    Some(_) => Err(de::Error::custom("headers without names")),
                }
            }

            fn visit_unit<E: de::Error>(self) -> Result<ResponseFields, E> {
                Ok(ResponseFields::default())
            }
        }
        deserializer.deserialize_any(Map)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Values, D::Error> {
        struct ListOrText;
        impl<'de> Visitor<'de> for ListOrText {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a header, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Values, E> {
                TextOrNumber.visit_str(text).map(|text| Values(vec![text]))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Values, E> {
                TextOrNumber.visit_u64(number).map(|text| Values(vec![text]))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Values, E> {
                TextOrNumber.visit_i64(number).map(|text| Values(vec![text]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element_seed(TextOrNumber)? {
                    if values.len() == MAX_VALUES {
                        return Err(de::Error::custom(format_args!("more than {MAX_VALUES} values of a header")));
                    }
                    values.push(value);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_any(ListOrText)
    }
}

/// One value of a header. A list within a list is not allowed: each level would copy all of its values.
struct TextOrNumber;

impl<'de> DeserializeSeed<'de> for TextOrNumber {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for TextOrNumber {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a header")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

/// Adds the values of a header, and their length. Stops when they are too long.
fn read_entry(entry: &[u8], headers: &mut ResponseFields, length: &mut usize) -> Result<(), Malformed> {
    let (mut name, mut values) = (&b""[..], &b""[..]);
    let mut fields = Fields(entry);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(key)) => name = key,
            (2, Value::Bytes(value)) => values = value,
            (1 | 2, _) => return Err(Malformed),
            _ => {}
        }
    }
    let mut fields = Fields(values);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(value)) => {
                *length += name.len() + value.len() + 1;
                if *length > MAX_HEADER_BYTES || headers.0.len() > MAX_VALUES {
                    return Ok(());
                }
                headers.0.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
            }
            (1, _) => return Err(Malformed),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::write_message;

    #[test]
    fn a_context_has_a_status_and_headers() {
        let read = |json: &str| ResponseContext::from_json(json.as_bytes());
        let context = read(r#"{"status":200,"headers":{"B":["1","2"],"A":"x","C":[3],"D":[]}}"#).expect("a context");
        let fields = [("B", "1"), ("B", "2"), ("A", "x"), ("C", "3")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).to_vec();
        assert_eq!(context, ResponseContext { status: 200, headers: ResponseFields(fields) });
        for without in [r#"{"status":-1}"#, r#"{"status":-1,"headers":{}}"#, r#"{"status":-1,"headers":[]}"#] {
            let expected = ResponseContext { status: -1, headers: ResponseFields::default() };
            assert_eq!(read(without), Ok(expected), "{without}");
        }
        assert!(read(r#"{"status":1,"headers":null,"more":1}"#).is_ok());
        let many = |values: usize| {
            let (name, values) = ("x".repeat(1000), vec!["\"\""; values].join(","));
            format!(r#"{{"status":1,"headers":{{"{name}":[{values}]}}}}"#)
        };
        assert!(read(&many(262)).is_ok());
        assert!(read(&many(263)).expect_err("too many").0.contains("headers of more than 262144 bytes"));
        let empty = |values: usize| format!(r#"{{"status":1,"headers":{{"":[{}]}}}}"#, vec!["1"; values].join(","));
        assert!(read(&empty(MAX_VALUES)).is_ok());
        assert!(read(&empty(MAX_VALUES + 1)).expect_err("too many").0.contains("more than 10000 values"));
        assert!(
            read(r#"{"status":1,"headers":{"A":[["1"]]}}"#).expect_err("a list in a list").0.contains("invalid type")
        );
        let long = read(&format!(r#"{{"status":"{}"}}"#, "x".repeat(100_000))).expect_err("a text").0;
        assert!(long.len() < 1000 && long.contains("invalid type"), "{long}");
        for wrong in ["", "{}", "[]", "<html>", r#"{"status":"x"}"#, r#"{"status":1,"headers":["x"]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_context_in_protobuf_is_read() {
        let bytes: [&[u8]; 4] = [
            // These two lines are a recording.
            b"\x08\xc8\x01",
            b"\x12\x22\x0a\x0cContent-Type\x12\x12\x0a\x10application/json",
            b"\x12\x0c\x0a\x01B\x12\x07\x0a\x011\x0a\x02\xff2",
            // Fields of another version: a number, bytes, and numbers of fixed lengths.
            b"\x98\x06\x01\x7a\x01x\x7d1234\x7912345678",
        ];
        let context = ResponseContext::from_proto(&bytes.concat()).expect("a response");
        let field = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        let fields = vec![field("Content-Type", b"application/json"), field("B", b"1"), field("B", b"\xff2")];
        assert_eq!(context, ResponseContext { status: 200, headers: ResponseFields(fields) });
        let negative =
            ResponseContext::from_proto(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").expect("a response");
        assert_eq!(negative.status, -1);
        assert_eq!(ResponseContext::from_proto(b"").expect("a response").status, 0);
    }

    #[test]
    fn other_bytes_than_protobuf_are_a_violation() {
        let wrong: [&[u8]; 9] = [
            b"{\"status\":200}",
            b"\x08",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0a\x01x",
            b"\x10\x01",
            b"\x12\x05x",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
            b"\x12\x04\x12\x02\x08\x01",
            b"\x0b\x0c",
        ];
        for bytes in wrong {
            let violation = ResponseContext::from_proto(bytes).expect_err("no response");
            assert_eq!(violation.0, "its response is not the protobuf message of a response", "{bytes:?}");
        }
        // Each value counts with its name: the message is shorter than its headers.
        let headers = |values: usize| {
            let (mut entry, mut bytes) = (Vec::new(), vec![8, 1]);
            write_message(&mut entry, 1, &[b'x'; 1000]);
            write_message(&mut entry, 2, &[0x0a, 0].repeat(values));
            write_message(&mut bytes, 2, &entry);
            ResponseContext::from_proto(&bytes)
        };
        assert_eq!(headers(261).expect("a response").headers.0.len(), 261);
        assert!(headers(262).expect_err("too many").0.contains("headers of more than 262144 bytes"));
        let (mut entry, mut bytes) = (Vec::new(), vec![8, 1]);
        write_message(&mut entry, 2, &[0x0a, 0].repeat(MAX_VALUES + 1));
        write_message(&mut bytes, 2, &entry);
        let many = ResponseContext::from_proto(&bytes).expect_err("too many").0;
        assert!(many.contains("more than 10000 values"), "{many}");
    }
}
