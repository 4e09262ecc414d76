//! JSON: text to values ([`parser`]), and values to text ([`print`]). A leaf: it knows nothing of configurations.

pub(crate) mod parser;
pub(crate) mod print;
pub(crate) mod value;

pub(crate) use parser::{parse, parse_bytes};
pub(crate) use value::JsonValue;
