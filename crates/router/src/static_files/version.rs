//! One version of a file: its identity, and the headers that go with it.
//!
//! The headers are made once: a response with a cached version copies the map, whose values are reference counts.
//! Nothing fails here: a time that HTTP cannot express leaves out Last-Modified.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE},
};
use rustix::fs::Stat;

use super::{
    conditional::{LastModified, Validators},
    mime,
};

/// The properties of a version in the file system. Any change of a settled file changes its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    pub(super) device: u64,
    inode: u64,
    /// Bytes.
    pub(super) size: u64,
    modified: Timestamp,
    /// The time of the last change of content, owner, mode or name: no program can set it back.
    changed: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timestamp {
    seconds: i64,
    nanoseconds: u64,
}

/// A version of a file, with everything that a response needs except the content.
pub(super) struct FileVersion {
    pub(super) identity: FileIdentity,
    /// The type in the configuration when this version was made, if there was one.
    pub(super) configured_type: Option<Box<str>>,
    /// Absent if the type is unknown.
    pub(super) content_type: Option<HeaderValue>,
    /// The headers of a response with the whole file.
    pub(super) headers: HeaderMap,
    pub(super) validators: Validators,
}

// === impl FileIdentity ===

impl FileIdentity {
    #[allow(clippy::unnecessary_cast)] // the fields' types differ from architecture to architecture
    pub(super) fn new(stat: &Stat) -> Self {
        let timestamp = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0), // never negative for a regular file
            modified: timestamp(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: timestamp(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    /// Whether any later change is certain to be visible. File systems count time in ticks (milliseconds, on some of them
    /// two seconds): a file that changed just now may change once more within the tick and look the same.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let Ok(now) = now.duration_since(UNIX_EPOCH) else { return false };
        // A modification time in the future was set by hand; the change time is still correct.
        self.changed.is_before(now) && (self.modified.is_before(now) || self.modified.seconds > now.as_secs() as i64)
    }
}

impl Timestamp {
    fn is_before(self, now: Duration) -> bool {
        const TICK: Duration = Duration::from_secs(2);
        match u64::try_from(self.seconds) {
            Ok(seconds) => Duration::from_secs(seconds) + Duration::from_nanos(self.nanoseconds) + TICK <= now,
            Err(_) => true,
        }
    }
}

// === impl FileVersion ===

impl FileVersion {
    pub(super) fn new(identity: FileIdentity, path: &str, configured_type: Option<&str>, now: SystemTime) -> Self {
        let Timestamp { seconds, nanoseconds } = identity.modified;
        let etag = format!("\"{seconds:x}.{nanoseconds:x}-{:x}\"", identity.size);
        let content_type = mime::content_type(path, configured_type);
        let validators = Validators {
            // Hexadecimal digits are always a header value.
            etag: HeaderValue::try_from(etag).unwrap_or(HeaderValue::from_static("\"\"")),
            last_modified: LastModified::new(seconds, now),
        };
        let mut headers = HeaderMap::new();
        if let Some(content_type) = &content_type {
            headers.insert(CONTENT_TYPE, content_type.clone());
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from(identity.size));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        validators.insert_into(&mut headers);
        let configured_type = configured_type.map(Box::from);
        Self { identity, configured_type, content_type, headers, validators }
    }

    /// Whether a file with this identity and type is this version, and would get these headers.
    pub(super) fn is_current(&self, identity: &FileIdentity, configured_type: Option<&str>) -> bool {
        self.identity == *identity && self.configured_type.as_deref() == configured_type
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn identity(inode: u64, size: u64) -> FileIdentity {
        let time = Timestamp { seconds: 1000, nanoseconds: 5 };
        FileIdentity { device: 1, inode, size, modified: time, changed: time }
    }

    #[test]
    fn a_file_settles_after_two_seconds() {
        let table = [
            (1000, 1000, 1000, false),
            (1000, 1000, 1002, false), // five nanoseconds are missing
            (1000, 1000, 1003, true),
            (1000, 1002, 1003, false),
            (1, 1000, 1003, true), // unpacked with its old time
            (1, 1002, 1003, false),
            (9999, 1000, 1003, true),  // a time in the future, set by hand
            (9999, 9999, 1003, false), // a clock that was set back
            (-5, 1000, 1003, true),
        ];
        for (modified, changed, now, expected) in table {
            let timestamp = |seconds| Timestamp { seconds, nanoseconds: 5 };
            let identity =
                FileIdentity { modified: timestamp(modified), changed: timestamp(changed), ..identity(1, 1) };
            let now = UNIX_EPOCH + Duration::from_secs(now);
            assert_eq!(identity.is_settled(now), expected, "{modified} {changed} {now:?}");
        }
    }

    #[test]
    fn a_version_is_recognized_by_its_identity_and_its_type() {
        let now = UNIX_EPOCH + Duration::from_secs(5000);
        let version = FileVersion::new(identity(1, 10), "/a.html", None, now);
        assert!(version.is_current(&identity(1, 10), None));
        assert!(!version.is_current(&identity(2, 10), None));
        assert!(!version.is_current(&identity(1, 11), None));
        assert!(!version.is_current(&identity(1, 10), Some("text/x")));
        let later = Timestamp { seconds: 1000, nanoseconds: 6 };
        assert!(!version.is_current(&FileIdentity { modified: later, ..identity(1, 10) }, None));
        assert!(!version.is_current(&FileIdentity { changed: later, ..identity(1, 10) }, None));
    }

    #[test]
    fn the_entity_tag_follows_time_and_size() {
        let now = UNIX_EPOCH + Duration::from_secs(5000);
        let etag = |identity| FileVersion::new(identity, "/a", None, now).validators.etag;
        assert_eq!(etag(identity(1, 10)), "\"3e8.5-a\"");
        assert_ne!(etag(identity(1, 10)), etag(identity(1, 11)));
        assert_eq!(etag(identity(1, 10)), etag(identity(2, 10)), "the same on each server of a cluster");
    }
}
