//! The growth of a number with each request, from a sample of requests.
//!
//! The mean counts, with its confidence interval of 95 %: a list that grows by doubling leaves most requests as they were,
//! and its median is 0. Caches fill at first: a number grows only if its later half does, too.
//!
//! Source of the interval: Student's t distribution, by the expansion of Abramowitz and Stegun, "Handbook of Mathematical
//! Functions", 26.7.5. The changes are not normally distributed, but the means of many of them are.

/// The growth of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The number of requests.
    pub requests: usize,
    /// Per request.
    pub median: f64,
    /// Per request.
    pub mean: f64,
    /// The bounds of the mean, with a confidence of 95 %.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Whether it grows with the requests, and still did in their later half.
    pub is_leak: bool,
}

/// With fewer requests no leak is found: too few for a mean.
pub const LEAST_REQUESTS: usize = 20;
/// The quantile of the normal distribution for 95 %, two-sided.
const Z: f64 = 1.959_964;

// === impl Growth ===

impl Growth {
    /// The growth by these changes, in the order of the requests.
    pub fn of(changes: &[f64]) -> Growth {
        let (mean, low, high) = interval(changes);
        let (_, later_low, _) = interval(&changes[changes.len() / 2..]);
        Growth {
            requests: changes.len(),
            median: median(changes),
            mean,
            low,
            high,
            is_leak: changes.len() >= LEAST_REQUESTS && low > 0.0 && later_low > 0.0,
        }
    }
}

/// The mean, and the bounds of its confidence interval.
fn interval(changes: &[f64]) -> (f64, f64, f64) {
    let count = changes.len() as f64;
    if changes.is_empty() {
        return (0.0, 0.0, 0.0);
    }
    let mean = changes.iter().sum::<f64>() / count;
    if changes.len() < 2 {
        return (mean, f64::NEG_INFINITY, f64::INFINITY);
    }
    let freedom = count - 1.0;
    let variance = changes.iter().map(|change| (change - mean).powi(2)).sum::<f64>() / freedom;
    let t = Z
        + (Z.powi(3) + Z) / (4.0 * freedom)
        + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * freedom.powi(2));
    let half = t * (variance / count).sqrt();
    (mean, mean - half, mean + half)
}

fn median(changes: &[f64]) -> f64 {
    let mut sorted = changes.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_those_of_students_distribution() {
        // t(0.975) is 2.262 for 9 degrees of freedom, and 2.045 for 29.
        for (count, t) in [(10, 2.262), (30, 2.045)] {
            let changes: Vec<f64> = (0..count).map(f64::from).collect();
            let growth = Growth::of(&changes);
            let mean = f64::from(count - 1) / 2.0;
            let variance = changes.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count - 1);
            let expected = t * (variance / f64::from(count)).sqrt();
            assert!((growth.high - growth.mean - expected).abs() < 0.01 * expected, "{growth:?}, {expected}");
            assert_eq!(growth.mean, mean);
        }
    }

    #[test]
    fn a_leak_grows_with_certainty_until_the_end() {
        let leaks = |changes: &[f64]| Growth::of(changes).is_leak;
        assert!(leaks(&[100.0; 20]));
        assert!(!leaks(&[100.0; 19]), "too few requests");
        assert!(!leaks(&[0.0; 100]));
        assert!(!leaks(&[-5.0; 100]));
        let cache = [[1000.0; 50], [0.0; 50]].concat();
        assert!(!leaks(&cache), "a cache that is full");
        let mut noise: Vec<f64> = (0..100).map(|n| if n % 2 == 0 { 64.0 } else { -64.0 }).collect();
        assert!(!leaks(&noise));
        noise.iter_mut().for_each(|change| *change += 40.0);
        assert!(leaks(&noise));
        let mut once = vec![0.0; 200];
        once[150] = 2e6;
        assert!(!leaks(&once), "a single jump is no growth");
        let steps: Vec<f64> = (1..=400).map(|n| if n % 16 == 0 { 4096.0 } else { 0.0 }).collect();
        assert!(leaks(&steps), "memory that grows in steps");
        assert_eq!(Growth::of(&steps).median, 0.0);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!((median(&[]), median(&[3.0]), median(&[5.0, 1.0, 2.0]), median(&[4.0, 1.0])), (0.0, 3.0, 2.0, 2.5));
        assert_eq!(Growth::of(&[7.0]).mean, 7.0);
        assert!(!Growth::of(&[]).is_leak);
    }
}
