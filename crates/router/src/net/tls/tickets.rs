//! Session tickets (RFC 5077, RFC 8446 4.6.1): sessions that clients keep, sealed with a key that only servers have.
//!
//! ```text
//! ticket: name of the key, 16 bytes | salt, 16 | sealed: (seconds since 1970, 8 | session) | tag, 16
//! ```
//!
//! Keys come from the configuration, the same for all servers that share sessions, or are drawn at random and changed
//! now and then. Each ticket is sealed with AES-256-GCM under a key of its own, which HKDF-SHA256 makes of the ticket key
//! and the salt: so a ticket key lasts for any number of tickets. A ticket is accepted for as long as the
//! configuration's `timeout` says.

use howdah_config::TicketKey;
use ring::aead::{self, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Makes tickets and accepts them.
pub struct Ticketer {
    timeout: Duration,
    keys: Keys,
}

enum Keys {
    /// Of the configuration: the first makes tickets, all are accepted.
    Given(Vec<Key>),
    Random(Mutex<Rotation>),
}

struct Rotation {
    current: Key,
    previous: Option<Key>,
    since: Instant,
}

#[derive(Clone)]
struct Key {
    name: [u8; NAME_LEN],
    secret: Vec<u8>,
}

const NAME_LEN: usize = 16;
const SALT_LEN: usize = 16;
const TIME_LEN: usize = 8;
const HEAD_LEN: usize = NAME_LEN + SALT_LEN;
/// No session of rustls comes near this.
const MAX_TICKET_LEN: usize = 16 * 1024;
/// A random key makes tickets for so long at least.
const ROTATION: Duration = Duration::from_secs(6 * 60 * 60);
/// What the derived keys are for.
const PURPOSE: &[&[u8]] = &[b"howdah TLS session ticket"];

// === impl Ticketer ===

impl Ticketer {
    /// With these keys: the last one makes tickets, all are accepted.
    pub fn with_keys(keys: &[TicketKey], timeout: Duration) -> Ticketer {
        Ticketer { timeout, keys: Keys::Given(keys.iter().rev().map(Key::given).collect()) }
    }

    /// With keys that nobody else knows.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn with_random_keys(timeout: Duration) -> Result<Ticketer, String> {
        let current = Key::random().ok_or("the system has no random numbers for session tickets")?;
        let rotation = Rotation { current, previous: None, since: Instant::now() };
        Ok(Ticketer { timeout, keys: Keys::Random(Mutex::new(rotation)) })
    }

    /// All that are accepted; the first makes tickets.
    fn keys(&self, now: Instant) -> Vec<Key> {
        match &self.keys {
            Keys::Given(keys) => keys.clone(),
            Keys::Random(rotation) => {
                // It is whole between any two statements.
                let mut rotation = rotation.lock().unwrap_or_else(PoisonError::into_inner);
                rotation.advance(now, self.timeout.max(ROTATION));
                [&rotation.current].into_iter().chain(&rotation.previous).cloned().collect()
            }
        }
    }

    fn seal(&self, session: &[u8], now: Instant, time: u64) -> Option<Vec<u8>> {
        self.keys(now).first()?.seal(session, time)
    }

    fn open(&self, ticket: &[u8], now: Instant, time: u64) -> Option<Vec<u8>> {
        if ticket.len() > MAX_TICKET_LEN {
            return None;
        }
        let (made, session) = self.keys(now).iter().find(|key| ticket.starts_with(&key.name))?.open(ticket)?;
        // A clock that was set back is no reason to believe in tickets for ever.
        (time.abs_diff(made) <= self.timeout.as_secs()).then_some(session)
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, Instant::now(), unix_time())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, Instant::now(), unix_time())
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

// === impl Rotation ===

impl Rotation {
    /// Draws another key after a `period`, and forgets the former after another one.
    fn advance(&mut self, now: Instant, period: Duration) {
        let age = now.saturating_duration_since(self.since);
        if age < period {
            return;
        }
        // Without random numbers the former key is better than none.
        let Some(key) = Key::random() else { return };
        let former = std::mem::replace(&mut self.current, key);
        self.previous = (age < period * 2).then_some(former);
        self.since = now;
    }
}

// === impl Key ===

impl Key {
    fn given(key: &TicketKey) -> Key {
        let (name, secret) = match key {
            TicketKey::Aes128(bytes) => bytes.split_at(NAME_LEN),
            TicketKey::Aes256(bytes) => bytes.split_at(NAME_LEN),
        };
        let mut key = Key { name: [0; NAME_LEN], secret: secret.to_vec() };
        key.name.copy_from_slice(name);
        key
    }

