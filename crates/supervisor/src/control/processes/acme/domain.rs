//! One domain: what is known of its certificate, and when it is the turn of the next attempt.

use super::clock::seconds_since_1970;
use crate::policy::renewal::{Attempt, KnownTime, Validity, at_least, pause_after, pause_after_success, renewal_time};
use crate::store::certificates::IssuedCertificate;
use howdah_config::{AcmeAuthority, AcmeChallenge, AcmeIssuance};
use howdah_protocol::messages::acme::OrderFailure;
use howdah_protocol::test_time::divided_for_acme;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// A domain whose certificate howdah obtains.
#[derive(Debug)]
pub struct ManagedDomain {
    /// How its certificate is obtained.
    pub issuance: AcmeIssuance,
    /// Whether it needs the permission of the operator's program, because a client has asked for it.
    pub permission: Permission,
    /// The order under way: its number, and its deadline.
    pub order: Option<(u64, Instant)>,
    /// Since when its next order is due, and waits for a place.
    pub waiting_since: Option<Instant>,
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
    window: Option<(i64, i64)>,
    /// When to ask the authority for it; `None` without a certificate.
    ask_at: Option<Instant>,
    /// The number of the question that the authority has not answered.
    question: Option<u64>,
    /// Since when its certificate is known.
    known: Option<(Instant, KnownTime)>,
    /// Between 0 and 1, the same for the life of a certificate.
    chance: f64,
}

/// The permission of the operator's program for the next certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The configuration has the domain.
    Configured,
    /// The program is asked when it is time to renew.
    Needed,
    /// It is asked.
    Asked,
    /// It has allowed the domain.
    Given,
}

/// When the authority is asked again, unless its answer has another time.
const ASK_AGAIN: Duration = Duration::from_secs(6 * 60 * 60);
/// The process has a shorter limit.
const LONGEST_ASK_AGAIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

// === impl ManagedDomain ===

impl ManagedDomain {
    /// A domain that nothing is known of but its certificate.
    pub fn new(issuance: AcmeIssuance, certificate: Option<&IssuedCertificate>, now: Instant) -> ManagedDomain {
        let preferred = certificate.and_then(|certificate| challenge_named(&certificate.origin.challenge));
        ManagedDomain {
            issuance,
            permission: Permission::Configured,
            order: None,
            waiting_since: None,
            attempt: Attempt::default(),
            last_failure: None,
            failed_rounds: 0,
            not_before: None,
            preferred,
            window: None,
            ask_at: certificate.map(|_| now),
            question: None,
            known: certificate
                .map(|certificate| (now, KnownTime::of_stored(certificate.validity(), seconds_since_1970()))),
            chance: chance(),
        }
    }

    /// A domain that a client has asked for, with its certificate or with the permission to get one.
    pub fn on_demand(issuance: AcmeIssuance, certificate: Option<&IssuedCertificate>, now: Instant) -> ManagedDomain {
        let permission = if certificate.is_some() { Permission::Needed } else { Permission::Given };
        ManagedDomain { permission, ..ManagedDomain::new(issuance, certificate, now) }
    }

    /// Whether a client has asked for it, and the configuration does not have it.
    pub fn is_on_demand(&self) -> bool {
        self.permission != Permission::Configured
    }

    /// Whether it has a certificate.
    pub fn has_certificate(&self) -> bool {
        self.known.is_some()
    }

    /// The program has not answered whether it is allowed.
    pub fn on_no_permission(&mut self, pause: Duration, now: Instant) {
        self.permission = Permission::Needed;
        self.not_before = Some(now + pause);
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

    /// The present time, in seconds since 1970, as the wall clock has it now, or as it must at least be.
    pub fn time(&self, now: Instant) -> i64 {
        let wall = seconds_since_1970();
        self.known.map_or(wall, |(since, known)| known.time_after(now.saturating_duration_since(since), wall))
    }

    /// How long until the next attempt, as the clocks are now. The caller asks again after a minute: they may jump.
    pub fn pause(&self, certificate: Option<&IssuedCertificate>, now: Instant) -> Duration {
        let renewal = self.renewal_time(certificate).map_or(Duration::ZERO, |at| {
            Duration::from_secs(u64::try_from(at.saturating_sub(self.time(now))).unwrap_or(0))
        });
        self.not_before.map_or(renewal, |at| renewal.max(at.saturating_duration_since(now)))
    }

    /// When it is time to ask the authority for its window.
    pub fn ask_at(&self) -> Option<Instant> {
        self.ask_at
    }

    /// The authority is asked for its window. Without an answer, it is asked again later.
    pub fn on_ask(&mut self, question: u64, now: Instant) {
        self.question = Some(question);
        self.ask_at = Some(now + divided_for_acme(ASK_AGAIN));
    }

    /// The authority has answered a question. Others than the last one are about a former certificate.
    pub fn on_window(&mut self, question: u64, window: Option<(i64, i64)>, ask_again: Duration, now: Instant) {
        if self.question.take_if(|asked| *asked == question).is_none() {
            return;
        }
        self.window = window;
        self.ask_at = Some(now + divided_for_acme(ask_again.min(LONGEST_ASK_AGAIN)));
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
        if self.is_on_demand() && self.has_certificate() {
            // The program may refuse it by now.
            self.permission = Permission::Needed;
        }
        pause
    }

    /// A certificate with this validity was issued.
    pub fn on_success(&mut self, validity: Validity, now: Instant) {
        let challenge = self.challenge();
        self.order = None;
        self.attempt = Attempt::default();
        self.last_failure = None;
        self.failed_rounds = 0;
        self.not_before = Some(now + divided_for_acme(pause_after_success(validity)));
        self.preferred = Some(challenge);
        self.window = None;
        self.ask_at = Some(now);
        self.question = None;
        if self.is_on_demand() {
            self.permission = Permission::Needed;
        }
        self.known = Some((now, KnownTime::of_issued(validity, seconds_since_1970())));
        self.chance = chance();
    }
}

fn challenge_named(name: &str) -> Option<AcmeChallenge> {
    [AcmeChallenge::Http, AcmeChallenge::TlsAlpn, AcmeChallenge::Dns].into_iter().find(|kind| kind.as_str() == name)
}

/// A random number between 0 and 1.
fn chance() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use howdah_protocol::messages::acme::FailureCause;

    #[test]
    fn the_program_is_asked_again_after_a_round_of_renewals_that_failed() {
        let acme = r#"{"on_demand": {"ask": "http://127.0.0.1:1/"}}"#;
        let text =
            format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "tls": {{"acme": {acme}}}}}}}}}"#);
        let configuration = Configuration::parse(&text).unwrap();
        let tls = configuration.listeners[0].tls.as_ref();
        let issuance = tls.and_then(|tls| tls.acme.as_ref()).unwrap().issuance.clone();
        let (mut domain, now) = (ManagedDomain::on_demand(issuance, None, Instant::now()), Instant::now());
        let failure = OrderFailure { cause: FailureCause::Challenge, reason: String::new(), retry_after_seconds: None };
        let fail = |domain: &mut ManagedDomain| while domain.on_failure(&failure, now).is_zero() {};
        fail(&mut domain);
        assert_eq!(domain.permission, Permission::Given, "no certificate yet: the permission still counts");
        let time = seconds_since_1970();
        domain.on_success(Validity { since: time, until: time + 1000 }, now);
        domain.permission = Permission::Given;
        fail(&mut domain);
        assert_eq!(domain.permission, Permission::Needed);
    }
}
