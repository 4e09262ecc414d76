//! When a certificate is renewed, and when an attempt that failed is repeated.
//!
//! Without an opinion of the authority a certificate is renewed at two thirds of its life, somewhat earlier by chance, so
//! that not all certificates of a machine, or of the world, are renewed in the same minute. The authority's window (ARI,
//! RFC 9773) has priority, within limits: a certificate is never renewed later than at nine tenths of its life.
//!
//! The wall clock may be wrong, and jump. A certificate is renewed when it is time by that clock, or when the monotonic
//! clock has run long enough since the certificate became known ([`KnownTime`]). A new certificate bears the time of its
//! authority, so a clock that is months ahead causes one renewal, and not one after the other.

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

/// The time when a certificate became known, and the time since then by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownTime {
    /// In seconds since 1970, as far as the wall clock and the certificate agree.
    time: i64,
    /// By how many seconds the wall clock is ahead of the authority's; 0 if it may be right.
    ahead: i64,
}

/// The pause after the first round that failed. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 60 * 60);
/// An authority cannot ask for a longer one.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The least time between two certificates of a domain, whatever authorities and clocks want.
const LEAST_PAUSE: Duration = Duration::from_secs(60 * 60);
/// The same for certificates that live for seconds: no authority is asked without a pause.
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);
/// A difference between two clocks that is worth a line of the log, in seconds.
const NOTABLE_DIFFERENCE: i64 = 60 * 60;
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

/// The pause after a success: certificates that live for minutes are renewed in time, too.
pub fn pause_after_success(validity: Validity) -> Duration {
    let life = u64::try_from(validity.until.saturating_sub(validity.since)).unwrap_or(0);
    LEAST_PAUSE.min(Duration::from_secs(life / 3)).max(SHORTEST_PAUSE)
}

/// By how many seconds the wall clock is ahead of the clock of an authority that has issued a certificate now, or behind
/// it if the number is negative; `None` if the clock may be right: authorities date certificates back, by some days at
/// most.
pub fn clock_difference(validity: Validity, wall: i64) -> Option<i64> {
    let difference = wall.saturating_sub(validity.since);
    let is_plausible = difference >= -NOTABLE_DIFFERENCE && wall < renewal_time(validity, None, 1.0);
    (!is_plausible).then_some(difference)
}

/// By how many seconds the wall clock has jumped while the monotonic clock ran for this time.
pub fn jump(wall_before: i64, wall_now: i64, elapsed: Duration) -> Option<i64> {
    let elapsed = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
    let jump = wall_now.saturating_sub(wall_before).saturating_sub(elapsed);
    (jump.saturating_abs() >= NOTABLE_DIFFERENCE).then_some(jump)
}

// === impl KnownTime ===

impl KnownTime {
    /// A certificate that was stored: its authority has issued it, so its validity has begun.
    pub fn of_stored(validity: Validity, wall: i64) -> KnownTime {
        KnownTime { time: wall.max(validity.since), ahead: 0 }
    }

    /// A certificate that was issued now.
    pub fn of_issued(validity: Validity, wall: i64) -> KnownTime {
        match clock_difference(validity, wall) {
            Some(ahead) => KnownTime { time: validity.since, ahead: ahead.max(0) },
            None => KnownTime::of_stored(validity, wall),
        }
    }

    /// The present time, in seconds since 1970: the later one by the two clocks, because a certificate that is renewed too
    /// early costs less than one that expires. `elapsed` is the time by the monotonic clock since it became known.
    pub fn time_after(self, elapsed: Duration, wall: i64) -> i64 {
        let elapsed = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
        wall.saturating_sub(self.ahead).max(self.time.saturating_add(elapsed))
    }
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
                let validity = Validity { since, until };
                pause_after_success(validity);
                jump(since, until, Duration::MAX);
                for wall in any {
                    KnownTime::of_stored(validity, wall).time_after(Duration::MAX, wall);
                    KnownTime::of_issued(validity, wall).time_after(Duration::ZERO, wall);
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
    fn a_clock_that_jumps_renews_once_and_in_time() {
        let ninety = Validity { since: 1_000 * DAY, until: 1_090 * DAY };
        let days = |days: i64| Duration::from_secs(u64::try_from(days * DAY).unwrap());
        let due = |known: KnownTime, elapsed: i64, wall: i64| {
            known.time_after(days(elapsed), wall * DAY) >= renewal_time(ninety, None, 0.0)
        };
        let stored = KnownTime::of_stored(ninety, 1_010 * DAY);
        let table = [
            // Known at day 10 of 90: the clock is right.
            (stored, 49, 1_059, false),
            (stored, 50, 1_060, true),
            // It jumps ahead: renewed at once. It jumps back by years: renewed at the same time as ever.
            (stored, 1, 1_061, true),
            (stored, 1, 61, false),
            (stored, 49, 109, false),
            (stored, 50, 110, true),
            // At the start it is 1970: the certificate proves that it is later.
            (KnownTime::of_stored(ninety, 0), 59, 0, false),
            (KnownTime::of_stored(ninety, 0), 60, 0, true),
            // Issued while the clock is 70 days, or ten years, ahead: it is not renewed again.
            (KnownTime::of_issued(ninety, 1_070 * DAY), 0, 1_070, false),
            (KnownTime::of_issued(ninety, 1_070 * DAY), 59, 1_129, false),
            (KnownTime::of_issued(ninety, 1_070 * DAY), 60, 1_130, true),
            (KnownTime::of_issued(ninety, 4_650 * DAY), 59, 4_709, false),
            // Then the clock is set right.
            (KnownTime::of_issued(ninety, 1_070 * DAY), 2, 1_002, false),
            (KnownTime::of_issued(ninety, 1_070 * DAY), 60, 1_060, true),
            // Issued while it is behind, and then it is set right.
            (KnownTime::of_issued(ninety, 0), 1, 1, false),
            (KnownTime::of_issued(ninety, 0), 1, 1_060, true),
            (KnownTime::of_issued(ninety, 0), 60, 60, true),
        ];
        for (known, elapsed, wall, expected) in table {
            assert_eq!(due(known, elapsed, wall), expected, "{known:?}, day {elapsed}, clock {wall}");
        }
    }

    #[test]
    fn a_clock_that_contradicts_a_new_certificate_is_wrong() {
        let ninety = Validity { since: 1_000 * DAY, until: 1_090 * DAY };
        let table = [
            (1_000 * DAY + 3_600, None),
            // Seconds behind, or dated back by days.
            (1_000 * DAY - 5, None),
            (1_003 * DAY, None),
            (1_070 * DAY, Some(70)),
            (1_200 * DAY, Some(200)),
            (635 * DAY, Some(-365)),
        ];
        for (wall, expected) in table {
            assert_eq!(clock_difference(ninety, wall).map(|seconds| seconds / DAY), expected, "{wall}");
        }
        assert_eq!(jump(100, 160, Duration::from_secs(60)), None);
        assert_eq!(jump(100, 160 + DAY, Duration::from_secs(60)), Some(DAY));
        assert_eq!(jump(DAY, 60, Duration::from_secs(60)), Some(-DAY));
    }

    #[test]
    fn a_certificate_of_minutes_is_renewed_in_time() {
        let of = |life| pause_after_success(Validity { since: 1_000, until: 1_000 + life }).as_secs();
        assert_eq!([of(90 * DAY), of(3 * 3600), of(30 * 60), of(0), of(-5)], [3600, 3600, 600, 10, 10]);
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
