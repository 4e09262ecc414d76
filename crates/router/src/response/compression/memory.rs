//! The memory of encoders: each has tables and a window, from 400 KB to more than 100 MB, for as long as its client takes
//! to read the response. A client of HTTP/2 may have a hundred responses that it does not read. Therefore all encoders
//! of the process together have a limit, beyond which responses are not compressed.

use crate::resources::counted_memory::CountedMemory;
use howdah_config::Encoding;
use std::sync::atomic::AtomicUsize;

/// All encoders of the process.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The most memory of all encoders.
const MOST: usize = 256 * MIB;
const MIB: usize = 1024 * 1024;
/// The memory beside the tables and the window, whose sizes depend on the length of the body.
const FIXED: usize = MIB / 2;

/// Takes the memory of an encoder, for a body of this length if that is known; `None` if others have it.
pub fn take(encoding: Encoding, length: Option<u64>) -> Option<CountedMemory> {
    // A single one may be larger than all are to be.
    CountedMemory::take(&USED, estimate(encoding, length).min(MOST), MOST)
}

/// The memory of an encoder, from the parameters of the levels of its library, rounded up.
fn estimate(encoding: Encoding, length: Option<u64>) -> usize {
    // The larger levels search with more tables than one.
    let (most, factor) = match encoding {
        Encoding::Gzip(_) | Encoding::Deflate(_) => return FIXED,
        Encoding::Zstd(..=2) => (2 * MIB, 4),
        Encoding::Zstd(..=4) => (5 * MIB, 4),
        Encoding::Zstd(..=8) => (8 * MIB, 4),
        Encoding::Zstd(..=11) => (26 * MIB, 4),
        Encoding::Zstd(..=16) => (70 * MIB, 16),
        Encoding::Zstd(..=19) => (90 * MIB, 16),
        Encoding::Zstd(_) => (140 * MIB, 16),
        Encoding::Brotli(..=4) => (3 * MIB, 8),
        Encoding::Brotli(..=6) => (5 * MIB, 8),
        Encoding::Brotli(..=7) => (12 * MIB, 64),
        Encoding::Brotli(_) => (36 * MIB, 64),
    };
    let of_length = |length: u64| {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(most);
        FIXED + factor * length.next_power_of_two()
    };
    length.map_or(most, |length| of_length(length).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_body_needs_less_memory() {
        for encoding in [Encoding::Zstd(3), Encoding::Zstd(19), Encoding::Brotli(4), Encoding::Brotli(11)] {
            let unknown = estimate(encoding, None);
            assert!(estimate(encoding, Some(10_000)) < unknown && estimate(encoding, Some(u64::MAX)) == unknown);
        }
        assert_eq!(estimate(Encoding::Gzip(6), None), estimate(Encoding::Gzip(9), Some(1)));
    }
}
