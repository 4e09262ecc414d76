//! JSON: text to values, and values to text.

pub(crate) mod parser;
pub(crate) mod print;
pub(crate) mod value;

pub(crate) use parser::parse;
pub(crate) use value::JsonValue;
