//! Random programs for the fuzz target, without a fuzzer: see ../fuzz/README.md.

mod hostile;
#[path = "../fuzz/program.rs"]
mod program;

use std::time::{Duration, Instant};

/// Runs this many programs, or as many as fit into `HOWDAH_FUZZ_SECONDS`; or the one in the file `HOWDAH_FUZZ_INPUT`.
const PROGRAMS: u64 = if cfg!(debug_assertions) { 500 } else { 5_000 };

#[test]
fn no_program_breaks_the_router_end() {
    if let Ok(path) = std::env::var("HOWDAH_FUZZ_INPUT") {
        return program::run(&std::fs::read(path).expect("the input"));
    }
    let seconds = std::env::var("HOWDAH_FUZZ_SECONDS").ok().map(|text| text.parse().expect("a number of seconds"));
    let begin = Instant::now();
    let first = if seconds.is_some() { u64::from(std::process::id()) << 32 } else { 0 };
    for seed in first.. {
        let over = match seconds {
            Some(seconds) => begin.elapsed() > Duration::from_secs(seconds),
            None => seed == PROGRAMS,
        };
        if over {
            break;
        }
        let bytes = random_program(seed);
        if let Err(panic) = std::panic::catch_unwind(|| program::run(&bytes)) {
            let path = std::env::temp_dir().join(format!("howdah-fuzz-{seed}"));
            std::fs::write(&path, &bytes).expect("a file for the input");
            eprintln!("again: HOWDAH_FUZZ_INPUT={}", path.display());
            std::panic::resume_unwind(panic);
        }
    }
}

fn random_program(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let len = next() % 1500;
    // Small bytes more often: they are steps and places rather than noise.
    (0..len).map(|_| next()).map(|word| if word >> 60 < 8 { (word % 24) as u8 } else { word as u8 }).collect()
}
