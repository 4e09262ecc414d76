//! The buckets of times: from half a millisecond, which a small page of PHP takes, to the ten seconds that no one waits for.

use std::time::Duration;

/// The upper bounds of the buckets, in nanoseconds. One more bucket has no bound.
pub const BOUNDS: [u64; 14] = [
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
/// The same as labels, in seconds.
pub const BOUND_LABELS: [&str; 14] =
    ["0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0"];
/// The number of buckets.
pub const BUCKETS: usize = BOUNDS.len() + 1;
/// The words of a histogram: its buckets, each without those below it, and the sum in nanoseconds.
pub const WORDS: usize = BUCKETS + 1;

/// The bucket of a time, and its nanoseconds.
pub fn bucket(time: Duration) -> (usize, u64) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // One after the other: most times are in the first ones.
    (BOUNDS.iter().position(|bound| nanoseconds <= *bound).unwrap_or(BOUNDS.len()), nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let bucket_of = |micros| bucket(Duration::from_micros(micros)).0;
        assert_eq!((bucket_of(0), bucket_of(500), bucket_of(501), bucket_of(1000)), (0, 0, 1, 1));
        assert_eq!((bucket_of(10_000_000), bucket_of(10_000_001)), (13, 14));
        assert_eq!(bucket(Duration::MAX), (14, u64::MAX));
    }

    #[test]
    fn the_labels_are_the_bounds() {
        for (bound, label) in BOUNDS.iter().zip(BOUND_LABELS) {
            assert_eq!((label.parse::<f64>().unwrap() * 1e9).round() as u64, *bound);
        }
    }
}
