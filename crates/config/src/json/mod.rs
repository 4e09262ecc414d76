//! JSON: text to values, and values to text.

mod parser;
pub(crate) mod print;

pub(crate) use parser::{MAX_DEPTH, Value, check_size, parse, too_deep};