    fn random() -> Option<Key> {
        let mut bytes = [0; 80];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Key::given(&TicketKey::Aes256(bytes)))
    }

    fn seal(&self, session: &[u8], time: u64) -> Option<Vec<u8>> {
        let mut salt = [0; SALT_LEN];
        SystemRandom::new().fill(&mut salt).ok()?;
        let mut ticket = [&self.name[..], &salt, &time.to_le_bytes(), session].concat();
        let (head, sealed) = ticket.split_at_mut(HEAD_LEN);
        let tag = self.derive(&salt)?.seal_in_place_separate_tag(nonce(), Aad::from(&*head), sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// When a ticket was made, and its session.
    fn open(&self, ticket: &[u8]) -> Option<(u64, Vec<u8>)> {
        let (head, sealed) = ticket.split_at_checked(HEAD_LEN)?;
        let mut sealed = sealed.to_vec();
        let key = self.derive(&head[NAME_LEN..])?;
        let plain = key.open_in_place(nonce(), Aad::from(head), &mut sealed).ok()?;
        let (time, session) = plain.split_first_chunk::<TIME_LEN>()?;
        Some((u64::from_le_bytes(*time), session.to_vec()))
    }

    fn derive(&self, salt: &[u8]) -> Option<LessSafeKey> {
        let derived = Salt::new(HKDF_SHA256, salt).extract(&self.secret);
        let key = UnboundKey::from(derived.expand(PURPOSE, &AES_256_GCM).ok()?);
        Some(LessSafeKey::new(key))
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

    fn given(keys: &[u8]) -> Ticketer {
        let keys: Vec<_> = keys.iter().map(|byte| TicketKey::Aes256([*byte; 80])).collect();
        Ticketer::with_keys(&keys, TIMEOUT)
    }

    #[test]
    fn servers_with_the_same_keys_share_tickets() {
        let (now, session) = (Instant::now(), b"a session".to_vec());
        let ticket = given(&[1, 2]).seal(&session, now, NOON).unwrap();
        let opens = |ticketer: Ticketer, time| ticketer.open(&ticket, now, time);
        assert_eq!(opens(given(&[2]), NOON), Some(session.clone()), "the last key makes tickets");
        assert_eq!(opens(given(&[2, 3]), NOON + 300), Some(session.clone()), "all keys are accepted");
        assert_eq!(opens(given(&[1]), NOON), None);
        assert_eq!(opens(given(&[2]), NOON + 301), None, "after its time");
        assert_eq!(opens(given(&[2]), NOON - 301), None, "of the future");
        let short = Ticketer::with_keys(&[TicketKey::Aes128([2; 48])], TIMEOUT);
        assert_eq!(short.open(&ticket, now, NOON), None, "the same name, another secret");
        let own = short.seal(&session, now, NOON).unwrap();
        assert_eq!(short.open(&own, now, NOON), Some(session));
    }

    #[test]
    fn a_ticket_that_was_changed_is_none() {
        let (now, ticketer) = (Instant::now(), given(&[1]));
        let ticket = ticketer.seal(b"a session", now, NOON).unwrap();
        assert!(!ticket.windows(9).any(|window| window == b"a session"));
        assert_ne!(ticket, ticketer.seal(b"a session", now, NOON).unwrap());
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(ticketer.open(&changed, now, NOON), None, "{place}");
            assert_eq!(ticketer.open(&ticket[..place], now, NOON), None, "{place}");
        }
        assert_eq!(ticketer.open(&[1; MAX_TICKET_LEN + 1], now, NOON), None);
    }

    #[test]
    fn random_keys_change_and_the_former_is_accepted_for_a_while() {
        let ticketer = Ticketer::with_random_keys(TIMEOUT).unwrap();
        let start = Instant::now();
        let ticket = ticketer.seal(b"x", start, NOON).unwrap();
        let opens = |now| ticketer.open(&ticket, now, NOON).is_some();
        assert!(opens(start + ROTATION - Duration::from_secs(1)));
        assert!(opens(start + ROTATION));
        let later = ticketer.seal(b"x", start + ROTATION, NOON).unwrap();
        assert_ne!(later[..NAME_LEN], ticket[..NAME_LEN]);
        assert!(!opens(start + ROTATION * 2));
        assert!(Ticketer::with_random_keys(TIMEOUT).unwrap().open(&later, start, NOON).is_none());
    }

    #[test]
    fn a_key_is_not_told() {
        assert_eq!(format!("{:?}", given(&[7])), "Ticketer { timeout: 300s, .. }");
    }
}
