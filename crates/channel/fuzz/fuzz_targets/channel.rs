//! Feeds libFuzzer's inputs to the programs that tests/fuzz_programs.rs runs on random ones.

#![no_main]

#[path = "../../tests/hostile/mod.rs"]
mod hostile;
#[path = "../program.rs"]
mod program;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| program::run(bytes));
