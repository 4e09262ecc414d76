//! Which requests kill the workers that run them, and how many of those may run. Pure: it is told what happens and when.
//!
//! A worker that dies is replaced, and the supervisor replaces so many in a second (`respawn`). A script that kills each
//! worker that touches it must not use all of that up: then no request would find a worker. So a request is *suspect*
//! when at least [`SUSPICIOUS`] requests like it, and half of those that ended lately, killed their workers; suspects run
//! as often as a token bucket allows, and more of them are refused. All others run as if there were no suspects.
//!
//! Requests are alike if they have the same method, host, path and query. If many others with one path kill, and at least
//! half of those that run, all with this path are alike; likewise all that run one script. So a query that kills does not
//! condemn its page, and one that is another each time does not escape, unless more with its path and script do no harm.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;

/// What requests that are alike have in common, as hashes, from the narrowest to the widest: all of it; host and path; the
/// script. Each with the method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alike([u64; 3]);

/// What is known of those that killed.
#[derive(Debug, Default)]
pub struct Killers {
    known: HashMap<u64, Known>,
    /// Until when what is spent is earned again: by those that are suspect themselves; by all others that kill, so that these
    /// need not share with those.
    spent_until: [Option<Instant>; 2],
}

/// How requests ended that have a hash in common, since the first of them killed: the latest [`REMEMBERED`] count most.
#[derive(Debug)]
struct Known {
    /// After so many deaths it is not chance.
    suspicious: u32,
    killed: u32,
    survived: u32,
    last_killed: Instant,
}

/// So many suspects, at most, may kill in a second for ever, and as many of those that are suspect for what others did. The
/// supervisor replaces more than both.
pub const SUSPECTS_PER_SECOND: u32 = 20;
/// The level of those that are suspect for what others did.
const WIDE: usize = 1;
const EACH: Duration = Duration::from_millis(1000 / SUSPECTS_PER_SECOND as u64);
/// So many may at once.
const AT_ONCE: u32 = 10;
/// Before so many have killed, it may be chance: of each likeness, the wider the more.
const SUSPICIOUS: [u32; 3] = [3, 7, 15];
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
    /// The likeness of a request. Paths and queries are those that came, and those after a rewrite: PHP sees both.
    pub fn of(method: &str, host: &str, paths: [&[u8]; 2], queries: [&str; 2], script: &[u8]) -> Alike {
        Alike([
            HASHER.hash_one((method, host, paths, queries)),
            HASHER.hash_one((method, host, paths)),
            HASHER.hash_one((method, script)),
        ])
    }
}

// === impl Killers ===

impl Killers {
    /// Whether nothing is known: then all may run, and nobody need ask.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether one more of these might run.
    pub fn foresee(&self, alike: Alike, now: Instant) -> bool {
        self.suspicion(alike).is_none_or(|level| self.may_spend(level, now))
    }

    /// Whether one more of these may run.
    pub fn admit(&mut self, alike: Alike, now: Instant) -> bool {
        self.suspicion(alike).is_none_or(|level| self.spend(level, now))
    }

    /// One of these killed its worker: after its answer, if it seemed to have survived.
    pub fn killed(&mut self, alike: Alike, was_answered: bool, now: Instant) {
        for key in alike.0.iter().filter(|_| was_answered) {
            if let Some(known) = self.known.get_mut(key) {
                known.survived = known.survived.saturating_sub(1);
            }
        }
        // A suspect's death was counted when it was let in.
        if !self.is_suspect(alike) {
            self.spend(WIDE, now);
        }
        self.forget(now);
        let mut explained = None;
        for (key, suspicious) in alike.0.into_iter().zip(SUSPICIOUS) {
            let known = self.known.entry(key).or_insert(Known { suspicious, killed: 0, survived: 0, last_killed: now });
            // What is explained says nothing about those that have less in common with it.
            if let Some(explained) = explained {
                known.killed = known.killed.saturating_sub(explained);
                continue;
            }
            let was_suspect = known.is_suspect();
            (known.killed, known.last_killed) = (known.killed + 1, now);
            known.age();
            match (was_suspect, known.is_suspect()) {
                (true, _) => explained = Some(0),
                // The wider ones have not heard of this one, but of those before.
                (false, true) => explained = Some(known.killed - 1),
                (false, false) => {}
            }
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
        while self.known.len() > MOST - 3 {
            let oldest = self.known.iter().min_by_key(|(_, known)| (known.is_suspect(), known.last_killed));
            let oldest = oldest.map(|(key, _)| *key);
            oldest.and_then(|key| self.known.remove(&key));
        }
    }

    /// Whether so many like these have killed that one more probably does.
    pub fn is_suspect(&self, alike: Alike) -> bool {
        self.suspicion(alike).is_some()
    }

    /// Whose tokens it takes.
    fn suspicion(&self, alike: Alike) -> Option<usize> {
        let level = alike.0.iter().position(|key| self.known.get(key).is_some_and(Known::is_suspect))?;
        Some(level.min(WIDE))
    }

    fn may_spend(&self, level: usize, now: Instant) -> bool {
        self.spent_until[level].is_none_or(|until| until + EACH <= now + EACH * AT_ONCE)
    }

    fn spend(&mut self, level: usize, now: Instant) -> bool {
        let may = self.may_spend(level, now);
        if may {
            self.spent_until[level] = Some(self.spent_until[level].map_or(now, |until| until.max(now)) + EACH);
        }
        may
    }
}

// === impl Known ===

impl Known {
    fn is_suspect(&self) -> bool {
        self.killed >= self.suspicious && self.killed >= self.survived
    }

