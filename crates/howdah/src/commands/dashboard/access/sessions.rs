//! The token, and the sessions of the browsers that have shown it.
//!
//! A session has two secrets. A cookie that scripts cannot read: but a browser sends it to every port of this machine, also
//! to an application that listens there. And a key in the page's own storage, which belongs to one port, and which no form
//! and no picture of another page can send. A request needs both.

use hyper::header::{COOKIE, HeaderMap, HeaderName};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use subtle::ConstantTimeEq;

/// The header with the key of a session.
pub const KEY_HEADER: HeaderName = HeaderName::from_static("x-howdah-key");
/// The cookie's name.
pub const COOKIE_NAME: &str = "howdah-dashboard";

/// The token, and the sessions.
#[derive(Debug)]
pub struct Sessions {
    token: Secret,
    /// The oldest first.
    open: Mutex<VecDeque<Session>>,
}

/// A browser that has shown the token.
#[derive(Clone, Debug)]
pub struct Session {
    /// The value of the cookie.
    pub cookie: Secret,
    /// The value of the header.
    pub key: Secret,
}

/// A random text that cannot be guessed.
#[derive(Clone)]
pub struct Secret(String);

/// The random bytes of a secret.
const BYTES: usize = 32;
/// How many browsers may be open. One more closes the oldest.
const MAX_SESSIONS: usize = 32;

// === impl Sessions ===

impl Sessions {
    /// With a new token.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn new() -> Result<Sessions, String> {
        Ok(Sessions { token: Secret::random()?, open: Mutex::default() })
    }

    /// The token, which opens sessions until the dashboard ends.
    pub fn token(&self) -> &str {
        &self.token.0
    }

    /// Opens a session for a browser that shows this token; `None` if it is another one.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn open(&self, token: &str) -> Result<Option<Session>, String> {
        if !self.token.is(token) {
            return Ok(None);
        }
        let session = Session { cookie: Secret::random()?, key: Secret::random()? };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(session.clone());
        if open.len() > MAX_SESSIONS {
            open.pop_front();
        }
        Ok(Some(session))
    }

    /// Whether the request belongs to a session.
    pub fn has(&self, headers: &HeaderMap) -> bool {
        self.find(headers, |_, _| ()).is_some()
    }

    /// Closes the session of the request.
    pub fn close(&self, headers: &HeaderMap) {
        self.find(headers, |open, at| drop(open.remove(at)));
    }

    fn find<R>(&self, headers: &HeaderMap, then: impl FnOnce(&mut VecDeque<Session>, usize) -> R) -> Option<R> {
        let key = headers.get(KEY_HEADER)?.to_str().ok()?;
        let cookies: Vec<_> = cookies(headers).collect();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open
            .iter()
            .position(|session| session.key.is(key) && cookies.iter().any(|cookie| session.cookie.is(cookie)))?;
        Some(then(&mut open, at))
    }
}

/// The values of our cookie. Another server on this machine may have set one of the same name.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(';'));
    pairs.filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    })
}

// === impl Secret ===

impl Secret {
    fn random() -> Result<Secret, String> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("the kernel has no random bytes for a token: {error}"))?;
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Secret(text))
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// In a time that does not depend on how much of it is right.
    fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

/// Secrets stay out of logs.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(cookies: &[&str], key: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(COOKIE, HeaderValue::from_str(cookie).unwrap());
        }
        if let Some(key) = key {
            headers.insert(KEY_HEADER, HeaderValue::from_str(key).unwrap());
        }
        headers
    }

    #[test]
    fn only_the_token_opens_a_session() {
        let sessions = Sessions::new().unwrap();
        assert_eq!(sessions.token().len(), 2 * BYTES);
        assert_ne!(sessions.token(), Sessions::new().unwrap().token());
        for wrong in ["", "0", &sessions.token()[1..], &format!("{}0", sessions.token())] {
            assert!(sessions.open(wrong).unwrap().is_none(), "{wrong}");
        }
        assert!(sessions.open(sessions.token()).unwrap().is_some());
        assert_eq!(format!("{:?}", sessions.token), "Secret");
    }

    #[test]
    fn a_request_needs_the_cookie_and_the_key_of_one_session() {
        let sessions = Sessions::new().unwrap();
        let [first, second] = [(); 2].map(|()| sessions.open(sessions.token()).unwrap().unwrap());
        let cookie = |session: &Session| format!("{COOKIE_NAME}={}", session.cookie.text());
        let (its, other) = (cookie(&first), cookie(&second));
        for (cookies, key, expected) in [
            (vec![its.as_str()], Some(first.key.text()), true),
            (vec!["a=b; howdah-dashboard=x", &format!("c=d;{its} ")], Some(first.key.text()), true),
            (vec![], Some(first.key.text()), false),
            (vec![&its], None, false),
            (vec![&its], Some(""), false),
            (vec![&its], Some(second.key.text()), false),
            (vec![&other], Some(first.key.text()), false),
            (vec![&its], Some(sessions.token()), false),
            (vec!["howdah-dashboard="], Some(first.key.text()), false),
        ] {
            assert_eq!(sessions.has(&headers(&cookies, key)), expected, "{cookies:?}");
        }
        sessions.close(&headers(&[&its], Some(first.key.text())));
        assert!(!sessions.has(&headers(&[&its], Some(first.key.text()))));
        assert!(sessions.has(&headers(&[&other], Some(second.key.text()))));
    }

    #[test]
    fn the_oldest_session_is_closed_when_there_are_too_many() {
        let sessions = Sessions::new().unwrap();
        let all: Vec<_> = (0..=MAX_SESSIONS).map(|_| sessions.open(sessions.token()).unwrap().unwrap()).collect();
        let is_open = |session: &Session| {
            sessions.has(&headers(&[&format!("{COOKIE_NAME}={}", session.cookie.text())], Some(session.key.text())))
        };
        assert!(!is_open(&all[0]) && is_open(&all[1]) && is_open(&all[MAX_SESSIONS]));
    }
}
