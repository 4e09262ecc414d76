//! Means of rounds with their confidence intervals, and comparisons of two series of rounds.
//!
//! A lab has few rounds, five or so. The usual percentile bootstrap is too narrow for so few: of 20 races of a stack
//! against itself it calls three or four a difference. Therefore the bootstrap gives the standard error, corrected by
//! √(n/(n−1)), and Student's t the width (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015: "t interval
//! with bootstrap standard error"). Figures such as rates and times are compared by the logarithm of their ratio.

use crate::results::{Estimate, Metric};
use fastrand::Rng;

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Resamples of the bootstrap.
    pub resamples: u32,
    /// The seed.
    pub seed: u64,
    /// A smaller difference does not matter, even if it is no noise: 0.01 is 1 %, or one percentage point of a share.
    pub smallest_difference: f64,
}

/// The difference of a series from a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The series' mean divided by the baseline's; for shares, their difference.
    pub ratio: f64,
    /// The interval of the ratio; `None` with a single round.
    pub interval: Option<(f64, f64)>,
    /// Whether it is neither noise nor too small to matter.
    pub significant: bool,
    /// Whether the series is better than the baseline; `None` if the difference is not significant.
    pub is_better: Option<bool>,
}

/// The confidence level of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Student's t for the confidence level, by degrees of freedom from 1.
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same for more degrees of freedom; a little too wide.
const STUDENT_T_OF_MANY: f64 = 2.021;

// === impl Settings ===

impl Default for Settings {
    fn default() -> Settings {
        Settings { resamples: 2000, seed: 1, smallest_difference: 0.01 }
    }
}

// === impl Metric ===

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 12] = [
        Metric::RequestsPerSecond,
        Metric::RequestsPerCpuSecond,
        Metric::RightShare,
        Metric::LatencyMean,
        Metric::LatencyP50,
        Metric::LatencyP80,
        Metric::LatencyP90,
        Metric::LatencyP95,
        Metric::LatencyP99,
        Metric::LatencyP999,
        Metric::CpuPercent,
        Metric::PssBytes,
    ];

    /// Whether a higher value is the better one.
    pub fn is_more_better(self) -> bool {
        matches!(self, Metric::RequestsPerSecond | Metric::RequestsPerCpuSecond | Metric::RightShare)
    }

    /// Whether it is a time of right responses.
    pub fn is_time(self) -> bool {
        !self.is_more_better() && !matches!(self, Metric::CpuPercent | Metric::PssBytes)
    }

    /// Whether it is a share, which is compared by the difference. All else is compared by the ratio.
    pub fn is_share(self) -> bool {
        self == Metric::RightShare
    }
}

/// The mean of the rounds and its interval. `None` without a usable value: a ratio's values are above 0.
pub fn estimate(values: &[f64], metric: Metric, settings: &Settings) -> Option<Estimate> {
    let scale = Scale::of(metric);
    let usable: Vec<_> = values.iter().copied().filter(|value| scale.takes(*value)).collect();
    let (mean, half_width) = mean_and_half_width(&scale.forward(&usable), settings)?;
    let interval = half_width.map(|half| (scale.back(mean - half), scale.back(mean + half)));
    Some(Estimate { value: scale.back(mean), interval, rounds: values.to_vec() })
}

/// Compares two stacks round by round: `values[i]` and `baseline[i]` are of the same round. `None` without a common round.
pub fn compare_paired(values: &[f64], baseline: &[f64], metric: Metric, settings: &Settings) -> Option<Difference> {
    let scale = Scale::of(metric);
    let usable = values.iter().zip(baseline).filter(|(a, b)| scale.takes(**a) && scale.takes(**b));
    let differences: Vec<_> = usable.map(|(a, b)| scale.forward_one(*a) - scale.forward_one(*b)).collect();
    let (mean, half_width) = mean_and_half_width(&differences, settings)?;
    Some(judge(mean, half_width, metric, settings))
}

/// Compares rounds that do not belong together, such as those of two labs. `None` if a side has no round.
pub fn compare_unpaired(values: &[f64], baseline: &[f64], metric: Metric, settings: &Settings) -> Option<Difference> {
    let scale = Scale::of(metric);
    let side = |values: &[f64]| {
        let usable: Vec<_> = values.iter().copied().filter(|value| scale.takes(*value)).collect();
        let usable = scale.forward(&usable);
        let (mean, _) = mean_and_half_width(&usable, settings)?;
        Some((mean, standard_error(&usable, settings), usable.len()))
    };
    let ((a, error_a, rounds_a), (b, error_b, rounds_b)) = (side(values)?, side(baseline)?);
    let half_width = match (error_a, error_b) {
        // Welch's approximation would be narrower; the smaller side decides.
        (Some(error_a), Some(error_b)) => Some(student_t(rounds_a.min(rounds_b)) * error_a.hypot(error_b)),
        _ => None,
    };
    Some(judge(a - b, half_width, metric, settings))
}

fn judge(mean: f64, half_width: Option<f64>, metric: Metric, settings: &Settings) -> Difference {
    let scale = Scale::of(metric);
    let ratio = scale.back(mean);
    let distance = if metric.is_share() { mean.abs() } else { (ratio - 1.0).abs() };
    let significant = half_width.is_some_and(|half| mean.abs() > half) && distance >= settings.smallest_difference;
    Difference {
        ratio,
        interval: half_width.map(|half| (scale.back(mean - half), scale.back(mean + half))),
        significant,
        is_better: significant.then_some((mean > 0.0) == metric.is_more_better()),
    }
}

/// The mean, and half of the width of its interval; `None` without a value.
fn mean_and_half_width(values: &[f64], settings: &Settings) -> Option<(f64, Option<f64>)> {
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Some((mean, standard_error(values, settings).map(|error| error * student_t(values.len()))))
}

