//! Session tickets (RFC 5077, RFC 8446 4.6.1): sessions that clients keep, sealed with a key that only servers have.
//!
//! With `"tickets": true`, rustls draws the keys, replaces them every six hours, and seals the tickets. Our own code is
//! for two users:
//!
//! - a site that sets `timeout`: rustls accepts a ticket while its key exists, [`SessionTickets`] accepts it for
//!   `timeout`. Therefore the time is sealed with the session.
//! - a site with several servers, which configures the keys (`"tickets": ["KEY", …]`) so that each server accepts the
//!   tickets of the others. rustls has no tickets with given keys: a [`SealingKey`] seals each ticket with AES-256-GCM
//!   under a key that HKDF-SHA256 derives from the ticket key and a salt. A given key lasts for any number of tickets.
//!
//! ```text
//! given keys: name of the key, 16 bytes | salt, 16 | sealed: (seconds since 1970, 8 | session) | tag, 16
//! ```
//!
//! A ticket that cannot be made or opened is no error: the handshake is a full one.

use howdah_config::TicketKey;
use ring::aead::{self, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::ring::Ticketer;
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Makes tickets, and accepts them for a limited time.
#[derive(Debug)]
pub struct SessionTickets {
    keys: TicketKeys,
    timeout: Duration,
}

#[derive(Debug)]
enum TicketKeys {
    /// The keys of the configuration: the first makes tickets, all are accepted.
    Given(Vec<SealingKey>),
    /// Keys that rustls draws and rotates.
    Random(Arc<dyn ProducesTickets>),
}

struct SealingKey {
    name: [u8; NAME_LEN],
    secret: Vec<u8>,
}

const NAME_LEN: usize = 16;
const SALT_LEN: usize = 16;
const TIME_LEN: usize = 8;
const HEAD_LEN: usize = NAME_LEN + SALT_LEN;
/// No session of rustls comes near this.
const MAX_TICKET_LEN: usize = 16 * 1024;
/// The purpose of the derived keys.
const PURPOSE: &[&[u8]] = &[b"howdah TLS session ticket"];

// === impl SessionTickets ===

impl SessionTickets {
    /// With these keys: the last one makes tickets, all are accepted.
    pub fn with_keys(keys: &[TicketKey], timeout: Duration) -> SessionTickets {
        SessionTickets { keys: TicketKeys::Given(keys.iter().rev().map(SealingKey::new).collect()), timeout }
    }

    /// With keys that no other server has.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn with_random_keys(timeout: Duration) -> Result<SessionTickets, String> {
        let keys = Ticketer::new().map_err(|_| "the system has no random numbers for session tickets")?;
        Ok(SessionTickets { keys: TicketKeys::Random(keys), timeout })
    }

    fn seal(&self, session: &[u8], time: u64) -> Option<Vec<u8>> {
        let plain = [&time.to_le_bytes(), session].concat();
        match &self.keys {
            TicketKeys::Given(keys) => keys.first()?.seal(&plain),
            TicketKeys::Random(keys) => keys.encrypt(&plain),
        }
    }

    fn open(&self, ticket: &[u8], time: u64) -> Option<Vec<u8>> {
        let plain = match &self.keys {
            TicketKeys::Given(keys) => keys.iter().find(|key| ticket.starts_with(&key.name))?.open(ticket)?,
            TicketKeys::Random(keys) => keys.decrypt(ticket)?,
        };
        let (made, session) = plain.split_first_chunk::<TIME_LEN>()?;
        // The distance in both directions: a clock that was set back does not make tickets last longer.
        let is_fresh = time.abs_diff(u64::from_le_bytes(*made)) <= self.timeout.as_secs();
        is_fresh.then(|| session.to_vec())
    }
}

impl ProducesTickets for SessionTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, unix_time())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, unix_time())
    }
}

// === impl SealingKey ===

