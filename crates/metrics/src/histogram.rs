//! The buckets of times. A time is counted once, in a bucket that lies within one native bucket and within one classic one:
//! the bounds of both divide it from the others.
//!
//! - Native ones are exponential with Prometheus' schema 3: each is 2^(1/8) times as wide as the one before it, which is 9 %.
//! - Classic ones: from half a millisecond, which a small page of PHP takes, to the ten seconds that no one waits for.
//!
//! Times up to 2 µs are in one bucket, and so are those above the last bound, four minutes.

use std::time::Duration;

/// The upper bounds of the classic buckets, in nanoseconds. One more bucket has no bound.
pub const CLASSIC_BOUNDS: [u64; 14] = [
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// The same as labels, in seconds, and the label of the last bucket.
pub const CLASSIC_LABELS: [&str; 15] = [
    "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0",
    "+Inf",
];
/// Prometheus' name for the resolution of the native buckets.
pub const SCHEMA: i32 = 3;
/// Times up to this one, in seconds, are in the native bucket of zero.
pub const ZERO_THRESHOLD: f64 = 1.0 / (1 << -FIRST_OCTAVE) as f64;
/// The number of buckets.
pub const BUCKETS: usize = NATIVE_BOUNDS.len() + CLASSIC_BOUNDS.len() - SHARED_BOUNDS;
/// The words of a histogram: its buckets, each without those below it, and the sum in nanoseconds.
pub const WORDS: usize = BUCKETS + 1;

/// Powers of two in seconds: where the native buckets begin and end.
const FIRST_OCTAVE: i32 = -19;
const LAST_OCTAVE: i32 = 8;
const OCTAVES: usize = (LAST_OCTAVE - FIRST_OCTAVE) as usize;
const BUCKETS_OF_OCTAVE: usize = 1 << SCHEMA;
/// The index of the first native bucket: the one with the index 0 ends at a second.
const FIRST_INDEX: i32 = FIRST_OCTAVE * BUCKETS_OF_OCTAVE as i32 + 1;
/// 2^(n/8).
const ROOTS: [f64; BUCKETS_OF_OCTAVE] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_5,
];
const NATIVE_BOUNDS: [u64; NATIVE] = native_bounds();
/// Their number, with the bound of the bucket of zero.
const NATIVE: usize = OCTAVES * BUCKETS_OF_OCTAVE + 1;
/// A quarter, a half and a whole second are bounds of both.
const SHARED_BOUNDS: usize = 3;
/// The upper bounds of all buckets, in nanoseconds. The last bucket has the times above it, too.
const BOUNDS: [u64; BUCKETS] = bounds();
/// The first bucket of each eighth between two powers of two, in nanoseconds.
const SLOTS: [u8; 64 * 8] = slots();

/// The bucket of a time, and its nanoseconds.
pub fn bucket(time: Duration) -> (usize, u64) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let least = nanoseconds.min(BOUNDS[BUCKETS - 1]);
    let mut bucket = usize::from(SLOTS[slot(least)]);
    // At most three steps: a slot is 12.5 % wide.
    while BOUNDS[bucket] < least {
        bucket += 1;
    }
    (bucket, nanoseconds)
}

/// How many times there are.
pub fn count(words: &[u64]) -> u64 {
    words[..BUCKETS].iter().fold(0, |sum, count| sum.wrapping_add(*count))
}

/// The sum in nanoseconds.
pub fn sum(words: &[u64]) -> u64 {
    words[BUCKETS]
}

/// The classic buckets, each with those below it.
pub fn classic(words: &[u64]) -> impl Iterator<Item = (&'static str, u64)> {
    let (mut bucket, mut below) = (0, 0_u64);
    let bounds = CLASSIC_BOUNDS.into_iter().chain([u64::MAX]);
    CLASSIC_LABELS.into_iter().zip(bounds).map(move |(label, bound)| {
        while bucket < BUCKETS && BOUNDS[bucket] <= bound {
            below = below.wrapping_add(words[bucket]);
            bucket += 1;
        }
        (label, below)
    })
}

/// The number of times in the native bucket of zero, and the other buckets that have any, by their index.
pub fn native(words: &[u64]) -> (u64, Vec<(i32, u64)>) {
    let mut buckets: Vec<(i32, u64)> = Vec::new();
    let mut index = FIRST_INDEX;
    for (bound, count) in BOUNDS.iter().zip(words).skip(1) {
        while NATIVE_BOUNDS[(index - FIRST_INDEX + 1) as usize] < *bound {
            index += 1;
        }
        match buckets.last_mut() {
            _ if *count == 0 => {}
            Some((last, sum)) if *last == index => *sum = sum.wrapping_add(*count),
            _ => buckets.push((index, *count)),
        }
    }
    (words[0], buckets)
}

