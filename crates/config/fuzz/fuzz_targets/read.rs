//! Feeds libFuzzer's inputs to the parser.

#![no_main]

#[path = "../program.rs"]
#[allow(dead_code)]
mod program;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| program::read(bytes));
