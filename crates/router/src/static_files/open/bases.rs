//! Opens the bases of shares, the folders that the configuration names.
//!
//! The owner of a site may own the folder above its base, and put a link in the place of the base. The router may read the
//! files of several sites, and would send those of another one. Therefore a link in the path of a base is followed as
//! [`trusted_path`] has it: a link of root or of the router's user wherever it leads, and any other one to folders of its owner.
//!
//! The links are looked at once a second, as those below the base. In between, an opened folder is compared with the one to which
//! they led.
//!
//! An event loop cannot look at links, which may wait. It opens a base without links, or one whose links another thread has looked
//! at, and fails with [`BaseError::WouldWait`] elsewhere. Therefore the threads share what they know.
//!
//! A base that is not followed is [`BaseError::Refused`], with a line in the log once a minute.

use crate::{
    file_access::{PathError, Waiting, open_at_once},
    report::OncePerMinute,
};
use howdah_protocol::trusted_path;
use rustix::{
    fs::{self, CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Requests no read permission: it is not needed to pass through a folder.
pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How long the links of a base count as checked.
const FRESH: Duration = Duration::from_secs(1);

/// A `chroot` with variables has any number of bases.
const MAX_BASES: usize = 1024;

/// The bases that were refused, of all threads.
static REFUSED: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);
/// The bases of all threads.
pub(super) static BASES: LazyLock<Bases> = LazyLock::new(Bases::default);

#[derive(Default)]
pub(super) struct Bases {
    checked: Mutex<HashMap<PathBuf, Checked>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BaseError {
    /// A link leads to a folder of another user than the link's.
    Refused,
    /// Another thread must open the base.
    WouldWait,
    Failed(Errno),
}

/// Where the links of a base led.
#[derive(Clone, Copy)]
struct Checked {
    /// `None` if they are not followed.
    folder: Option<FolderIdentity>,
    at: Instant,
}

/// The owner belongs to it: the number of a removed folder is given to the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FolderIdentity {
    device: u64,
    inode: u64,
    owner: u32,
}

// === impl Bases ===

impl Bases {
    /// The folder at this path.
    pub(super) fn open(&self, base: &Path, waiting: Waiting) -> Result<OwnedFd, BaseError> {
        let fresh = self.checked().get(base).copied().filter(|checked| checked.at.elapsed() < FRESH);
        if waiting == Waiting::Never {
            return at_once(base, fresh);
        }
        if let Some(checked) = fresh {
            let expected = checked.folder.ok_or(BaseError::Refused)?;
            let folder = fs::open(base, FOLDER, Mode::empty())?;
            if FolderIdentity::of(&folder)? == expected {
                return Ok(folder);
            }
        }
        match trusted_path::open_shared_folder(base) {
            Ok(folder) => {
                self.remember(base, Some(FolderIdentity::of(&folder)?));
                Ok(folder)
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(error) => Err(BaseError::Failed(error)),
                None => {
                    self.remember(base, None);
                    warn(base, &error);
                    Err(BaseError::Refused)
                }
            },
        }
    }

    fn remember(&self, base: &Path, folder: Option<FolderIdentity>) {
        let mut checked = self.checked();
        if checked.len() >= MAX_BASES {
            checked.clear();
        }
        checked.insert(base.to_owned(), Checked { folder, at: Instant::now() });
    }

    /// The map is complete at any time.
    fn checked(&self) -> MutexGuard<'_, HashMap<PathBuf, Checked>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl BaseError ===

impl From<Errno> for BaseError {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

impl From<PathError> for BaseError {
    fn from(error: PathError) -> Self {
        match error {
            PathError::WouldWait => Self::WouldWait,
            PathError::Failed(error) => Self::Failed(error),
        }
    }
}

// === impl FolderIdentity ===

impl FolderIdentity {
    #[allow(clippy::unnecessary_cast)] // the fields' types differ from architecture to architecture
    fn of(folder: &OwnedFd) -> Result<Self, Errno> {
        let stat = fs::fstat(folder)?;
        Ok(Self { device: stat.st_dev as u64, inode: stat.st_ino as u64, owner: stat.st_uid })
    }
}

/// The folder at a path whose links were checked, or that has none.
fn at_once(base: &Path, fresh: Option<Checked>) -> Result<OwnedFd, BaseError> {
    let Some(checked) = fresh else {
        return match open_at_once(CWD, base, FOLDER, ResolveFlags::NO_SYMLINKS) {
            Err(PathError::Failed(Errno::LOOP)) => Err(BaseError::WouldWait),
            opened => Ok(opened?),
        };
    };
    let expected = checked.folder.ok_or(BaseError::Refused)?;
    let folder = open_at_once(CWD, base, FOLDER, ResolveFlags::empty())?;
    if FolderIdentity::of(&folder)? == expected { Ok(folder) } else { Err(BaseError::WouldWait) }
}

fn warn(base: &Path, reason: &io::Error) {
    if REFUSED.is_due(base) {
        let base = base.display();
        tracing::warn!(
            "not served: the files of {base}: {reason}; if this link is intended, write the path of its target into the \
             configuration, or set \"chroot\" to a folder above the link and its target"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{create_dir, remove_file, rename},
        os::unix::fs::{lchown, symlink},
    };

    #[test]
    fn a_base_that_another_user_replaces_is_refused_at_once() {
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| tree.path().join(name);
        for name in ["first", "second", "site", "site/public"] {
            create_dir(at(name)).unwrap();
        }
        let bases = Bases::default();
        let led_to =
            |name: &str| bases.open(&at("site/public"), Waiting::Allowed).map(|folder| same(&folder, &at(name)));
        assert_eq!(led_to("site/public"), Ok(true));
        rename(at("site/public"), at("site/former")).unwrap();
        assert_eq!(led_to("site/public"), Err(BaseError::Failed(Errno::NOENT)));
        // A deploy is visible at once.
        for name in ["first", "second"] {
            symlink(Path::new("..").join(name), at("site/new")).unwrap();
            rename(at("site/new"), at("site/public")).unwrap();
            assert_eq!(led_to(name), Ok(true));
        }
        if rustix::process::geteuid().is_root() {
            lchown(at("second"), Some(65534), None).unwrap();
            assert_eq!(led_to("second"), Ok(true));
            remove_file(at("site/public")).unwrap();
            symlink("../first", at("site/public")).unwrap();
            lchown(at("site/public"), Some(65534), None).unwrap();
            for _ in 0..2 {
                assert_eq!(led_to("first"), Err(BaseError::Refused));
            }
            lchown(at("first"), Some(65534), None).unwrap();
            bases.checked().values_mut().for_each(|checked| checked.at -= FRESH);
            assert_eq!(led_to("first"), Ok(true));
        }
    }

    #[test]
    fn an_event_loop_opens_a_base_whose_links_another_thread_has_looked_at() {
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| tree.path().join(name);
        for name in ["first", "second"] {
            create_dir(at(name)).unwrap();
        }
        let bases = Bases::default();
        let led_to = |name: &str, waiting| bases.open(&at("site"), waiting).map(|folder| same(&folder, &at(name)));
        for name in ["first", "second"] {
            symlink(name, at("new")).unwrap();
            rename(at("new"), at("site")).unwrap();
            assert_eq!(led_to(name, Waiting::Never), Err(BaseError::WouldWait));
            // Another thread looks at the links; with a slow machine, more than once. An overlayfs has no links in its cache.
            let until = Instant::now() + Duration::from_secs(2);
            while led_to(name, Waiting::Never) == Err(BaseError::WouldWait) && Instant::now() < until {
                assert_eq!(led_to(name, Waiting::Allowed), Ok(true));
            }
            assert_eq!(bases.checked().len(), 1);
        }
        bases.checked().values_mut().for_each(|checked| checked.at -= FRESH);
        assert_eq!(led_to("second", Waiting::Never), Err(BaseError::WouldWait));
    }

    #[test]
    fn the_number_of_remembered_bases_is_bounded() {
        let bases = Bases::default();
        for number in 0..MAX_BASES + 10 {
            bases.open(Path::new(&format!("/{}", "/".repeat(number))), Waiting::Allowed).unwrap();
        }
        assert!(bases.checked().len() <= MAX_BASES);
    }

    fn same(folder: &OwnedFd, path: &Path) -> bool {
        FolderIdentity::of(folder) == FolderIdentity::of(&fs::open(path, FOLDER, Mode::empty()).unwrap())
    }
}
