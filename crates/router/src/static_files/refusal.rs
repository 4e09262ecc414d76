//! Telling the operator which link was refused, and what to do about it.
//!
//! A link that leaves the served folder is nearly always meant (`public/storage` of a Laravel application), so that a
//! silent 404 would cost somebody an afternoon. The warning names the link, where it leads and the setting that allows
//! it. It is given once a minute for each link, so that a busy page does not fill the log.
//!
//! Looking for the link happens after it was refused, on a file system that may have changed meanwhile: it decides
//! nothing, and finding none is no error.

use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::open::{Links, Place};

#[derive(Default)]
pub(super) struct Refusals {
    /// When the last warning about each link was given.
    told: RefCell<HashMap<PathBuf, Instant>>,
}

const SILENCE: Duration = Duration::from_secs(60);
/// More links than this at a time are not told: the first ones make the point.
const MAX_TOLD: usize = 64;

impl Refusals {
    pub(super) fn tell(&self, place: Place<'_>) {
        let Some(link) = refused_link(place) else { return };
        if !self.is_news(&link, Instant::now()) {
            return;
        }
        let leads_to = link.read_link().unwrap_or_default();
        let (link, leads_to, base) = (link.display(), leads_to.display(), place.base.display());
        if place.links == Links::Never {
            tracing::warn!(
                "not served: {link} is a symbolic link, and \"follow_symlinks\" is false; \
                 true allows it, without the setting links that stay below {base} are followed"
            );
        } else {
            tracing::warn!(
                "not served: the symbolic link {link} leaves {base}, it leads to {leads_to}; \
                 \"follow_symlinks\": true (serve: --follow-symlinks) allows it"
            );
        }
    }

    fn is_news(&self, link: &Path, now: Instant) -> bool {
        let mut told = self.told.borrow_mut();
        told.retain(|_, last| now.duration_since(*last) < SILENCE);
        if told.len() >= MAX_TOLD || told.contains_key(link) {
            return false;
        }
        told.insert(link.to_owned(), now);
        true
    }
}

/// The first link on the way that the policy does not allow.
fn refused_link(place: Place<'_>) -> Option<PathBuf> {
    let base = place.base.canonicalize().ok()?;
    let mut path = place.base.to_owned();
    for name in Path::new(place.relative) {
        path.push(name);
        let refused = path.is_symlink()
            && (place.links == Links::Never || !path.canonicalize().is_ok_and(|target| target.starts_with(&base)));
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
            let place = Place { path: path.to_str().unwrap(), base: &base, relative, links, mounts: true };
            refused_link(place).map(|link| link.strip_prefix(&base).unwrap().to_owned())
        };
        let table = [
            ("inner/leaves/more/file", Links::StayBelow, Some("inner/leaves")),
            ("sub/leaves/more/file", Links::StayBelow, Some("sub/leaves")),
            ("inner/leaves/more/file", Links::Never, Some("inner")),
            ("inner", Links::StayBelow, None),
            ("sub", Links::Never, None),
        ];
        for (relative, links, expected) in table {
            assert_eq!(found(relative, links).as_deref(), expected.map(Path::new), "{relative} {links:?}");
        }
    }

    #[test]
    fn a_link_is_told_once_a_minute() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(refusals.is_news(Path::new("/a"), at(0)));
        assert!(!refusals.is_news(Path::new("/a"), at(59)));
        assert!(refusals.is_news(Path::new("/b"), at(59)));
        assert!(refusals.is_news(Path::new("/a"), at(60)));
        assert!(!refusals.is_news(Path::new("/b"), at(60)));
    }

    #[test]
    fn a_flood_of_links_is_cut_off() {
        let refusals = Refusals::default();
        let now = Instant::now();
        let told = (0..1000).filter(|link| refusals.is_news(Path::new(&link.to_string()), now)).count();
        assert_eq!(told, MAX_TOLD);
    }
}
