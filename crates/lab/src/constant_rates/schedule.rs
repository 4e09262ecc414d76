//! The time and the page of each request: constant rates, one after the other, and a mix of pages. Pure.

use std::str::FromStr;
use std::time::Duration;

/// A constant rate for some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStep {
    /// Requests per second.
    pub rate: f64,
    /// The duration.
    pub length: Duration,
}

/// A page and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `http://127.0.0.1:8080/page.php`
    pub url: String,
    /// The share, relative to the sum of all weights.
    pub weight: u32,
}

/// The times of all requests in their order, as durations since the start.
pub fn moments(steps: &[RateStep]) -> impl Iterator<Item = Duration> + use<'_> {
    let starts = steps.iter().scan(Duration::ZERO, |start, step| {
        let this = *start;
        *start += step.length;
        Some((this, step))
    });
    starts.flat_map(|(start, step)| {
        let count = (step.rate * step.length.as_secs_f64()).round() as u64;
        (0..count).map(move |number| start + Duration::from_secs_f64(number as f64 / step.rate))
    })
}

/// The page of the request with this number: the same mix in each run, evenly distributed in time.
pub fn choose(pages: &[Page], number: u64) -> usize {
    let total: u64 = pages.iter().map(|page| u64::from(page.weight)).sum();
    // A step without a common divisor with the total visits each position once in a round.
    let step = (1..total).rev().find(|step| greatest_common_divisor(*step, total) == 1 && *step < total * 2 / 3);
    let mut position = number.wrapping_mul(step.unwrap_or(1)) % total.max(1);
    for (index, page) in pages.iter().enumerate() {
        if position < u64::from(page.weight) {
            return index;
        }
        position -= u64::from(page.weight);
    }
    0
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

// === impl RateStep ===

impl FromStr for RateStep {
    type Err = String;

    /// `100:5` is 100 requests per second for 5 seconds.
    fn from_str(text: &str) -> Result<RateStep, String> {
        let wrong = || format!("{text:?} is not a step; write RATE:SECONDS, for example 100:5");
        let (rate, seconds) = text.split_once(':').ok_or_else(wrong)?;
        let (rate, seconds): (f64, f64) = (rate.parse().map_err(|_| wrong())?, seconds.parse().map_err(|_| wrong())?);
        if !(rate > 0.0 && rate <= 1e6 && seconds > 0.0 && seconds <= 86_400.0) {
            return Err(wrong());
        }
        Ok(RateStep { rate, length: Duration::from_secs_f64(seconds) })
    }
}

// === impl Page ===

impl FromStr for Page {
    type Err = String;

    /// `9=http://…` is requested nine times as often as `http://…`.
    fn from_str(text: &str) -> Result<Page, String> {
        let (weight, url) = match text.split_once('=') {
            Some((weight, url)) if weight.bytes().all(|byte| byte.is_ascii_digit()) => (weight.parse().ok(), url),
            _ => (Some(1), text),
        };
        let weight = weight.filter(|weight| *weight > 0).ok_or(format!("{text:?}: the minimum weight is 1"))?;
        if !url.starts_with("http://") {
            return Err(format!("{url:?} does not begin with http://"));
        }
        Ok(Page { url: url.to_owned(), weight })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other_without_a_gap() {
        let steps = ["2:1", "4:0.5"].map(|step| step.parse().unwrap());
        let moments: Vec<_> = moments(&steps).map(|moment| moment.as_millis()).collect();
        assert_eq!(moments, [0, 500, 1000, 1250]);
    }

    #[test]
    fn a_mix_has_its_shares_in_each_round() {
        let pages = ["9=http://a/", "http://b/"].map(|page| page.parse().unwrap());
        for round in 0..3 {
            let slow = (round * 10..round * 10 + 10).filter(|number| choose(&pages, *number) == 1).count();
            assert_eq!(slow, 1);
        }
        assert_eq!(choose(&pages[..1], 7), 0);
    }

    #[test]
    fn wrong_texts_are_rejected() {
        for wrong in ["5", "a:5", "0:1", "1:0", "-1:5"] {
            assert!(wrong.parse::<RateStep>().unwrap_err().contains("RATE:SECONDS"), "{wrong}");
        }
        for wrong in ["0=http://a/", "https://a/"] {
            assert!(wrong.parse::<Page>().is_err(), "{wrong}");
        }
    }
}