    fn age(&mut self) {
        if self.killed + self.survived >= REMEMBERED {
            (self.killed, self.survived) = (self.killed / 2, self.survived / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a front controller, if the path does not end with `.php`.
    fn alike(uri: &str) -> Alike {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let script = if path.ends_with(".php") { path } else { "/index.php" };
        Alike::of("GET", "shop", [path.as_bytes(), script.as_bytes()], [query; 2], script.as_bytes())
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
                    true => killers.killed(alike(uri), false, now),
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
        assert!((28..=33).contains(&ran), "{ran}: three, ten at once, and twenty a second");
        assert_eq!(let_in(&mut killers, "/good", false, after(start, 1000)), 100);
    }

    #[test]
    fn those_that_come_together_are_let_in_no_more_often() {
        let (mut killers, now) = (Killers::default(), Instant::now());
        for _ in 0..SUSPICIOUS[0] {
            killers.killed(alike("/bad"), false, now);
        }
        let let_in = (0..100).filter(|_| killers.admit(alike("/bad"), now)).count();
        assert_eq!(let_in as u32, AT_ONCE);
    }

    /// So many of each in a second, in turn: how many of the good ones are refused.
    fn refused(killers: &mut Killers, good: &str, good_rate: u64, bad: impl Fn(u64) -> String, bad_rate: u64) -> u32 {
        let (start, mut refused) = (Instant::now(), 0);
        for millisecond in 0..5000 {
            let now = after(start, millisecond);
            if millisecond % (1000 / bad_rate) == 0 && killers.admit(alike(&bad(millisecond)), now) {
                killers.killed(alike(&bad(millisecond)), false, now);
            }
            if millisecond % (1000 / good_rate) == 0 {
                match killers.admit(alike(good), now) {
                    true => killers.survived(alike(good)),
                    false => refused += 1,
                }
            }
        }
        refused
    }

    #[test]
    fn one_query_that_kills_does_not_condemn_its_page() {
        for (good, bad) in [("/?page=good", "/?page=bad"), ("/good", "/bad"), ("/post.php", "/post.php?bad")] {
            for many in [1, 5, 50] {
                let bad = |number| format!("{bad}{}", number % many);
                assert_eq!(refused(&mut Killers::default(), good, 5, bad, 1000), 0, "{good} {many}");
            }
        }
    }

    #[test]
    fn a_query_or_path_that_is_another_each_time_does_not_escape() {
        for bad in [
            |number| format!("/bad.php?{number}"),
            |number| format!("/bad?{number}"),
            |number| format!("/bad/{number}"),
        ] {
            let (mut killers, start, mut let_in) = (Killers::default(), Instant::now(), 0);
            for number in 0..1000 {
                let now = after(start, number);
                if killers.admit(alike(&bad(number)), now) {
                    let_in += 1;
                    killers.killed(alike(&bad(number)), false, now);
                }
            }
            assert!(let_in <= 15 + 21, "{} {let_in}", bad(0));
        }
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
            killers.killed(alike(&format!("/{number}?{number}")), false, now);
        }
        assert!(killers.known.len() <= MOST && !killers.is_empty());
    }
}
