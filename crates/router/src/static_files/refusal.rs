//! Warns the operator of refused symbolic links.
//!
//! A link that leaves the served folder is nearly always intended (`public/storage` of a Laravel application), so that a
//! 404 without a log line would cost an operator an afternoon. The warning names the link, its target and the setting
//! that allows it. It is logged once a minute for each link, so that a busy page does not fill the log.
//!
//! The search for the link happens after the refusal, on a file system that may have changed meanwhile: it decides
//! nothing, and it is no error if it finds no link.

use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::open::{LinkPolicy, SharedPath};
use howdah_protocol::canonical;

#[derive(Default)]
pub(super) struct Refusals {
    /// The time of the last warning about each link.
    warned: RefCell<HashMap<PathBuf, Instant>>,
    /// The time of the last search for a link in each path.
    searched: RefCell<HashMap<PathBuf, Instant>>,
}

/// The time between two warnings about one link.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// The limit for links with a warning in one interval: the first ones are enough to find the cause.
const MAX_WARNED: usize = 64;

impl Refusals {
    /// Logs which link of the path was refused, unless that was logged shortly before.
    pub(super) fn warn(&self, shared: SharedPath<'_>) {
        let now = Instant::now();
        // A link may have thousands of names, which each search follows.
        if !is_due(&self.searched, Path::new(shared.path), now) {
            return;
        }
        let Some(link) = refused_link(shared).filter(|link| is_due(&self.warned, link, now)) else { return };
        let leads_to = link.read_link().unwrap_or_default();
        let (link, leads_to, base) = (link.display(), leads_to.display(), shared.base.display());
        if shared.links == LinkPolicy::Never {
            tracing::warn!(
                "not served: {link} is a symbolic link, and \"follow_symlinks\" is false; \
                 true allows all links, without the setting links that stay below {base} are followed"
            );
        } else {
            tracing::warn!(
                "not served: the symbolic link {link} leaves {base}, it leads to {leads_to}; \
                 \"follow_symlinks\": true (serve: --follow-symlinks) allows it"
            );
        }
    }
}

/// Whether the last time of this path is long ago, and there are not too many.
fn is_due(times: &RefCell<HashMap<PathBuf, Instant>>, path: &Path, now: Instant) -> bool {
    let mut times = times.borrow_mut();
    times.retain(|_, last| now.duration_since(*last) < WARNING_INTERVAL);
    if times.len() >= MAX_WARNED || times.contains_key(path) {
        return false;
    }
    times.insert(path.to_owned(), now);
    true
}

/// The first link in the path that the policy does not allow.
fn refused_link(shared: SharedPath<'_>) -> Option<PathBuf> {
    let base = canonical(shared.base).ok()?;
    let mut path = shared.base.to_owned();
    for name in Path::new(shared.relative) {
        path.push(name);
        let refused = path.is_symlink()
            && (shared.links == LinkPolicy::Never || !canonical(&path).is_ok_and(|target| target.starts_with(&base)));
        if refused {
            return Some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn the_link_that_leaves_is_found() {
        let tree = tempfile::tempdir().unwrap();
        let base = tree.path().join("base");
        fs::create_dir_all(base.join("sub")).unwrap();
        fs::create_dir_all(tree.path().join("outside/more")).unwrap();
        fs::write(tree.path().join("outside/more/file"), "").unwrap();
        symlink("sub", base.join("inner")).unwrap();
        symlink("../../outside", base.join("sub/leaves")).unwrap();
        let found = |relative: &str, links| {
            let path = base.join(relative);
            let shared = SharedPath { path: path.to_str().unwrap(), base: &base, relative, links, mounts: true };
            refused_link(shared).map(|link| link.strip_prefix(&base).unwrap().to_owned())
        };
        let table = [
            ("inner/leaves/more/file", LinkPolicy::StayBelow, Some("inner/leaves")),
            ("sub/leaves/more/file", LinkPolicy::StayBelow, Some("sub/leaves")),
            ("inner/leaves/more/file", LinkPolicy::Never, Some("inner")),
            ("inner", LinkPolicy::StayBelow, None),
            ("sub", LinkPolicy::Never, None),
        ];
        for (relative, links, expected) in table {
            assert_eq!(found(relative, links).as_deref(), expected.map(Path::new), "{relative} {links:?}");
        }
    }

    #[test]
    fn a_link_is_logged_once_a_minute() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(is_due(&refusals.warned, Path::new("/a"), at(0)));
        assert!(!is_due(&refusals.warned, Path::new("/a"), at(59)));
        assert!(is_due(&refusals.warned, Path::new("/b"), at(59)));
        assert!(is_due(&refusals.warned, Path::new("/a"), at(60)));
        assert!(!is_due(&refusals.warned, Path::new("/b"), at(60)));
    }

    #[test]
    fn the_number_of_warnings_is_limited() {
        let refusals = Refusals::default();
        let now = Instant::now();
        let warned = (0..1000).filter(|link| is_due(&refusals.warned, Path::new(&link.to_string()), now)).count();
        assert_eq!(warned, MAX_WARNED);
    }
}
