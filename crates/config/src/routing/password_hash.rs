//! Hashes of passwords, in the forms that `htpasswd`, `mkpasswd` and `openssl passwd` write.
//!
//! A hash that would take seconds of CPU time for each verification is rejected: any client can start one.

use std::ops::RangeInclusive;

/// The hash of a password. Its text is complete: the scheme, the cost, the salt and the digest.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PasswordHash {
    scheme: PasswordScheme,
    text: String,
}

/// The function that made a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PasswordScheme {
    /// `$2y$10$…`: `htpasswd -B`.
    Bcrypt,
    /// `$apr1$…`: Apache's variant of MD5 crypt, the default of `htpasswd`.
    Apr1,
    /// `{SHA}…`: SHA-1 without a salt, `htpasswd -s`.
    Sha1,
    /// `$5$…` and `$6$…`: SHA-256 and SHA-512 crypt.
    ShaCrypt,
}

/// 2^16 rounds take about 5 s.
const BCRYPT_COSTS: RangeInclusive<u32> = 4..=16;
/// 1,000,000 rounds take about 1 s. Without a number, there are 5,000.
const SHA_CRYPT_ROUNDS: RangeInclusive<u32> = 1_000..=1_000_000;
const ADVICE: &str = "write the text after \"NAME:\" that `htpasswd -nB NAME` prints";

// === impl PasswordHash ===

impl PasswordHash {
    /// Reads a hash. The error follows the name of the user in a message, and never repeats the hash.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scheme = scheme_of(text)?;
        Ok(Self { scheme, text: text.to_owned() })
    }

    /// The function that made it.
    pub fn scheme(&self) -> PasswordScheme {
        self.scheme
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PasswordHash({:?})", self.scheme)
    }
}

fn scheme_of(text: &str) -> Result<PasswordScheme, String> {
    if let Some(digest) = text.strip_prefix("{SHA}") {
        let digest = digest.strip_suffix('=').unwrap_or_default();
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
        return if digest.len() == 27 && digest.bytes().all(is_base64) {
            Ok(PasswordScheme::Sha1)
        } else {
            Err(incomplete("a SHA-1 hash"))
        };
    }
    let parts: Vec<&str> = text.split('$').collect();
    match parts[..] {
        ["", "2a" | "2b" | "2x" | "2y", cost, rest] => {
            if !is_crypt_text(rest, 53..=53) || cost.len() != 2 {
                return Err(incomplete("a bcrypt hash"));
            }
            number(cost, BCRYPT_COSTS, "the cost of the bcrypt hash")?;
            Ok(PasswordScheme::Bcrypt)
        }
        ["", "apr1", salt, digest] => {
            if !is_crypt_text(salt, 1..=8) || !is_crypt_text(digest, 22..=22) {
                return Err(incomplete("an apr1 hash"));
            }
            Ok(PasswordScheme::Apr1)
        }
        ["", id @ ("5" | "6"), ref rounds @ .., salt, digest] => {
            let digest_chars = if id == "5" { 43 } else { 86 };
            if !is_crypt_text(salt, 1..=16) || !is_crypt_text(digest, digest_chars..=digest_chars) {
                return Err(incomplete("a SHA crypt hash"));
            }
            match rounds {
                [] => {}
                [rounds] => {
                    let rounds = rounds.strip_prefix("rounds=").ok_or_else(|| incomplete("a SHA crypt hash"))?;
                    number(rounds, SHA_CRYPT_ROUNDS, "the number of rounds of the SHA crypt hash")?;
                }
                _ => return Err(incomplete("a SHA crypt hash")),
            }
            Ok(PasswordScheme::ShaCrypt)
        }
        _ => Err(format!("this is no hash of bcrypt, apr1, SHA-1 or SHA crypt; {ADVICE}")),
    }
}

fn is_crypt_text(text: &str, length: RangeInclusive<usize>) -> bool {
    length.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte))
}

fn incomplete(what: &str) -> String {
    format!("{what} of another form was expected, the text may be cut off; {ADVICE}")
}

fn number(text: &str, range: RangeInclusive<u32>, what: &str) -> Result<(), String> {
    match text.parse() {
        Ok(number) if range.contains(&number) && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _ => Err(format!("{what} is not {} to {}; hash the password again", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_of_the_usual_tools_are_known() {
        let sha512 = format!("$6$salt${}", "x".repeat(86));
        let cases = [
            ("$2y$05$/OK.fbVrR/bpIqNJ5ianF.CE5elHaaO4EbggVDjb8P19RukzXSM3e", PasswordScheme::Bcrypt),
            ("$apr1$8sFt66rZ$TNvTM3CyjLhLWCsSnWNkJ1", PasswordScheme::Apr1),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", PasswordScheme::Sha1),
            ("$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc8", PasswordScheme::ShaCrypt),
            ("$5$rounds=10000$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc8", PasswordScheme::ShaCrypt),
            (&sha512, PasswordScheme::ShaCrypt),
        ];
        for (text, expected) in cases {
            let hash = PasswordHash::parse(text).expect(text);
            assert_eq!((hash.scheme(), hash.as_str()), (expected, text));
            assert!(!format!("{hash:?}").contains(text), "a hash is never logged");
        }
    }

    #[test]
    fn another_text_is_rejected_and_never_repeated() {
        let bcrypt = |cost: &str| format!("$2y${cost}${}", "x".repeat(53));
        for (text, expected) in [
            ("secret", "this is no hash of bcrypt, apr1, SHA-1 or SHA crypt; write the text after"),
            ("", "this is no hash"),
            ("rl0LnbXrpLlU.", "this is no hash"),
            ("$1$salt$TNvTM3CyjLhLWCsSnWNkJ1", "this is no hash"),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g", "a SHA-1 hash of another form was expected"),
            ("$apr1$8sFt66rZ$TNvTM3CyjLhLWCsSnWNk", "an apr1 hash of another form was expected"),
            ("$apr1$123456789$TNvTM3CyjLhLWCsSnWNkJ1", "an apr1 hash of another form was expected"),
            (&bcrypt("5"), "a bcrypt hash of another form was expected"),
            (&bcrypt("17"), "the cost of the bcrypt hash is not 4 to 16; hash the password again"),
            (&format!("$6$rounds=9000000$s${}", "x".repeat(86)), "the number of rounds of the SHA crypt hash is not"),
            (&format!("$6$round=5000$s${}", "x".repeat(86)), "a SHA crypt hash of another form was expected"),
            (&format!("$6$s$s$s${}", "x".repeat(86)), "a SHA crypt hash of another form was expected"),
        ] {
            let problem = PasswordHash::parse(text).expect_err(text);
            assert!(problem.starts_with(expected), "{text}: {problem}");
            assert!(text.is_empty() || !problem.contains(text), "{problem}");
        }
    }
}
