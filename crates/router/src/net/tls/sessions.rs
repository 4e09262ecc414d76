//! Sessions that the server remembers, for clients that resume them: `session/cache_size` and `session/timeout`.
//!
//! rustls has a cache, too (`ServerSessionMemoryCache`), but without a timeout, and it searches all of its entries
//! whenever a session is taken, which TLS 1.3 does at each resumption.

use rustls::server::StoresServerSessions;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last `size` stored sessions, shared by all threads.
pub struct SessionCache {
    size: usize,
    timeout: Duration,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    sessions: HashMap<Vec<u8>, CachedSession>,
    /// The numbers and keys of the stored sessions, oldest first. A session that was taken since keeps its entry.
    stored: VecDeque<(u64, Vec<u8>)>,
    next_number: u64,
}

struct CachedSession {
    value: Vec<u8>,
    stored: Instant,
    /// Distinguishes two sessions that were stored under the same key.
    number: u64,
}

// === impl SessionCache ===

impl SessionCache {
    /// Remembers up to `size` sessions for `timeout`.
    pub fn new(size: usize, timeout: Duration) -> SessionCache {
        SessionCache { size, timeout, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        // The state is consistent between any two statements, also after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self, session: &CachedSession) -> bool {
        session.stored.elapsed() <= self.timeout
    }
}

impl StoresServerSessions for SessionCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let state = &mut *self.state();
        let number = state.next_number;
        state.next_number += 1;
        state.stored.push_back((number, key.clone()));
        state.sessions.insert(key, CachedSession { value, stored: Instant::now(), number });
        while state.stored.len() > self.size
            && let Some((number, key)) = state.stored.pop_front()
        {
            if state.sessions.get(&key).is_some_and(|session| session.number == number) {
                state.sessions.remove(&key);
            }
        }
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state().sessions.get(key).filter(|session| self.is_fresh(session)).map(|session| session.value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state().sessions.remove(key).filter(|session| self.is_fresh(session)).map(|session| session.value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for SessionCache {
    /// Sessions are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCache").field("size", &self.size).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sessions_are_remembered() {
        let cache = SessionCache::new(2, Duration::from_secs(300));
        let put = |key: &[u8]| assert!(cache.put(key.to_vec(), [key, b"!"].concat()));
        [b"a", b"b", b"c"].into_iter().for_each(|key| put(key));
        assert_eq!(cache.get(b"a"), None);
        assert_eq!(cache.get(b"b").as_deref(), Some(&b"b!"[..]));
        assert_eq!(cache.take(b"c").as_deref(), Some(&b"c!"[..]));
        assert_eq!(cache.take(b"c"), None);
        // A session that is stored again counts as new.
        put(b"b");
        put(b"d");
        assert!(cache.get(b"b").is_some() && cache.get(b"d").is_some());
        for _ in 0..100 {
            put(b"e");
            assert!(cache.take(b"e").is_some());
        }
        let state = cache.state();
        assert!(state.stored.len() <= 2 && state.sessions.len() <= 2);
    }

    #[test]
    fn a_session_is_forgotten_after_its_time() {
        let cache = SessionCache::new(2, Duration::ZERO);
        cache.put(b"a".to_vec(), Vec::new());
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!((cache.get(b"a"), cache.take(b"a")), (None, None));
    }
}
