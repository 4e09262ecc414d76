//! A thread's cache of files: their headers, and the content of small files.
//!
//! The cache is bounded in bytes. When it is full, it evicts the files that were not used since the last round (the CLOCK
//! approximation of least recently used). An entry is valid for one request only: the caller compares the identity of
//! each entry with a fresh `stat`, and inserts only files that have settled ([`FileIdentity::is_settled`]), so that a
//! changed file is never served from here. One writer stays invisible: a program that goes on writing through a shared
//! mapping of a page that it has dirtied already. The kernel itself does not update the time then.
//!
//! **Why a hit may skip the link policy.** The key of an entry contains the policy, the base and the path for which its
//! file was opened and allowed. A hit needs the path to lead to the same inode, unchanged, with permissions unchanged
//! (they are part of the change time) and with all folders on the way passable for us (`stat` needs that as opening
//! does). A hit therefore sends only bytes that were allowed under this very name. Whether the name still leads there by
//! a way that the policy allows is checked again once a second ([`CachedFile::policy_is_fresh`]).
//!
//! [`FileIdentity::is_settled`]: super::version::FileIdentity::is_settled

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    open::{LinkPolicy, SharedPath},
    version::FileVersion,
};

/// The size limit for a file whose content is cached, in bytes.
pub(super) const MAX_FILE: u64 = 2 * 1024 * 1024;

/// The size of a thread's cache, in bytes.
pub(super) const CAPACITY: usize = 32 * 1024 * 1024;

/// The cost of an entry besides its content and its key, in bytes; estimated generously.
const OVERHEAD: usize = 1024;

/// How long the result of a link check is valid.
const POLICY_FRESH: Duration = Duration::from_secs(1);

pub(super) struct Cache {
    entries: HashMap<Rc<str>, CacheEntry>,
    /// The keys of `entries`. The hand of the clock is at the front.
    clock: VecDeque<Rc<str>>,
    /// The total cost of the entries.
    bytes: usize,
    capacity: usize,
}

struct CacheEntry {
    file: CachedFile,
    /// Used since the hand last passed.
    used: Cell<bool>,
}

#[derive(Clone)]
pub(super) struct CachedFile {
    pub(super) version: Rc<FileVersion>,
    /// Absent if the file is too large, or if no client has requested the content yet.
    pub(super) content: Option<Bytes>,
    /// When the file was last opened under the link policy.
    pub(super) opened: Instant,
}

// === impl Cache ===

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), clock: VecDeque::new(), bytes: 0, capacity }
    }

    pub(super) fn find(&self, key: &str) -> Option<&CachedFile> {
        let entry = self.entries.get(key)?;
        entry.used.set(true);
        Some(&entry.file)
    }

    /// Inserts a file. It replaces an older entry with the same key.
    pub(super) fn insert(&mut self, key: &str, file: CachedFile) {
        self.bytes += cost(key, &file);
        if let Some(entry) = self.entries.get_mut(key) {
            self.bytes -= cost(key, &entry.file);
            entry.file = file;
        } else {
            let key = Rc::<str>::from(key);
            self.clock.push_back(Rc::clone(&key));
            self.entries.insert(key, CacheEntry { file, used: Cell::new(false) });
        }
        while self.bytes > self.capacity && self.evict() {}
    }

    /// Returns false if there is nothing to evict. The loop ends, because each round clears the marks that it meets.
    fn evict(&mut self) -> bool {
        while let Some(key) = self.clock.pop_front() {
            if self.entries.get(&key).is_some_and(|entry| entry.used.take()) {
                self.clock.push_back(key);
                continue;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= cost(&key, &entry.file);
            }
            return true;
        }
        false
    }
}

// === impl CachedFile ===

impl CachedFile {
    /// Whether the file was opened, and its links checked, recently enough.
    pub(super) fn policy_is_fresh(&self, links: LinkPolicy) -> bool {
        links == LinkPolicy::Follow || self.opened.elapsed() < POLICY_FRESH
    }
}

/// Writes the key under which a path is cached. A NUL occurs neither in a base nor in a path.
pub(super) fn write_key(key: &mut String, shared: SharedPath<'_>) {
    key.clear();
    key.push(match shared.links {
        LinkPolicy::Follow => '+',
        LinkPolicy::StayBelow => '?',
        LinkPolicy::Never => '-',
    });
    if !shared.mounts {
        key.push('1');
    }
    if shared.links != LinkPolicy::Follow {
        // The path is UTF-8 and begins with the base, so that the base is UTF-8, too.
        key.push_str(shared.base.to_str().unwrap_or_default());
        key.push('\0');
    }
    key.push_str(shared.path);
}

fn cost(key: &str, file: &CachedFile) -> usize {
    OVERHEAD + 2 * key.len() + file.content.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::{super::version::tests::identity, *};
    use std::{path::Path, time::UNIX_EPOCH};

    fn file(content: usize) -> CachedFile {
        let version = FileVersion::new(identity(1, content as u64), "/a", None, UNIX_EPOCH);
        CachedFile { version: Rc::new(version), content: Some(vec![0; content].into()), opened: Instant::now() }
    }

    fn assert_consistent(cache: &Cache) {
        assert_eq!(cache.clock.len(), cache.entries.len());
        assert_eq!(cache.bytes, cache.entries.iter().map(|(key, entry)| cost(key, &entry.file)).sum::<usize>());
        assert!(cache.bytes <= cache.capacity);
    }

    #[test]
    fn the_cache_stays_below_its_capacity() {
        let mut cache = Cache::new(100_000);
        for at in 0..1000 {
            cache.insert(&at.to_string(), file(at * 37 % 20_000));
            assert_consistent(&cache);
        }
        assert!(cache.entries.len() > 3);
    }

    #[test]
    fn a_used_file_stays() {
        let mut cache = Cache::new(20 * (OVERHEAD + 1000));
        cache.insert("asked", file(900));
        for at in 0..200 {
            assert!(cache.find("asked").is_some(), "{at}");
            cache.insert(&at.to_string(), file(900));
        }
        assert!(cache.find("0").is_none());
        assert!(cache.find("199").is_some());
    }

    #[test]
    fn a_newer_file_replaces_the_older() {
        let mut cache = Cache::new(100_000);
        for length in [10, 50_000, 20] {
            cache.insert("a", file(length));
            assert_consistent(&cache);
            assert_eq!(cache.find("a").unwrap().content.as_ref().unwrap().len(), length);
        }
    }

    #[test]
    fn a_file_larger_than_the_cache_is_evicted() {
        let mut cache = Cache::new(10_000);
        cache.insert("small", file(10));
        cache.insert("large", file(20_000));
        assert!(cache.find("large").is_none());
        assert_consistent(&cache);
    }

    #[test]
    fn keys_differ_for_policies_bases_and_paths() {
        let mut keys = Vec::new();
        for links in [LinkPolicy::Follow, LinkPolicy::StayBelow, LinkPolicy::Never] {
            for base in ["/srv", "/srv/a"] {
                for path in ["/srv/a/b", "/srv/a/c"] {
                    let mut key = String::from("left over");
                    write_key(&mut key, SharedPath { path, base: Path::new(base), relative: "", links, mounts: true });
                    keys.push(key);
                }
            }
        }
        keys.sort();
        keys.dedup();
        // The base does not matter where all links are followed.
        assert_eq!(keys.len(), 2 + 4 + 4);
    }
}
