//! Feeds libFuzzer's inputs to the edits of a document.

#![no_main]

#[path = "../program.rs"]
#[allow(dead_code)]
mod program;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| program::edit(bytes));
