//! One domain: what is known of its certificate, and when it is the turn of the next attempt.

use crate::policy::renewal::{Attempt, at_least, pause_after, renewal_time};
use crate::store::certificates::IssuedCertificate;
use howdah_config::{AcmeAuthority, AcmeChallenge, AcmeIssuance};
use howdah_protocol::messages::acme::OrderFailure;
use howdah_protocol::test_time::divided_for_acme;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

/// A domain whose certificate howdah obtains.
#[derive(Debug)]
pub struct ManagedDomain {
    /// How its certificate is obtained.
    pub issuance: AcmeIssuance,
    /// The order under way: its number, and its deadline.
    pub order: Option<(u64, Instant)>,
    /// The authority and the challenge of the next attempt.
    pub attempt: Attempt,
    /// The failure of the last attempt; `None` after a success.
    pub last_failure: Option<String>,
    /// How many rounds have failed in a row.
    pub failed_rounds: u32,
    /// No attempt begins before this time.
    not_before: Option<Instant>,
    /// The challenge that worked the last time.
    preferred: Option<AcmeChallenge>,
    /// The time that the authority wants, in seconds since 1970.
    pub window: Option<(i64, i64)>,
    /// When to ask the authority for it.
    pub ask_at: Option<Instant>,
    /// Between 0 and 1, the same for the life of a certificate.
    chance: f64,
}

/// The least time between two certificates of a domain, whatever authorities and clocks want.
const LEAST_PAUSE: Duration = Duration::from_secs(60 * 60);

// === impl ManagedDomain ===

impl ManagedDomain {
    /// A domain that nothing is known of but its certificate.
    pub fn new(issuance: AcmeIssuance, certificate: Option<&IssuedCertificate>, now: Instant) -> ManagedDomain {
        let preferred = certificate.and_then(|certificate| challenge_named(&certificate.origin.challenge));
        ManagedDomain {
            issuance,
            order: None,
            attempt: Attempt::default(),
            last_failure: None,
            failed_rounds: 0,
            not_before: None,
            preferred,
            window: None,
            ask_at: certificate.map(|_| now),
            chance: chance(),
        }
    }

    /// The authority of the next attempt.
    pub fn authority(&self) -> &AcmeAuthority {
        let authorities = &self.issuance.authorities;
        &authorities[self.attempt.authority % authorities.len()]
    }

    /// The challenge of the next attempt: first the one that worked the last time.
    pub fn challenge(&self) -> AcmeChallenge {
        let challenges = &self.issuance.challenges;
        let first = self.preferred.and_then(|preferred| challenges.iter().position(|known| *known == preferred));
        challenges[(first.unwrap_or(0) + self.attempt.challenge) % challenges.len()]
    }

    /// When its certificate is to be renewed, in seconds since 1970; `None` without a certificate.
    pub fn renewal_time(&self, certificate: Option<&IssuedCertificate>) -> Option<i64> {
        certificate.map(|certificate| renewal_time(certificate.validity(), self.window, self.chance))
    }

    /// How long until the next attempt, as the clock of the wall stands now. The caller asks again after an hour: that
    /// clock may jump.
    pub fn pause(&self, certificate: Option<&IssuedCertificate>, now: Instant) -> Duration {
        let wall = self.renewal_time(certificate).map_or(Duration::ZERO, |at| {
            Duration::from_secs(u64::try_from(at.saturating_sub(seconds_since_1970())).unwrap_or(0))
        });
        self.not_before.map_or(wall, |at| wall.max(at.saturating_duration_since(now)))
    }

    /// An attempt has failed. Returns the pause until the next one.
    pub fn on_failure(&mut self, failure: &OrderFailure, now: Instant) -> Duration {
        self.order = None;
        self.last_failure = Some(failure.reason.clone());
        let (authorities, challenges) = (self.issuance.authorities.len(), self.issuance.challenges.len());
        if let Some(next) = self.attempt.next(failure.cause, authorities, challenges) {
            self.attempt = next;
            self.not_before = None;
            return Duration::ZERO;
        }
        self.attempt = Attempt::default();
        self.failed_rounds = self.failed_rounds.saturating_add(1);
        let after = failure.retry_after_seconds.map(Duration::from_secs);
        let pause = at_least(divided_for_acme(pause_after(self.failed_rounds, chance())), after);
        self.not_before = Some(now + pause);
        pause
    }

    /// A certificate was issued. Returns the challenge that worked.
    pub fn on_success(&mut self, now: Instant) -> AcmeChallenge {
        let challenge = self.challenge();
        self.order = None;
        self.attempt = Attempt::default();
        self.last_failure = None;
        self.failed_rounds = 0;
        self.not_before = Some(now + divided_for_acme(LEAST_PAUSE));
        self.preferred = Some(challenge);
        self.window = None;
        self.ask_at = Some(now);
        self.chance = chance();
        challenge
    }
}

/// Seconds since 1970, of the clock of the wall.
pub fn seconds_since_1970() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
}

fn challenge_named(name: &str) -> Option<AcmeChallenge> {
    [AcmeChallenge::Http, AcmeChallenge::TlsAlpn, AcmeChallenge::Dns].into_iter().find(|kind| kind.as_str() == name)
}

/// A random number between 0 and 1.
fn chance() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}
