//! Which requests kill the workers that run them, and how many of those may run. Pure: a function of events and their
//! times.
//!
//! A worker that dies is replaced, and the supervisor replaces a limited number per second (`respawn`). A script that kills
//! each worker must not use up all of that number: no other request would find a worker. A request is therefore *suspect*
//! when at least [`SUSPICIOUS`] requests of its kind, and half of those that ended lately, killed their workers. Suspects
//! run as often as a token bucket allows, and the rest of them is rejected with 503. All other requests run as if there
//! were no suspects.
//!
//! Requests are of one kind if they have the same method, host, path and query. If many requests with one path kill, and
//! at least half of those that run, all requests with this path are of one kind; likewise all that run one script. A
//! query that kills does therefore not condemn its page. Nor does a query that changes with each request escape, unless
//! more requests with its path and script are harmless.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;

/// The kind of a request, as hashes from the narrowest to the widest: method, host, paths and queries; method, host and
/// paths; method and script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKind([u64; 3]);

/// The kinds of requests that killed workers.
#[derive(Debug, Default)]
pub struct Killers {
    records: HashMap<u64, KillRecord>,
    /// When the spent tokens are earned again: for suspects by their own query, and for all others that kill. With two
    /// buckets, neither group uses up the tokens of the other.
    spent_until: [Option<Instant>; 2],
}

/// How requests of one kind ended, since the first of them killed. The latest [`REMEMBERED`] count most.
#[derive(Debug)]
struct KillRecord {
    /// The number of deaths that cannot be chance.
    suspicious: u32,
    killed: u32,
    survived: u32,
    last_killed: Instant,
}

/// How many suspects by their own query may kill per second, and the same for suspects by path or script. The supervisor
/// replaces more than both.
pub const SUSPECTS_PER_SECOND: u32 = 20;
/// The bucket of suspects by path or script.
const WIDE: usize = 1;
/// The time in which a token is earned.
const EACH: Duration = Duration::from_millis(1000 / SUSPECTS_PER_SECOND as u64);
/// The tokens of a full bucket.
const AT_ONCE: u32 = 10;
/// The number of deaths that make a kind suspect, from the narrowest to the widest. Fewer may be chance.
const SUSPICIOUS: [u32; 3] = [3, 7, 15];
/// After this number of requests, the older ones count half: a repaired script is soon free of suspicion.
const REMEMBERED: u32 = 32;
/// A record is dropped after this time without a death.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// The most records. An attacker knows more paths.
const MAX_RECORDS: usize = 256;

// Random: a client that finds two paths with one hash could have another client's page rejected.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

// === impl RequestKind ===

impl RequestKind {
    /// The kind of a request. Paths and queries are those that came, and those after a rewrite: PHP sees both.
    pub fn of(method: &str, host: &str, paths: [&[u8]; 2], queries: [&str; 2], script: &[u8]) -> RequestKind {
        let mut narrowing = HASHER.build_hasher();
        method.hash(&mut narrowing);
        let mut of_script = narrowing.clone();
        script.hash(&mut of_script);
        host.hash(&mut narrowing);
        // Mostly there is no rewrite: the second text is the first one.
        paths[0].hash(&mut narrowing);
        (paths[1] != paths[0]).then_some(paths[1]).hash(&mut narrowing);
        let of_paths = narrowing.finish();
        queries[0].hash(&mut narrowing);
        (queries[1] != queries[0]).then_some(queries[1]).hash(&mut narrowing);
        RequestKind([narrowing.finish(), of_paths, of_script.finish()])
    }
}

// === impl Killers ===

impl Killers {
    /// Whether there are no records: all requests may run.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether another request of this kind would be admitted.
    pub fn would_admit(&self, kind: RequestKind, now: Instant) -> bool {
        self.suspicion(kind).is_none_or(|level| self.may_spend(level, now))
    }

    /// Whether another request of this kind may run. If it is suspect, it takes a token.
    pub fn admit(&mut self, kind: RequestKind, now: Instant) -> bool {
        self.suspicion(kind).is_none_or(|level| self.spend(level, now))
    }

    /// Counts a request that killed its worker. After its answer, it was counted as a survivor before.
    pub fn killed(&mut self, kind: RequestKind, was_answered: bool, now: Instant) {
        for key in kind.0.iter().filter(|_| was_answered) {
            if let Some(record) = self.records.get_mut(key) {
                record.survived = record.survived.saturating_sub(1);
            }
        }
        // A suspect has taken its token when it was admitted.
        if !self.is_suspect(kind) {
            self.spend(WIDE, now);
        }
        self.forget(now);
        let mut explained = None;
        for (key, suspicious) in kind.0.into_iter().zip(SUSPICIOUS) {
            let record =
                self.records.entry(key).or_insert(KillRecord { suspicious, killed: 0, survived: 0, last_killed: now });
            // A death that a narrower kind explains does not count for a wider one.
            if let Some(explained) = explained {
                record.killed = record.killed.saturating_sub(explained);
                continue;
            }
            let was_suspect = record.is_suspect();
            (record.killed, record.last_killed) = (record.killed + 1, now);
            record.age();
            match (was_suspect, record.is_suspect()) {
                (true, _) => explained = Some(0),
                // The wider kinds have counted the deaths before this one.
                (false, true) => explained = Some(record.killed - 1),
                (false, false) => {}
            }
        }
    }

    /// Counts a request that ran to its end.
    pub fn survived(&mut self, kind: RequestKind) {
        for key in kind.0 {
            if let Some(record) = self.records.get_mut(&key) {
                record.survived += 1;
                record.age();
            }
        }
    }

