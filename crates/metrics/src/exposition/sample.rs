//! The labels and the value of a sample.

use std::fmt::Display;

/// The labels of a sample: names and values.
pub type Labels<'l> = &'l [(&'static str, &'l str)];

/// The value of a sample: a text has all of its digits.
pub trait Number: Display {
    /// The nearest number of 64 bits, which protocol buffers have.
    fn nearest(&self) -> f64;
}

// === impl Number ===

impl<N: Number + ?Sized> Number for &N {
    fn nearest(&self) -> f64 {
        (**self).nearest()
    }
}

macro_rules! numbers {
    ($($kind:ty)*) => {
        $(impl Number for $kind {
            fn nearest(&self) -> f64 {
                *self as f64
            }
        })*
    };
}

numbers! { u8 i32 i64 u64 usize f64 }

/// A character of a label: another control character than the end of a line could confuse a terminal.
pub fn plain(c: char) -> char {
    if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c }
}
