//! Shorter timeouts for end-to-end tests: builds with debug assertions divide the long ones by `HOWDAH_TEST_TIME_DIVIDER`.
//!
//! A test of a hanging process would otherwise wait for a minute. All processes of one howdah inherit the variable.
//! Release builds ignore it. A value that is not a positive number counts as 1.

use std::sync::LazyLock;
use std::time::Duration;

const VARIABLE: &str = "HOWDAH_TEST_TIME_DIVIDER";
const ACME_VARIABLE: &str = "HOWDAH_TEST_ACME_TIME_DIVIDER";

/// A timeout, divided in a test.
pub fn divided(timeout: Duration) -> Duration {
    if cfg!(debug_assertions) { timeout / *DIVIDER } else { timeout }
}

/// A pause between attempts to obtain a certificate, divided in a test by `HOWDAH_TEST_ACME_TIME_DIVIDER`.
pub fn divided_for_acme(pause: Duration) -> Duration {
    static DIVIDER: LazyLock<u32> = LazyLock::new(|| parse(std::env::var(ACME_VARIABLE).ok().as_deref()));
    if cfg!(debug_assertions) { pause / *DIVIDER } else { pause }
}

static DIVIDER: LazyLock<u32> = LazyLock::new(|| parse(std::env::var(VARIABLE).ok().as_deref()));

fn parse(text: Option<&str>) -> u32 {
    text.and_then(|text| text.parse().ok()).filter(|divider| *divider > 0).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_positive_number_divides() {
        for (text, divider) in [(None, 1), (Some("10"), 10), (Some("0"), 1), (Some("-1"), 1), (Some("ten"), 1)] {
            assert_eq!(parse(text), divider, "{text:?}");
        }
    }
}
