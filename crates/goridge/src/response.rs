//! The context of a response: its status and its headers.

use crate::frame::{Violation, quoted, shortened};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
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
                let (mut fields, mut length) = (Vec::new(), 0);
                while let Some((name, Values(values))) = map.next_entry::<String, Values>()? {
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
                Ok(Values(vec![text.to_owned()]))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Values, E> {
                Ok(Values(vec![number.to_string()]))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Values, E> {
                Ok(Values(vec![number.to_string()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(Values(value)) = list.next_element::<Values>()? {
                    values.extend(value);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_any(ListOrText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let long = read(&format!(r#"{{"status":"{}"}}"#, "x".repeat(100_000))).expect_err("a text").0;
        assert!(long.len() < 1000 && long.contains("invalid type"), "{long}");
        for wrong in ["", "{}", "[]", "<html>", r#"{"status":"x"}"#, r#"{"status":1,"headers":["x"]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
