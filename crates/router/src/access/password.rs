//! Verifies passwords. This takes up to some seconds of CPU time, as configured with the hash: never on an event loop.

use crate::access::apr1;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use howdah_config::{PasswordHash, PasswordScheme};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use sha_crypt::{PasswordVerifier, ShaCrypt};
use subtle::ConstantTimeEq;

/// Whether this is the password. The time does not depend on how much of it is right.
pub fn verify(hash: &PasswordHash, password: &[u8]) -> bool {
    let text = hash.as_str();
    match hash.scheme() {
        PasswordScheme::Bcrypt => bcrypt::verify(password, text).unwrap_or(false),
        PasswordScheme::ShaCrypt => ShaCrypt::default().verify_password(password, text).is_ok(),
        PasswordScheme::Apr1 => {
            let mut parts = text.rsplit('$');
            let (Some(expected), Some(salt)) = (parts.next(), parts.next()) else { return false };
            apr1::digest(password, salt.as_bytes()).as_bytes().ct_eq(expected.as_bytes()).into()
        }
        PasswordScheme::Sha1 => {
            let expected = STANDARD.decode(text.trim_start_matches("{SHA}")).unwrap_or_default();
            digest(&SHA1_FOR_LEGACY_USE_ONLY, password).as_ref().ct_eq(&expected).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_each_kind_of_hash_is_verified() {
        // `htpasswd -nbB`, `password_hash()` of PHP, `htpasswd -nb`, `htpasswd -nbs`, `openssl passwd -5` and `-6`
        for hash in [
            "$2y$04$pySP2fDnpXp78VFbmb2zRuzYIRfOZEOEPBoj6FBu2h0zvbR8DaWCe",
            "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
            "$apr1$8sFt66rZ$eup.HOtZcQ/VrnApBM3rR/",
            "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
            "$5$abc$qsg6EHbUzHQzF1POlD7zUwBINSELQxypPaeDcZe6vH0",
            "$6$abc$IdWKNKTJEb8LxY7CGg8YBXlvtfZzFw7Mp/r6niK9YB2mdvgY..TKjv1T..8RadRt2qvUHYRLr/TsVArtr91iR1",
            "$6$rounds=1000$abc$MqEcPZUYRGGcOeq7PhMpfjfu/F0HrVEI0OlZBijWvO8mSG77iNUDP5MqFceKpJTBc8iITVtNyLiNTRNCxv6oh0",
        ] {
            let parsed = PasswordHash::parse(hash).expect(hash);
            assert!(verify(&parsed, b"secret"), "{hash}");
            for wrong in ["", "secre", "secret ", "Secret"] {
                assert!(!verify(&parsed, wrong.as_bytes()), "{hash}: {wrong}");
            }
        }
    }
}
