//! When a certificate is renewed, and when an attempt that failed is repeated.
//!
//! Without an opinion of the authority a certificate is renewed at two thirds of its life, somewhat earlier by chance, so
//! that not all certificates of a machine, or of the world, are renewed in the same minute. The authority's window (ARI,
//! RFC 9773) has priority, within limits: a certificate is never renewed later than at nine tenths of its life.

use howdah_protocol::messages::acme::FailureCause;
use std::time::Duration;

/// The time within which a certificate is accepted, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when.
    pub since: i64,
    /// Until when.
    pub until: i64,
}

/// The authority and the challenge of the next attempt, counted from the preferred ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// How many authorities were asked before it in this round.
    pub authority: usize,
    /// How many kinds of challenges were tried before it in this round.
    pub challenge: usize,
}

/// The pause after the first round that failed. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 60 * 60);
/// An authority cannot ask for a longer one.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// By how much of the life chance makes a renewal earlier.
const SPREAD: f64 = 0.03;

/// When to renew a certificate, in seconds since 1970. `chance` is between 0 and 1, and the same for each question about
/// one certificate.
pub fn renewal_time(validity: Validity, window: Option<(i64, i64)>, chance: f64) -> i64 {
    let Validity { since, until } = validity;
    let life = until.saturating_sub(since).max(0) as f64;
    let latest = since.saturating_add((life * 0.9) as i64);
    match window.filter(|(start, end)| start < end) {
        Some((start, end)) => start.saturating_add(((end as f64 - start as f64) * chance) as i64).min(latest),
        None => since.saturating_add((life * (2.0 / 3.0 - SPREAD * chance)) as i64),
    }
}

/// The pause after this number of rounds that failed in a row, at least one.
pub fn pause_after(failures: u32, chance: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    // A tenth more or less.
    pause.mul_f64(0.9 + 0.2 * chance)
}

/// The pause, or the longer one that an authority wants.
pub fn at_least(pause: Duration, retry_after: Option<Duration>) -> Duration {
    retry_after.map_or(pause, |after| pause.max(after.min(LONGEST_RETRY_AFTER)))
}

impl Attempt {
    /// The attempt after one that failed for this cause, in the same round; `None` if the round is over.
    pub fn next(self, cause: FailureCause, authorities: usize, challenges: usize) -> Option<Attempt> {
        let next = match cause {
            FailureCause::Authority => Attempt { authority: self.authority + 1, ..self },
            FailureCause::Challenge => Attempt { challenge: self.challenge + 1, ..self },
        };
        (next.authority < authorities && next.challenge < challenges).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn a_certificate_is_renewed_in_time() {
        let ninety = Validity { since: 0, until: 90 * DAY };
        let six = Validity { since: 1_000 * DAY, until: 1_006 * DAY };
        let table = [
            // Without an opinion: two thirds, or somewhat earlier.
            (ninety, None, 0.0, 60 * DAY),
            (ninety, None, 1.0, 57 * DAY + DAY * 3 / 10),
            (six, None, 0.0, 1_004 * DAY),
            // Within the window.
            (ninety, Some((40 * DAY, 44 * DAY)), 0.0, 40 * DAY),
            (ninety, Some((40 * DAY, 44 * DAY)), 0.5, 42 * DAY),
            // A window in the past: a certificate that will be revoked.
            (ninety, Some((-10 * DAY, -9 * DAY)), 0.0, -10 * DAY),
            // A window that is too late, or none at all.
            (ninety, Some((89 * DAY, 200 * DAY)), 0.9, 81 * DAY),
            (ninety, Some((50 * DAY, 50 * DAY)), 0.0, 60 * DAY),
            (ninety, Some((50 * DAY, 40 * DAY)), 0.0, 60 * DAY),
        ];
        for (validity, window, chance, expected) in table {
            let time = renewal_time(validity, window, chance);
            assert!((time - expected).abs() <= 1, "{validity:?} {window:?} {chance}: {time}");
        }
    }

    #[test]
    fn senseless_times_do_no_harm() {
        assert_eq!(renewal_time(Validity { since: 10, until: 5 }, None, 0.5), 10);
        let any = [i64::MIN, -1, 0, 1, i64::MAX];
        for since in any {
            for until in any {
                for window in [None, Some((since, until)), Some((until, since)), Some((i64::MIN, i64::MAX))] {
                    renewal_time(Validity { since, until }, window, 1.0);
                }
            }
        }
    }

    #[test]
    fn a_pause_grows_and_the_authority_can_only_make_it_longer() {
        let minutes = |failures, after: Option<u64>| {
            let after = after.map(|minutes| Duration::from_secs(60 * minutes));
            (at_least(pause_after(failures, 0.5), after).as_secs_f64() / 60.0).round() as u64
        };
        let table = [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (9, 256), (10, 360), (u32::MAX, 360), (0, 1)];
        for (failures, expected) in table {
            assert_eq!(minutes(failures, None), expected, "{failures}");
        }
        assert_eq!(minutes(1, Some(180)), 180);
        assert_eq!(minutes(10, Some(1)), 360);
        assert_eq!(minutes(1, Some(10_000_000)), 7 * 24 * 60);
        assert_ne!(pause_after(5, 0.0), pause_after(5, 1.0), "not all at once");
    }

    #[test]
    fn a_round_tries_each_authority_and_each_challenge() {
        use FailureCause::{Authority, Challenge};
        let at = |authority, challenge| Some(Attempt { authority, challenge });
        let first = Attempt::default();
        assert_eq!(first.next(Authority, 2, 2), at(1, 0));
        assert_eq!(first.next(Challenge, 2, 2), at(0, 1));
        assert_eq!(Attempt { authority: 1, challenge: 0 }.next(Challenge, 2, 2), at(1, 1));
        assert_eq!(Attempt { authority: 1, challenge: 0 }.next(Authority, 2, 2), None);
        assert_eq!(first.next(Challenge, 2, 1), None);
        assert_eq!(first.next(Authority, 1, 2), None);
    }
}
