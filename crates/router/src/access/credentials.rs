//! The user and the password of a request: the header `Authorization` with the scheme `Basic` (RFC 7617).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// A user and a password, as a client sent them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the user. It has no control character, so that it is safe in a log.
    pub user: String,
    /// The password. It has no NUL.
    pub password: Vec<u8>,
}

/// The functions that hash passwords take time in proportion to the length.
const MAX_PASSWORD_BYTES: usize = 512;

// === impl Credentials ===

impl Credentials {
    /// The credentials of a request; `None` if it has none that any user could have, and if it has several: an application
    /// or an upstream gets all of them, and could believe another one than howdah has verified.
    pub fn of(headers: &HeaderMap) -> Option<Credentials> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next()?;
        if values.next().is_some() {
            // The context of the line has the client.
            tracing::warn!("more than one header Authorization: answered 401");
            return None;
        }
        let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let mut user = STANDARD.decode(encoded.trim()).ok()?;
        let colon = memchr::memchr(b':', &user)?;
        let password = user.split_off(colon + 1);
        user.pop();
        let user = String::from_utf8(user).ok()?;
        let is_valid =
            !user.contains(char::is_control) && !password.contains(&0) && password.len() <= MAX_PASSWORD_BYTES;
        is_valid.then_some(Credentials { user, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HeaderValue;

    fn of(value: &str) -> Option<(String, String)> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        let credentials = Credentials::of(&headers)?;
        Some((credentials.user, String::from_utf8(credentials.password).unwrap()))
    }

    #[test]
    fn several_headers_are_none() {
        let value = |text: &str| HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(text))).unwrap();
        let mut headers = HeaderMap::from_iter([(AUTHORIZATION, value("ann:secret"))]);
        assert!(Credentials::of(&headers).is_some());
        for other in [value("ann:secret"), value("root:x"), HeaderValue::from_static("Bearer x")] {
            headers.insert(AUTHORIZATION, value("ann:secret"));
            headers.append(AUTHORIZATION, other);
            assert!(Credentials::of(&headers).is_none());
        }
    }

    #[test]
    fn a_user_and_a_password_are_read() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        for (value, expected) in [
            (basic("ann:secret"), pair("ann", "secret")),
            (basic("ann:a:b"), pair("ann", "a:b")),
            (basic("änn:ß"), pair("änn", "ß")),
            (basic(":"), pair("", "")),
            (basic("ann:secret").replace("Basic ", "bAsIc   "), pair("ann", "secret")),
            (basic("ann"), None),
            (basic("a\nnn:secret"), None),
            (basic("ann:sec\0ret"), None),
            (basic(&format!("ann:{}", "x".repeat(513))), None),
            ("Basic".to_owned(), None),
            ("Basic !!!".to_owned(), None),
            ("Bearer YW5uOnNlY3JldA==".to_owned(), None),
        ] {
            assert_eq!(of(&value), expected, "{value}");
        }
        assert!(Credentials::of(&HeaderMap::new()).is_none());
    }
}
