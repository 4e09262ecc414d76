//! The files that a router thread has at hand: their headers, and the content of those that are small enough.
//!
//! The cache is bounded in bytes; when it is full, what was not asked for since the last round goes first (the CLOCK
//! approximation of least recently used). It believes nothing for longer than a request: the caller compares the
//! identity of each entry with a fresh `stat`, and puts in only what has settled ([`Identity::is_settled`]), so that
//! a file that changed is never served from here. The one writer that this cannot see is one that goes on writing
//! through a shared mapping of a page that it has dirtied already: the kernel itself does not update the time then.
//!
//! **Why a hit may skip the link policy.** An entry lies under the policy, the base and the path for which its file
//! was opened and allowed. A hit needs the path to lead to the same inode, unchanged, with permissions unchanged (they
//! are part of the change time) and with all folders on the way passable for us (`stat` needs that as opening does).
//! So a hit sends nothing but bytes that were allowed under this very name. Whether the name still leads there by a
//! way that the policy allows is asked again once a second ([`Entry::policy_is_fresh`]).
//!
//! [`Identity::is_settled`]: super::version::Identity::is_settled

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    open::{Links, Place},
    version::Version,
};

/// The largest file whose content is kept, in bytes.
pub(super) const MAX_FILE: u64 = 2 * 1024 * 1024;

/// All that a thread's cache may take, in bytes.
pub(super) const CAPACITY: usize = 32 * 1024 * 1024;

/// What an entry costs besides its content and its key, in bytes; generous.
const OVERHEAD: usize = 1024;

/// For how long a decision about links holds.
const POLICY_FRESH: Duration = Duration::from_secs(1);

pub(super) struct Cache {
    entries: HashMap<Rc<str>, Slot>,
    /// The hand of the clock is at the front. Has the same keys as `entries`.
    clock: VecDeque<Rc<str>>,
    /// What the entries cost.
    bytes: usize,
    capacity: usize,
}

struct Slot {
    entry: Entry,
    /// Asked for since the hand last passed.
    used: Cell<bool>,
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) version: Rc<Version>,
    /// Absent in files that are too large, or of which nobody has wanted the content yet.
    pub(super) content: Option<Bytes>,
    /// When the file was last opened under the link policy.
    pub(super) opened: Instant,
}

// === impl Cache ===

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), clock: VecDeque::new(), bytes: 0, capacity }
    }

    pub(super) fn find(&self, key: &str) -> Option<&Entry> {
        let slot = self.entries.get(key)?;
        slot.used.set(true);
        Some(&slot.entry)
    }

    /// Puts an entry in, in place of an older one of that name.
    pub(super) fn insert(&mut self, key: &str, entry: Entry) {
        self.bytes += cost(key, &entry);
        if let Some(slot) = self.entries.get_mut(key) {
            self.bytes -= cost(key, &slot.entry);
            slot.entry = entry;
        } else {
            let key = Rc::<str>::from(key);
            self.clock.push_back(Rc::clone(&key));
            self.entries.insert(key, Slot { entry, used: Cell::new(false) });
        }
        while self.bytes > self.capacity && self.evict() {}
    }

    /// False if there is nothing to be evicted. Ends, because each round clears the marks that it meets.
    fn evict(&mut self) -> bool {
        while let Some(key) = self.clock.pop_front() {
            if self.entries.get(&key).is_some_and(|slot| slot.used.take()) {
                self.clock.push_back(key);
                continue;
            }
            if let Some(slot) = self.entries.remove(&key) {
                self.bytes -= cost(&key, &slot.entry);
            }
            return true;
        }
        false
    }
}

// === impl Entry ===

impl Entry {
    /// Whether the file was opened, and its links judged, recently enough.
    pub(super) fn policy_is_fresh(&self, links: Links) -> bool {
        links == Links::Follow || self.opened.elapsed() < POLICY_FRESH
    }
}

/// Writes the name under which a place is kept. A NUL occurs neither in a base nor in a path.
pub(super) fn write_key(key: &mut String, place: Place<'_>) {
    key.clear();
    key.push(match place.links {
        Links::Follow => '+',
        Links::StayBelow => '?',
        Links::Never => '-',
    });
    if !place.mounts {
        key.push('1');
    }
    if place.links != Links::Follow {
        // A base that is not UTF-8 is no part of a path that is.
        key.push_str(place.base.to_str().unwrap_or_default());
        key.push('\0');
    }
    key.push_str(place.path);
}

fn cost(key: &str, entry: &Entry) -> usize {
    OVERHEAD + 2 * key.len() + entry.content.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::{super::version::tests::identity, *};
    use std::{path::Path, time::UNIX_EPOCH};

    fn entry(content: usize) -> Entry {
        let version = Version::new(identity(1, content as u64), "/a", None, UNIX_EPOCH);
        Entry { version: Rc::new(version), content: Some(vec![0; content].into()), opened: Instant::now() }
    }

    fn assert_consistent(cache: &Cache) {
        assert_eq!(cache.clock.len(), cache.entries.len());
        assert_eq!(cache.bytes, cache.entries.iter().map(|(key, slot)| cost(key, &slot.entry)).sum::<usize>());
        assert!(cache.bytes <= cache.capacity);
    }

    #[test]
    fn the_cache_stays_below_its_capacity() {
        let mut cache = Cache::new(100_000);
        for at in 0..1000 {
            cache.insert(&at.to_string(), entry(at * 37 % 20_000));
            assert_consistent(&cache);
        }
        assert!(cache.entries.len() > 3);
    }

    #[test]
    fn what_is_asked_for_stays() {
        let mut cache = Cache::new(20 * (OVERHEAD + 1000));
        cache.insert("asked", entry(900));
        for at in 0..200 {
            assert!(cache.find("asked").is_some(), "{at}");
            cache.insert(&at.to_string(), entry(900));
        }
        assert!(cache.find("0").is_none());
        assert!(cache.find("199").is_some());
    }

    #[test]
    fn a_newer_entry_takes_the_place_of_the_older() {
        let mut cache = Cache::new(100_000);
        for length in [10, 50_000, 20] {
            cache.insert("a", entry(length));
            assert_consistent(&cache);
            assert_eq!(cache.find("a").unwrap().content.as_ref().unwrap().len(), length);
        }
    }

    #[test]
    fn what_is_larger_than_the_cache_does_not_stay() {
        let mut cache = Cache::new(10_000);
        cache.insert("small", entry(10));
        cache.insert("large", entry(20_000));
        assert!(cache.find("large").is_none());
        assert_consistent(&cache);
    }

    #[test]
    fn keys_tell_policies_bases_and_paths_apart() {
        let mut keys = Vec::new();
        for links in [Links::Follow, Links::StayBelow, Links::Never] {
            for base in ["/srv", "/srv/a"] {
                for path in ["/srv/a/b", "/srv/a/c"] {
                    let mut key = String::from("left over");
                    write_key(&mut key, Place { path, base: Path::new(base), relative: "", links, mounts: true });
                    keys.push(key);
                }
            }
        }
        keys.sort();
        keys.dedup();
        // Where links are followed anyway, the base does not matter.
        assert_eq!(keys.len(), 2 + 4 + 4);
    }
}