const fn slot(nanoseconds: u64) -> usize {
    // The first slots are finer than a nanosecond.
    let power = 63 - (nanoseconds | 8).leading_zeros() as usize;
    (power << 3) | ((nanoseconds >> (power - 3)) & 7) as usize
}

/// The bounds are whole nanoseconds, as the times are: a time is below one exactly if it is below its whole part.
const fn native_bounds() -> [u64; NATIVE] {
    let mut bounds = [0; NATIVE];
    let mut number = 0;
    while number < bounds.len() {
        let octave = (1_u64 << (number / BUCKETS_OF_OCTAVE)) as f64;
        bounds[number] = (1e9 * ZERO_THRESHOLD * octave * ROOTS[number % BUCKETS_OF_OCTAVE]) as u64;
        number += 1;
    }
    bounds
}

const fn bounds() -> [u64; BUCKETS] {
    let mut bounds = [0; BUCKETS];
    let (mut native, mut classic, mut number) = (0, 0, 0);
    while number < bounds.len() {
        let is_classic = classic < CLASSIC_BOUNDS.len() && CLASSIC_BOUNDS[classic] <= NATIVE_BOUNDS[native];
        let is_native = !is_classic || CLASSIC_BOUNDS[classic] == NATIVE_BOUNDS[native];
        bounds[number] = if is_classic { CLASSIC_BOUNDS[classic] } else { NATIVE_BOUNDS[native] };
        classic += is_classic as usize;
        native += is_native as usize;
        number += 1;
    }
    assert!(native == NATIVE_BOUNDS.len() && classic == CLASSIC_BOUNDS.len());
    bounds
}

const fn slots() -> [u8; 64 * 8] {
    let mut slots = [0; 64 * 8];
    let mut number = 3 << 3;
    while number < slots.len() {
        let lowest = (8 + (number as u64 & 7)) << ((number >> 3) - 3);
        let mut bucket = 0;
        while bucket < BOUNDS.len() - 1 && BOUNDS[bucket] < lowest {
            bucket += 1;
        }
        slots[number] = bucket as u8;
        number += 1;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(nanoseconds: &[u64]) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        nanoseconds.iter().for_each(|time| words[bucket(Duration::from_nanos(*time)).0] += 1);
        words
    }

    /// Around each bound, and everything between.
    fn times() -> Vec<u64> {
        let around = BOUNDS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        let random = (0..20_000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (10 + n % 54));
        around.chain([0, 1, 7, 8, u64::MAX]).chain(random).collect()
    }

    #[test]
    fn a_time_is_in_the_bucket_that_a_search_finds() {
        for time in times() {
            let searched = BOUNDS.iter().position(|bound| time <= *bound).unwrap_or(BUCKETS - 1);
            assert_eq!(bucket(Duration::from_nanos(time)), (searched, time), "{time}");
        }
        assert_eq!(bucket(Duration::MAX), (BUCKETS - 1, u64::MAX));
    }

    #[test]
    fn classic_buckets_have_the_times_up_to_their_bound() {
        let times = times();
        let words = words(&times);
        for ((label, found), bound) in classic(&words).zip(CLASSIC_BOUNDS.into_iter().chain([u64::MAX])) {
            assert_eq!(found, times.iter().filter(|time| **time <= bound).count() as u64, "{label}");
        }
        assert_eq!(classic(&words).last(), Some(("+Inf", count(&words))));
        for (bound, label) in CLASSIC_BOUNDS.iter().zip(CLASSIC_LABELS) {
            assert_eq!((label.parse::<f64>().unwrap() * 1e9).round() as u64, *bound);
        }
    }

    #[test]
    fn native_buckets_have_the_times_between_powers_of_the_schema() {
        let times = times();
        let (zero, buckets) = native(&words(&times));
        let seconds = |time: &u64| *time as f64 / 1e9;
        assert_eq!(zero, times.iter().filter(|time| seconds(time) <= ZERO_THRESHOLD).count() as u64);
        let last = LAST_OCTAVE * BUCKETS_OF_OCTAVE as i32;
        let bound = |index: i32| 2_f64.powf(f64::from(index) / BUCKETS_OF_OCTAVE as f64);
        assert_eq!((buckets.len(), buckets.last().map(|(index, _)| *index)), (NATIVE_BOUNDS.len() - 1, Some(last)));
        for (index, found) in buckets {
            let is_within =
                |time: &&u64| seconds(time) > bound(index - 1) && (index == last || seconds(time) <= bound(index));
            assert_eq!(found, times.iter().filter(is_within).count() as u64, "{index}");
        }
        assert_eq!(native(&words(&[1_000_000_000])), (0, vec![(0, 1)]), "a second is the upper bound of the index 0");
    }
}
