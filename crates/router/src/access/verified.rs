//! The passwords that were verified: a browser sends its password with each request, and hashing it takes long.
//!
//! A password is not kept: the key of an entry is a keyed hash of everything that the result depends on. Only passwords
//! that were right are remembered. The memory is bounded.

use ring::hmac::{Context, HMAC_SHA256, Key};
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The verified passwords of one thread.
pub struct VerifiedPasswords {
    key: Key,
    verified: RefCell<HashMap<Fingerprint, Instant>>,
}

/// The keyed hash of a user, a password, and the hash or the file with which they were compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// How long a result is remembered: a change of a file applies after this time.
pub const REMEMBERED: Duration = Duration::from_secs(10);
const MAX_ENTRIES: usize = 4096;

// === impl VerifiedPasswords ===

impl VerifiedPasswords {
    /// Without entries, and with a random key.
    pub fn new() -> VerifiedPasswords {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the kernel always has random bytes");
        VerifiedPasswords { key: Key::new(HMAC_SHA256, &key), verified: RefCell::default() }
    }

    /// The fingerprint of these parts.
    pub fn fingerprint(&self, parts: &[&[u8]]) -> Fingerprint {
        let mut context = Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.sign().as_ref());
        Fingerprint(fingerprint)
    }

    /// Whether this password was verified just now.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.contains_at(fingerprint, Instant::now())
    }

    /// Remembers a password that is right.
    pub fn insert(&self, fingerprint: Fingerprint) {
        self.insert_at(fingerprint, Instant::now());
    }

    fn contains_at(&self, fingerprint: &Fingerprint, now: Instant) -> bool {
        self.verified.borrow().get(fingerprint).is_some_and(|since| now.duration_since(*since) < REMEMBERED)
    }

    fn insert_at(&self, fingerprint: Fingerprint, now: Instant) {
        let mut verified = self.verified.borrow_mut();
        if verified.len() >= MAX_ENTRIES {
            verified.retain(|_, since| now.duration_since(*since) < REMEMBERED);
            if verified.len() >= MAX_ENTRIES {
                verified.clear();
            }
        }
        verified.insert(fingerprint, now);
    }
}

impl Default for VerifiedPasswords {
    fn default() -> VerifiedPasswords {
        VerifiedPasswords::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_remembered_for_some_seconds() {
        let (passwords, start) = (VerifiedPasswords::new(), Instant::now());
        let right = passwords.fingerprint(&[b"hash", b"ann", b"secret"]);
        assert!(!passwords.contains_at(&right, start));
        passwords.insert_at(right, start);
        assert!(passwords.contains_at(&right, start + REMEMBERED - Duration::from_millis(1)));
        assert!(!passwords.contains_at(&right, start + REMEMBERED));
        for other in [[b"hash" as &[u8], b"ann", b"secre"], [b"hash", b"anns", b"ecret"], [b"other", b"ann", b"secret"]]
        {
            assert!(!passwords.contains_at(&passwords.fingerprint(&other), start));
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let passwords = VerifiedPasswords::new();
        for n in 0..3 * MAX_ENTRIES {
            passwords.insert(passwords.fingerprint(&[&n.to_le_bytes()]));
        }
        assert!(passwords.verified.borrow().len() <= MAX_ENTRIES);
    }
}