/// The bootstrap's standard error of the mean; `None` for a single value.
fn standard_error(values: &[f64], settings: &Settings) -> Option<f64> {
    let count = values.len();
    if count < 2 {
        return None;
    }
    let mut random = Rng::with_seed(settings.seed);
    let resamples = settings.resamples.max(100);
    let mut means =
        (0..resamples).map(|_| (0..count).map(|_| values[random.usize(..count)]).sum::<f64>() / count as f64);
    let (sum, squares) = means.by_ref().fold((0.0, 0.0), |(sum, squares), mean| (sum + mean, squares + mean * mean));
    let resamples = f64::from(resamples);
    let variance = (squares / resamples - (sum / resamples).powi(2)).max(0.0);
    Some((variance * count as f64 / (count - 1) as f64).sqrt())
}

fn student_t(values: usize) -> f64 {
    STUDENT_T.get(values.saturating_sub(2)).copied().unwrap_or(STUDENT_T_OF_MANY)
}

/// The scale on which a metric's values are averaged.
#[derive(Clone, Copy)]
enum Scale {
    Linear,
    Logarithmic,
}

// === impl Scale ===

impl Scale {
    fn of(metric: Metric) -> Scale {
        if metric.is_share() { Scale::Linear } else { Scale::Logarithmic }
    }

    fn takes(self, value: f64) -> bool {
        value.is_finite() && (matches!(self, Scale::Linear) || value > 0.0)
    }

    fn forward_one(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Logarithmic => value.ln(),
        }
    }

    fn forward(self, values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| self.forward_one(*value)).collect()
    }

    fn back(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Logarithmic => value.exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lab's rounds of a stack: the machine's mood of a round concerns all stacks, the rest is the stack's own noise.
    fn rounds(level: f64, noise: f64, moods: &[f64], random: &mut Rng) -> Vec<f64> {
        moods.iter().map(|mood| level * (mood + noise * normal(random)).exp()).collect()
    }

    fn normal(random: &mut Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    /// The number of significant differences in 20 races of two stacks whose levels have this ratio.
    fn significant_of_20(ratio: f64, count: usize, seed: u64) -> usize {
        let mut random = Rng::with_seed(seed);
        let races = (0..20).map(|_| {
            let moods: Vec<_> = (0..count).map(|_| 0.1 * normal(&mut random)).collect();
            let baseline = rounds(1000.0, 0.03, &moods, &mut random);
            let values = rounds(1000.0 * ratio, 0.03, &moods, &mut random);
            compare_paired(&values, &baseline, Metric::RequestsPerSecond, &Settings::default()).unwrap()
        });
        races.filter(|difference| difference.significant).count()
    }

    #[test]
    fn a_stack_raced_against_itself_is_rarely_different() {
        for count in [3, 5, 10] {
            let found: Vec<_> = (0..20).map(|seed| significant_of_20(1.0, count, seed)).collect();
            assert!(found[0] <= 2, "{count} rounds: {found:?}");
            // 95 %: of 400 races, 20 are expected. More than 32 would have a probability below 1 %.
            assert!(found.iter().sum::<usize>() <= 32, "{count} rounds: {found:?}");
        }
    }

    #[test]
    fn a_true_difference_is_found_although_the_machine_has_moods() {
        assert_eq!(significant_of_20(1.3, 5, 1), 20);
        assert!(significant_of_20(0.85, 5, 2) >= 18);
    }

    #[test]
    fn a_difference_has_a_direction() {
        let settings = Settings::default();
        let (low, high) = ([100.0, 101.0, 99.0, 100.0], [200.0, 202.0, 201.0, 200.0]);
        let rate = compare_paired(&high, &low, Metric::RequestsPerSecond, &settings).unwrap();
        assert_eq!((rate.significant, rate.is_better), (true, Some(true)));
        assert!((rate.ratio - 2.0).abs() < 0.05, "{rate:?}");
        let latency = compare_unpaired(&high, &low, Metric::LatencyP99, &settings).unwrap();
        assert_eq!((latency.significant, latency.is_better), (true, Some(false)));
        let (low, high) = latency.interval.unwrap();
        assert!(low < 2.0 && 2.0 < high, "{latency:?}");
    }

    #[test]
    fn shares_are_compared_by_their_difference() {
        let settings = Settings::default();
        let same = compare_paired(&[1.0; 4], &[1.0; 4], Metric::RightShare, &settings).unwrap();
        assert_eq!((same.ratio, same.significant), (0.0, false));
        let worse = compare_paired(&[0.8, 0.7, 0.8], &[1.0; 3], Metric::RightShare, &settings).unwrap();
        assert_eq!(worse.is_better, Some(false));
    }

    #[test]
    fn a_small_difference_and_a_single_round_are_no_difference() {
        let settings = Settings::default();
        let small = compare_paired(&[100.5; 5], &[100.0; 5], Metric::RequestsPerSecond, &settings).unwrap();
        assert!(!small.significant && small.interval.is_some());
        let single = compare_paired(&[200.0], &[100.0], Metric::RequestsPerSecond, &settings).unwrap();
        assert_eq!((single.significant, single.interval), (false, None));
        assert_eq!(compare_paired(&[], &[], Metric::RequestsPerSecond, &settings), None);
        assert_eq!(estimate(&[0.0], Metric::LatencyP50, &settings), None);
    }

    #[test]
    fn an_interval_contains_its_mean() {
        let estimate = estimate(&[90.0, 100.0, 110.0], Metric::LatencyP50, &Settings::default()).unwrap();
        let (low, high) = estimate.interval.unwrap();
        assert!(low < 90.0 && 110.0 < high && (99.0..100.0).contains(&estimate.value), "{estimate:?}");
    }
}