impl SealingKey {
    fn new(key: &TicketKey) -> SealingKey {
        let (name, secret) = match key {
            TicketKey::Aes128(bytes) => bytes.split_at(NAME_LEN),
            TicketKey::Aes256(bytes) => bytes.split_at(NAME_LEN),
        };
        let mut key = SealingKey { name: [0; NAME_LEN], secret: secret.to_vec() };
        key.name.copy_from_slice(name);
        key
    }

    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut salt = [0; SALT_LEN];
        SystemRandom::new().fill(&mut salt).ok()?;
        let mut ticket = [&self.name[..], &salt, plain].concat();
        let (head, sealed) = ticket.split_at_mut(HEAD_LEN);
        let tag = self.derive(&salt)?.seal_in_place_separate_tag(nonce(), Aad::from(&*head), sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > MAX_TICKET_LEN {
            return None;
        }
        let (head, sealed) = ticket.split_at_checked(HEAD_LEN)?;
        let mut sealed = sealed.to_vec();
        let length = self.derive(&head[NAME_LEN..])?.open_in_place(nonce(), Aad::from(head), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }

    fn derive(&self, salt: &[u8]) -> Option<LessSafeKey> {
        let derived = Salt::new(HKDF_SHA256, salt).extract(&self.secret);
        let key = UnboundKey::from(derived.expand(PURPOSE, &AES_256_GCM).ok()?);
        Some(LessSafeKey::new(key))
    }
}

impl fmt::Debug for SealingKey {
    /// The key is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey").finish_non_exhaustive()
    }
}

/// Each derived key seals once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; aead::NONCE_LEN])
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);
    const NOON: u64 = 1_700_000_000;

    fn given(keys: &[u8]) -> SessionTickets {
        let keys: Vec<_> = keys.iter().map(|byte| TicketKey::Aes256([*byte; 80])).collect();
        SessionTickets::with_keys(&keys, TIMEOUT)
    }

    #[test]
    fn servers_with_the_same_keys_share_tickets() {
        let session = b"a session".to_vec();
        let ticket = given(&[1, 2]).seal(&session, NOON).unwrap();
        let opens = |ticketer: SessionTickets, time| ticketer.open(&ticket, time);
        assert_eq!(opens(given(&[2]), NOON), Some(session.clone()), "the last key makes tickets");
        assert_eq!(opens(given(&[2, 3]), NOON + 300), Some(session.clone()), "all keys are accepted");
        assert_eq!(opens(given(&[1]), NOON), None);
        assert_eq!(opens(given(&[2]), NOON + 301), None, "after its time");
        assert_eq!(opens(given(&[2]), NOON - 301), None, "of the future");
        let short = SessionTickets::with_keys(&[TicketKey::Aes128([2; 48])], TIMEOUT);
        assert_eq!(short.open(&ticket, NOON), None, "the same name, another secret");
        let own = short.seal(&session, NOON).unwrap();
        assert_eq!(short.open(&own, NOON), Some(session));
    }

    #[test]
    fn a_changed_ticket_is_rejected() {
        for ticketer in [given(&[1]), SessionTickets::with_random_keys(TIMEOUT).unwrap()] {
            let ticket = ticketer.seal(b"a session", NOON).unwrap();
            assert!(ticketer.open(&ticket, NOON).is_some());
            assert!(!ticket.windows(9).any(|window| window == b"a session"));
            assert_ne!(ticket, ticketer.seal(b"a session", NOON).unwrap());
            for index in 0..ticket.len() {
                let mut changed = ticket.clone();
                changed[index] ^= 1;
                assert_eq!(ticketer.open(&changed, NOON), None, "{index}");
                assert_eq!(ticketer.open(&ticket[..index], NOON), None, "{index}");
            }
            assert_eq!(ticketer.open(&[1; MAX_TICKET_LEN + 1], NOON), None);
        }
    }

    #[test]
    fn a_random_key_opens_its_own_tickets_until_the_timeout() {
        let ticketer = SessionTickets::with_random_keys(TIMEOUT).unwrap();
        let ticket = ticketer.seal(b"x", NOON).unwrap();
        assert!(ticketer.open(&ticket, NOON + 300).is_some());
        assert!(ticketer.open(&ticket, NOON + 301).is_none());
        assert!(SessionTickets::with_random_keys(TIMEOUT).unwrap().open(&ticket, NOON).is_none());
    }

    #[test]
    fn debug_does_not_show_a_key() {
        let text = format!("{:?}", given(&[7]));
        assert_eq!(text, "SessionTickets { keys: Given([SealingKey { .. }]), timeout: 300s }");
    }
}
