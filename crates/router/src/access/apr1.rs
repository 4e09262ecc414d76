//! Apache's variant of MD5 crypt (`$apr1$`), the default of `htpasswd`. It is weak, and old files are full of it.

use md5::{Digest, Md5};

const ROUNDS: u32 = 1000;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The digest of a password with this salt, as it is written after the salt.
pub fn digest(password: &[u8], salt: &[u8]) -> String {
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut outer = Md5::new().chain_update(password).chain_update(b"$apr1$").chain_update(salt);
    for start in (0..password.len()).step_by(inner.len()) {
        outer.update(&inner[..inner.len().min(password.len() - start)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        // A quirk of the original, on which all implementations agree.
        outer.update(if bits & 1 == 1 { &[0] } else { &password[..1] });
        bits >>= 1;
    }
    let mut result = outer.finalize();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        let (first, last): (&[u8], &[u8]) = if round & 1 == 1 { (password, &result) } else { (&result, password) };
        next.update(first);
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(last);
        result = next.finalize();
    }
    let mut text = String::with_capacity(22);
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        encode(u32::from_be_bytes([0, result[a], result[b], result[c]]), 4, &mut text);
    }
    encode(result[11].into(), 2, &mut text);
    text
}

/// Appends the lowest bits of a value, six for each letter.
fn encode(mut value: u32, letters: usize, text: &mut String) {
    for _ in 0..letters {
        text.push(char::from(ALPHABET[(value & 63) as usize]));
        value >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_openssl() {
        // `openssl passwd -apr1 -salt SALT PASSWORD`
        for (password, salt, expected) in APR1 {
            assert_eq!(digest(password.as_bytes(), salt.as_bytes()), expected, "{password}");
        }
    }

    const APR1: [(&str, &str, &str); 5] = [
        ("password", "8sFt66rZ", "CwW5jnBTcCMb9M9VZMRdm/"),
        ("", "abc", "BfqKdn9xFDWJPa3kcp/PH0"),
        ("a", "x", "16j9.5e7KiXmuYFAYpPJM/"),
        ("0123456789abcdef", "saltsalt", "noZiBycUL1t9WTQEO7/nr1"),
        ("a password of more than sixteen bytes, and of thirty-two", "Zz./0", "CkYcO3s8IjtfnGyO/oymA/"),
    ];
}
