//! The fuzz targets with random inputs, without a fuzzer: see ../fuzz/README.md.

#[path = "../fuzz/program.rs"]
mod program;

use std::time::{Duration, Instant};

use program::cpu_clock::CpuClock;

/// The number of inputs. `HOWDAH_FUZZ_SECONDS` runs inputs for a time instead, `HOWDAH_FUZZ_INPUT` one input from a
/// file.
const INPUTS: u64 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

const EXAMPLES: &str = include_str!("../examples/configurations.json");

/// Tokens of configurations, and tokens that break them.
const TOKENS: [&str; 44] = [
    "{",
    "}",
    "[",
    "]",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    ":",
    ",",
    " ",
    "\n",
    "\"",
    "\\",
    "//",
    "/*",
    "*/",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "1.5",
    "99999999999999999999",
    "\"listeners\"",
    "\"*:80\"",
    "\"pass\"",
    "\"routes\"",
    "\"applications\"",
    "\"type\"",
    "\"php\"",
    "\"root\"",
    "\"/srv\"",
    "\"match\"",
    "\"uri\"",
    "\"~(a*)*b\"",
    "\"action\"",
    "\"share\"",
    "\"/a$uri\"",
    "\"\\ud800\"",
    "\u{feff}",
    "ä",
];

#[test]
fn no_input_breaks_the_parser_or_the_edits() {
    if let Ok(path) = std::env::var("HOWDAH_FUZZ_INPUT") {
        let bytes = std::fs::read(path).expect("the input");
        program::read(&bytes);
        return program::edit(&bytes);
    }
    let seconds = std::env::var("HOWDAH_FUZZ_SECONDS").ok().map(|text| text.parse().expect("a number of seconds"));
    let begin = Instant::now();
    let first = if seconds.is_some() { u64::from(std::process::id()) << 32 } else { 0 };
    for seed in first.. {
        let over = match seconds {
            Some(seconds) => begin.elapsed() > Duration::from_secs(seconds),
            None => seed == INPUTS,
        };
        if over {
            break;
        }
        let mut random = Random(seed);
        let (run, bytes): (fn(&[u8]), _) = match seed % 4 {
            0 => (program::read, random.tokens()),
            1 => (program::read, random.mutated_example()),
            _ => (program::edit, random.bytes()),
        };
        if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
            let path = std::env::temp_dir().join(format!("howdah-config-fuzz-{seed}"));
            std::fs::write(&path, &bytes).expect("a file for the input");
            eprintln!("to repeat it: HOWDAH_FUZZ_INPUT={}", path.display());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn ten_mebibytes_and_ten_thousand_levels_are_rejected_quickly() {
    for bytes in [vec![b'['; 10 << 20], b"{\"a\":".repeat(2 << 20), b"[".repeat(10_000), b"{\"a\":".repeat(10_000)] {
        let clock = CpuClock::start();
        program::read(&bytes);
        assert!(clock.elapsed() < Duration::from_secs(2), "{:?}", clock.elapsed());
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("less than a usize")
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(600)).map(|_| self.next() as u8).collect()
    }

    fn tokens(&mut self) -> Vec<u8> {
        (0..self.below(60)).flat_map(|_| TOKENS[self.below(TOKENS.len())].bytes()).collect()
    }

    /// One of the examples, with a few bytes changed, removed or repeated.
    fn mutated_example(&mut self) -> Vec<u8> {
        let examples: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&howdah_config::Document::parse(EXAMPLES).expect("JSON").compact())
                .expect("an object");
        let example = examples.values().nth(self.below(examples.len())).expect("an example");
        let mut bytes = example.to_string().into_bytes();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[at] = self.next() as u8,
                1 => drop(bytes.remove(at)),
                2 => drop(bytes.splice(at..at, TOKENS[self.below(TOKENS.len())].bytes())),
                _ => {
                    let end = at + self.below(bytes.len() - at);
                    let piece = bytes[at..end].to_vec();
                    drop(bytes.splice(end..end, piece));
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    }
}
