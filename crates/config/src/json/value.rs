//! A JSON value, and how serde_json builds it.
//!
//! Members keep their order. A key that appears twice in one object is an error: JSON's readers disagree about which
//! of the two counts.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::error::quoted;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonValue {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    String(String),
    Array(Vec<JsonValue>),
    /// Boxed, so that the size of the map does not make an array of a million small values large.
    Object(Box<IndexMap<String, JsonValue>>),
}

// === impl JsonValue ===

impl JsonValue {
    /// How deeply arrays and objects are nested, this one included.
    pub fn depth(&self) -> usize {
        match self {
            Self::Array(elements) => 1 + elements.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(members) => 1 + members.values().map(Self::depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// The kind of value, for messages: `an array`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

impl<'de> Deserialize<'de> for JsonValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = JsonValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonValue, E> {
        Ok(JsonValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonValue, E> {
        Ok(JsonValue::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonValue, E> {
        Ok(JsonValue::Integer(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonValue, E> {
        Ok(JsonValue::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonValue, E> {
        Ok(JsonValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonValue, E> {
        Ok(JsonValue::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<JsonValue, E> {
        Ok(JsonValue::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<JsonValue, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element()? {
            array.push(element);
        }
        Ok(JsonValue::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<JsonValue, A::Error> {
        let mut object = IndexMap::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                let key = quoted(&key);
                return Err(A::Error::custom(format!("the key {key} appears twice in one object; remove one")));
            }
            object.insert(key, members.next_value()?);
        }
        Ok(JsonValue::Object(Box::new(object)))
    }
}