    /// Drops old records, and more of them when there are too many.
    pub fn forget(&mut self, now: Instant) {
        self.records.retain(|_, record| now.saturating_duration_since(record.last_killed) < FORGOTTEN);
        while self.records.len() > MAX_RECORDS - 3 {
            let oldest = self.records.iter().min_by_key(|(_, record)| (record.is_suspect(), record.last_killed));
            let oldest = oldest.map(|(key, _)| *key);
            oldest.and_then(|key| self.records.remove(&key));
        }
    }

    /// Whether another request of this kind probably kills.
    pub fn is_suspect(&self, kind: RequestKind) -> bool {
        self.suspicion(kind).is_some()
    }

    /// The bucket whose tokens a suspect takes; `None` if it is not suspect.
    fn suspicion(&self, kind: RequestKind) -> Option<usize> {
        let level = kind.0.iter().position(|key| self.records.get(key).is_some_and(KillRecord::is_suspect))?;
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

// === impl KillRecord ===

impl KillRecord {
    fn is_suspect(&self) -> bool {
        self.killed >= self.suspicious && self.killed >= self.survived
    }

    /// Lets older requests count half.
    fn age(&mut self) {
        if self.killed + self.survived >= REMEMBERED {
            (self.killed, self.survived) = (self.killed / 2, self.survived / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind of a request. A path that does not end with `.php` runs a front controller.
    fn kind(uri: &str) -> RequestKind {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let script = if path.ends_with(".php") { path } else { "/index.php" };
        RequestKind::of("GET", "shop", [path.as_bytes(), script.as_bytes()], [query; 2], script.as_bytes())
    }

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    /// How many of a hundred requests may run, in intervals of ten milliseconds. Each that runs kills, or does not.
    fn let_in(killers: &mut Killers, uri: &str, kills: bool, start: Instant) -> u32 {
        let mut let_in = 0;
        for number in 0..100 {
            let now = after(start, number * 10);
            if killers.admit(kind(uri), now) {
                let_in += 1;
                match kills {
                    true => killers.killed(kind(uri), false, now),
                    false => killers.survived(kind(uri)),
                }
            }
        }
        let_in
    }

    #[test]
    fn a_killer_is_contained_and_other_requests_run() {
        let (mut killers, start) = (Killers::default(), Instant::now());
        assert_eq!(let_in(&mut killers, "/good", false, start), 100);
        assert!(killers.is_empty());
        let ran = let_in(&mut killers, "/bad", true, start);
        assert!((28..=33).contains(&ran), "{ran}: three, ten at once, and twenty a second");
        assert_eq!(let_in(&mut killers, "/good", false, after(start, 1000)), 100);
    }

    #[test]
    fn suspects_that_come_together_are_not_admitted_more_often() {
        let (mut killers, now) = (Killers::default(), Instant::now());
        for _ in 0..SUSPICIOUS[0] {
            killers.killed(kind("/bad"), false, now);
        }
        let let_in = (0..100).filter(|_| killers.admit(kind("/bad"), now)).count();
        assert_eq!(let_in as u32, AT_ONCE);
    }

    /// How many good requests are rejected while good and bad ones come in turn, at these rates per second.
    fn rejected(killers: &mut Killers, good: &str, good_rate: u64, bad: impl Fn(u64) -> String, bad_rate: u64) -> u32 {
        let (start, mut rejected) = (Instant::now(), 0);
        for millisecond in 0..5000 {
            let now = after(start, millisecond);
            if millisecond % (1000 / bad_rate) == 0 && killers.admit(kind(&bad(millisecond)), now) {
                killers.killed(kind(&bad(millisecond)), false, now);
            }
            if millisecond % (1000 / good_rate) == 0 {
                match killers.admit(kind(good), now) {
                    true => killers.survived(kind(good)),
                    false => rejected += 1,
                }
            }
        }
        rejected
    }

    #[test]
    fn one_query_that_kills_does_not_condemn_its_page() {
        for (good, bad) in [("/?page=good", "/?page=bad"), ("/good", "/bad"), ("/post.php", "/post.php?bad")] {
            for many in [1, 5, 50] {
                let bad = |number| format!("{bad}{}", number % many);
                assert_eq!(rejected(&mut Killers::default(), good, 5, bad, 1000), 0, "{good} {many}");
            }
        }
    }

    #[test]
    fn a_query_or_path_that_changes_each_time_does_not_escape() {
        for bad in [
            |number| format!("/bad.php?{number}"),
            |number| format!("/bad?{number}"),
            |number| format!("/bad/{number}"),
        ] {
            let (mut killers, start, mut let_in) = (Killers::default(), Instant::now(), 0);
            for number in 0..1000 {
                let now = after(start, number);
                if killers.admit(kind(&bad(number)), now) {
                    let_in += 1;
                    killers.killed(kind(&bad(number)), false, now);
                }
            }
            assert!(let_in <= 15 + 21, "{} {let_in}", bad(0));
        }
    }

    #[test]
    fn a_repaired_script_is_soon_free_of_suspicion() {
        let (mut killers, start) = (Killers::default(), Instant::now());
        let_in(&mut killers, "/bad", true, start);
        let_in(&mut killers, "/bad", false, after(start, 1000));
        assert_eq!(let_in(&mut killers, "/bad", false, after(start, 2000)), 100);
        killers.forget(after(start, 61_000));
        assert!(killers.is_empty());
    }

    #[test]
    fn the_number_of_records_is_limited() {
        let (mut killers, now) = (Killers::default(), Instant::now());
        for number in 0..1000 {
            killers.killed(kind(&format!("/{number}?{number}")), false, now);
        }
        assert!(killers.records.len() <= MAX_RECORDS && !killers.is_empty());
    }
}
