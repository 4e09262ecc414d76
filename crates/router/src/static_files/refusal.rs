//! Warns the operator of refused symbolic links.
//!
//! A link that leaves the served folder is nearly always intended (`public/storage` of a Laravel application), so that a
//! 404 without a log line would cost an operator an afternoon. The warning names the link, its target and the setting
//! that allows it. It is logged once a minute for each link, so that a busy page does not fill the log.
//!
//! The search for the link happens after the refusal, on a file system that may have changed meanwhile: it decides
//! nothing, and it is no error if it finds no link. It may wait, and is then work of another thread.

use super::open::{LinkPolicy, SharedPath};
use crate::file_access::{Place, Waiting, start_on_file_thread};
use crate::report::OncePerMinute;
use howdah_protocol::canonical;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The links with a warning, of all threads.
static WARNED: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);
/// The paths in which a link was searched.
static SEARCHED: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);
/// The shares in which a link was searched while there were too many such paths.
static SEARCHED_SHARES: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

/// Logs which link of the path was refused, unless that was logged shortly before. `place` names the share.
pub(super) fn warn(shared: SharedPath<'_>, place: &Path, waiting: Waiting) {
    // A link may have thousands of names, which each search follows.
    let is_due = SEARCHED.is_due_if_there_are_few(shared.path) || SEARCHED_SHARES.is_due_if_there_are_few(shared.base);
    if !is_due {
        return;
    }
    if waiting.at_present() == Waiting::Allowed {
        return search(shared);
    }
    let (path, base, relative) = (shared.path.to_owned(), shared.base.to_owned(), shared.relative.to_owned());
    let SharedPath { links, mounts, .. } = shared;
    start_on_file_thread(&Place::of(place), move || {
        search(SharedPath { path: &path, base: &base, relative: &relative, links, mounts });
    });
}

fn search(shared: SharedPath<'_>) {
    let Some(link) = refused_link(shared).filter(|link| WARNED.is_due(link)) else { return };
    let leads_to = link.read_link().unwrap_or_default();
    // In fields: the names are those of strangers, and the message names a kind of line.
    let (link, leads_to, base) = (link.to_string_lossy(), leads_to.to_string_lossy(), shared.base.to_string_lossy());
    let (link, leads_to, base) = (&*link, &*leads_to, &*base);
    if shared.links == LinkPolicy::Never {
        tracing::warn!(
            link,
            "not served: the path has a symbolic link, and \"follow_symlinks\" is false; \
             true allows all links, without the setting links that stay in the share are followed"
        );
    } else {
        tracing::warn!(
            link,
            leads_to,
            share = base,
            "not served: a symbolic link leaves its share; \
             \"follow_symlinks\": true (serve: --follow-symlinks) allows it"
        );
    }
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
}
