//! Lines on standard error, where PHP's own messages go, too. A line that cannot be written is lost.

#![allow(unsafe_code)] // calls C

use crate::sapi;
use std::io::Write;

/// Writes one line.
pub fn write(message: &str) {
    let _ = std::io::stderr().write_all(format!("{}\n", message.trim_end()).as_bytes());
}

/// Writes a warning: a line with time and level, in the supervisor's format.
pub fn warn(message: &str) {
    write(&format!("{}{message}", warning_prefix()));
}

/// Time and level.
fn warning_prefix() -> String {
    let mut bytes = [0; 64];
    let mut text = sapi::Text { bytes: bytes.as_mut_ptr(), room: bytes.len(), len: 0 };
    // SAFETY: `room` is the length of `bytes`, which outlives the call; C counts in `len` what it writes.
    unsafe { sapi::howdah_text_warning(&raw mut text) };
    String::from_utf8_lossy(&bytes[..text.len]).into_owned()
}
