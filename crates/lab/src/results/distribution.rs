//! Times of responses: percentiles, and a histogram for charts.

use serde::{Deserialize, Serialize};

/// The times of a number of responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The number of responses.
    pub count: u64,
    /// Milliseconds; `None` without a response.
    pub percentiles: Option<Percentiles>,
    /// `[microseconds, count]` in ascending order, without empty buckets: a response in the bucket took up to these
    /// microseconds, and at most 1 % less. The percentiles come from a finer histogram (0.1 %).
    pub buckets: Vec<(u64, u64)>,
}

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The fastest response.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half of the responses took no longer.
    pub p50: f64,
    /// 80 % of the responses took no longer.
    pub p80: f64,
    /// 90 % of the responses took no longer.
    pub p90: f64,
    /// 95 % of the responses took no longer.
    pub p95: f64,
    /// 99 % of the responses took no longer.
    pub p99: f64,
    /// 99.9 % of the responses took no longer.
    pub p999: f64,
    /// The slowest response.
    pub max: f64,
}
