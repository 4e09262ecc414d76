//! Which requests kill the workers that run them, and how many of those may run. Pure: it is told what happens and when.
//!
//! A worker that dies is replaced, and the supervisor replaces so many in a second (`respawn`). A script that kills each
//! worker that touches it must not use all of that up: then no request would find a worker. So a request is *suspect*
//! when at least [`SUSPICIOUS`] requests like it, and half of those that ended lately, killed their workers; suspects run
//! as often as a token bucket allows, and more of them are refused. All others run as if there were no suspects.
//!
//! Requests are alike if they have the same path and query. If most of those with a path kill, whatever their query is, all
//! with this path are.

use http::Uri;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;

/// What requests that are alike have in common: hashes of the path, and of path and query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alike([u64; 2]);

/// What is known of those that killed.
#[derive(Debug, Default)]
pub struct Killers {
    known: HashMap<u64, Known>,
    /// Until when what is spent is earned again.
    spent_until: Option<Instant>,
}

/// How requests ended that have a hash in common, since the first of them killed: the latest [`REMEMBERED`] count most.
#[derive(Debug)]
struct Known {
    killed: u32,
    survived: u32,
    last_killed: Instant,
}

/// So many suspects, at most, may kill in a second for ever. The supervisor replaces more than that.
pub const PER_SECOND: u32 = 20;
/// So many may at once.
const AT_ONCE: u32 = 10;
/// Before so many have killed, it may be chance.
const SUSPICIOUS: u32 = 3;
/// After so many, what was counts half: a script that is mended is soon free of suspicion.
const REMEMBERED: u32 = 32;
/// After this without a death, nothing is remembered.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Of so many; an attacker knows more paths.
const MOST: usize = 256;

// Not to be guessed: who finds two paths with one hash could have another's page refused.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

// === impl Alike ===

impl Alike {
    /// What is known of a request for this URI.
    pub fn of(uri: &Uri) -> Alike {
        Alike([HASHER.hash_one(uri.path()), HASHER.hash_one((uri.path(), uri.query()))])
    }
}

// === impl Killers ===

impl Killers {
    /// Whether nothing is known: then all may run, and nobody need ask.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether one more of these may run.
    pub fn admit(&mut self, alike: Alike, now: Instant) -> bool {
        !self.is_suspect(alike) || self.spend(now)
    }

    /// One of these killed its worker.
    pub fn killed(&mut self, alike: Alike, now: Instant) {
        // A suspect's death was counted when it was let in.
        if !self.is_suspect(alike) {
            self.spend(now);
        }
        self.forget(now);
        for key in alike.0 {
            let known = self.known.entry(key).or_insert(Known { killed: 0, survived: 0, last_killed: now });
            (known.killed, known.last_killed) = (known.killed + 1, now);
            known.age();
        }
    }

    /// One of these ran to its end.
    pub fn survived(&mut self, alike: Alike) {
        for key in alike.0 {
            if let Some(known) = self.known.get_mut(&key) {
                known.survived += 1;
                known.age();
            }
        }
    }

    /// Forgets what was long ago, and more than that when there is too much to remember.
    pub fn forget(&mut self, now: Instant) {
        self.known.retain(|_, known| now.saturating_duration_since(known.last_killed) < FORGOTTEN);
        while self.known.len() > MOST - 2 {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last_killed).map(|(key, _)| *key);
            oldest.and_then(|key| self.known.remove(&key));
        }
    }

    fn is_suspect(&self, alike: Alike) -> bool {
        let kills = |known: &Known| known.killed >= SUSPICIOUS && known.killed >= known.survived;
        alike.0.iter().any(|key| self.known.get(key).is_some_and(kills))
    }

    fn spend(&mut self, now: Instant) -> bool {
        let each = Duration::from_secs(1) / PER_SECOND;
        let spent_until = self.spent_until.map_or(now, |until| until.max(now)) + each;
        if spent_until > now + each * AT_ONCE {
            return false;
        }
        self.spent_until = Some(spent_until);
        true
    }
}

// === impl Known ===

impl Known {
    fn age(&mut self) {
        if self.killed + self.survived >= REMEMBERED {
            (self.killed, self.survived) = (self.killed / 2, self.survived / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(uri: &str) -> Alike {
        Alike::of(&uri.parse().unwrap())
    }

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    /// How many of a hundred may run, ten milliseconds after each other. Those that may kill at once, or do not.
    fn let_in(killers: &mut Killers, uri: &str, kills: bool, start: Instant) -> u32 {
        let mut let_in = 0;
        for number in 0..100 {
            let now = after(start, number * 10);
            if killers.admit(alike(uri), now) {
                let_in += 1;
                match kills {
                    true => killers.killed(alike(uri), now),
                    false => killers.survived(alike(uri)),
                }
            }
        }
        let_in
    }

    #[test]
    fn a_killer_is_contained_and_nobody_else() {
        let (mut killers, start) = (Killers::default(), Instant::now());
        assert_eq!(let_in(&mut killers, "/good", false, start), 100);
        assert!(killers.is_empty());
        let ran = let_in(&mut killers, "/bad", true, start);
        assert!((28..=31).contains(&ran), "{ran}: ten at once and twenty a second");
        assert_eq!(let_in(&mut killers, "/good", false, after(start, 1000)), 100);
    }

    #[test]
    fn those_that_come_together_are_let_in_no_more_often() {
        let (mut killers, now) = (Killers::default(), Instant::now());
        for _ in 0..SUSPICIOUS {
            killers.killed(alike("/bad"), now);
        }
        let let_in = (0..100).filter(|_| killers.admit(alike("/bad"), now)).count();
        assert_eq!(let_in as u32, AT_ONCE - SUSPICIOUS);
    }

    #[test]
    fn other_queries_of_a_path_are_suspect_only_if_most_of_them_kill() {
        let (mut killers, start) = (Killers::default(), Instant::now());
        for number in 0..200 {
            let now = after(start, number * 10);
            let other = alike(&format!("/index.php?page={number}"));
            assert!(killers.admit(other, now), "{number}");
            killers.survived(other);
            if killers.admit(alike("/index.php?page=bad"), now) {
                killers.killed(alike("/index.php?page=bad"), now);
            }
            assert!(killers.admit(alike("/index.php?page=good"), now), "{number}");
            killers.survived(alike("/index.php?page=good"));
        }
        let mut let_in = 0;
        for number in 0..100 {
            let (uri, now) = (alike(&format!("/bad?{number}")), after(start, 3000 + number * 10));
            if killers.admit(uri, now) {
                let_in += 1;
                killers.killed(uri, now);
            }
        }
        assert!(let_in <= 31, "{let_in}");
    }

    #[test]
    fn who_is_mended_is_free_of_suspicion_soon() {
        let (mut killers, start) = (Killers::default(), Instant::now());
        let_in(&mut killers, "/bad", true, start);
        let_in(&mut killers, "/bad", false, after(start, 1000));
        assert_eq!(let_in(&mut killers, "/bad", false, after(start, 2000)), 100);
        killers.forget(after(start, 61_000));
        assert!(killers.is_empty());
    }

    #[test]
    fn it_does_not_remember_without_end() {
        let (mut killers, now) = (Killers::default(), Instant::now());
        for number in 0..1000 {
            killers.killed(alike(&format!("/{number}?{number}")), now);
        }
        assert!(killers.known.len() <= MOST);
    }
}
