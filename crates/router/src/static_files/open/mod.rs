//! Opens the files that a share may send, and no others.
//!
//! The users who may change the served folders are often not the user who configured the server. Therefore the check
//! and the opening are one step, and a link that is swapped in between has no effect: `openat2` resolves below a
//! descriptor of the base, and where that is not enough (an absolute link may stay below the base), the resolved path is
//! opened once more with no links allowed. Without `openat2` (some kernels and containers) a walk opens component by
//! component. The base itself comes from the configuration and may contain links, which deploys that swap a link need:
//! `bases` decides about them.
//!
//! Opening never waits for the other end of a fifo. The caller checks that a descriptor is a regular file.
//!
//! A client can cause [`OpenError::Missing`], [`OpenError::Denied`] and [`OpenError::Refused`]; [`OpenError::Failed`] is
//! trouble on our side, such as no descriptors left.

mod bases;

use std::{cell::Cell, os::fd::OwnedFd, path::Path};

use bases::{BaseError, Bases, FOLDER};
use howdah_protocol::canonical;
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// A path below the base of a share, and which links and mounts may lie between the two.
#[derive(Clone, Copy)]
pub(super) struct SharedPath<'a> {
    /// Absolute.
    pub(super) path: &'a str,
    pub(super) base: &'a Path,
    /// The part of `path` after the base, without a leading slash; may be empty.
    pub(super) relative: &'a str,
    pub(super) links: LinkPolicy,
    /// Whether other file systems may be mounted between the two.
    pub(super) mounts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkPolicy {
    /// Follows all links.
    Follow,
    /// Follows a link that leads to a path below the base.
    StayBelow,
    /// Follows no link.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenKind {
    /// A file, to read it.
    File,
    /// A folder, to check that it is one, and that it may be read: a folder that may not is left to the fallback.
    Folder,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    Missing,
    /// The file system denies access.
    Denied,
    /// The path contains a link that the policy does not allow.
    Refused,
    /// A link in the path of the base leads to a folder of another user than the link's.
    BaseRefused,
    Failed(Errno),
}

/// Opens shared paths. Each thread has its own.
#[derive(Default)]
pub(super) struct Opener {
    /// Set when the kernel, or a seccomp filter in front of it, has rejected `openat2` as unknown.
    without_openat2: Cell<bool>,
    bases: Bases,
}

// === impl Opener ===

impl Opener {
    pub(super) fn open(&self, shared: SharedPath<'_>, kind: OpenKind) -> Result<OwnedFd, OpenError> {
        match shared.links {
            LinkPolicy::Follow if shared.mounts => {
                fs::open(shared.path, kind.flags(), Mode::empty()).map_err(OpenError::from)
            }
            LinkPolicy::Follow => self.open_on_mount(shared, kind),
            LinkPolicy::Never => {
                let base = self.bases.open(shared.base)?;
                self.open_without_links(base, Path::new(shared.relative), shared.mounts, kind)
            }
            LinkPolicy::StayBelow => self.open_below(shared, kind),
        }
    }

    fn open_below(&self, shared: SharedPath<'_>, kind: OpenKind) -> Result<OwnedFd, OpenError> {
        let base = self.bases.open(shared.base)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | crossing(shared.mounts);
        match self.openat2(&base, Path::new(shared.relative), kind, resolve) {
            Some(Err(Errno::XDEV)) | None => {}
            Some(Err(Errno::LOOP)) => return Err(OpenError::Refused),
            Some(opened) => return opened.map_err(OpenError::from),
        }
        let canonical_base = canonical(shared.base)?;
        let canonical_path = canonical(&shared.base.join(shared.relative))?;
        let relative = canonical_path.strip_prefix(&canonical_base).map_err(|_| OpenError::Refused)?;
        // Below the base that was opened: its path may lead elsewhere by now.
        self.open_without_links(base, relative, shared.mounts, kind)
    }

    /// Follows all links, but stays on the base's file system.
    fn open_on_mount(&self, shared: SharedPath<'_>, kind: OpenKind) -> Result<OwnedFd, OpenError> {
        let base = fs::open(shared.base, FOLDER, Mode::empty())?;
        let relative = Path::new(shared.relative);
        match self.openat2(&base, relative, kind, crossing(false)) {
            Some(Err(Errno::XDEV)) => Err(OpenError::Refused),
            Some(opened) => opened.map_err(OpenError::from),
            None => {
                let opened = fs::openat(&base, or_dot(relative), kind.flags(), Mode::empty())?;
                stays_on_device(&base, opened)
            }
        }
    }

    fn open_without_links(
        &self,
        base: OwnedFd,
        relative: &Path,
        mounts: bool,
        kind: OpenKind,
    ) -> Result<OwnedFd, OpenError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | crossing(mounts);
        let opened = self.openat2(&base, relative, kind, resolve);
        let opened = match opened {
            Some(opened) => opened,
            None => {
                let opened = walk(base.try_clone().map_err(|_| OpenError::Failed(Errno::MFILE))?, relative, kind);
                match opened {
                    Ok(opened) if !mounts => return stays_on_device(&base, opened),
                    opened => opened,
                }
            }
        };
        opened.map_err(|error| match error {
            Errno::LOOP | Errno::XDEV => OpenError::Refused,
            other => OpenError::from(other),
        })
    }

    /// `None` if `openat2` is not available.
    fn openat2(
        &self,
        base: &OwnedFd,
        relative: &Path,
        kind: OpenKind,
        resolve: ResolveFlags,
    ) -> Option<Result<OwnedFd, Errno>> {
        /// The kernel returns EAGAIN if a rename happens elsewhere while it resolves a `..` in a link.
        const TRIES: usize = 16;
        if self.without_openat2.get() {
            return None;
        }
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            opened = fs::openat2(base, or_dot(relative), kind.flags(), Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        // Older container runtimes return EPERM for system calls that they do not know.
        if matches!(opened, Err(Errno::NOSYS | Errno::PERM)) {
            self.without_openat2.set(true);
            return None;
        }
        Some(opened)
    }
}

// === impl OpenKind ===

impl OpenKind {
    fn flags(self) -> OFlags {
        match self {
            Self::File => OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
            Self::Folder => OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        }
    }
}

// === impl OpenError ===

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP | Errno::NXIO | Errno::NODEV => {
                Self::Missing
            }
            Errno::ACCESS | Errno::PERM => Self::Denied,
            other => Self::Failed(other),
        }
    }
}

impl From<BaseError> for OpenError {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Refused => Self::BaseRefused,
            BaseError::Failed(error) => error.into(),
        }
    }
}

/// Does the work of `openat2` with `NO_SYMLINKS`, with a system call for each component.
fn walk(base: OwnedFd, relative: &Path, kind: OpenKind) -> Result<OwnedFd, Errno> {
    let mut folder = base;
    let mut names = relative.iter().peekable();
    while let Some(name) = names.next() {
        if name == ".." || name == "/" {
            return Err(Errno::XDEV);
        }
        let last = names.peek().is_none();
        let flags = if last { kind.flags() } else { FOLDER };
        let opened = fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty());
        if matches!(opened, Err(Errno::NOTDIR)) && is_link(&folder, Path::new(name)) {
            return Err(Errno::LOOP);
        }
        if last {
            return opened;
        }
        folder = opened?;
    }
    fs::openat(&folder, ".", kind.flags(), Mode::empty())
}

fn crossing(mounts: bool) -> ResolveFlags {
    if mounts { ResolveFlags::empty() } else { ResolveFlags::NO_XDEV }
}

/// Replaces the check of `openat2` as far as possible: it does not notice a mount of the same file system.
fn stays_on_device(base: &OwnedFd, opened: OwnedFd) -> Result<OwnedFd, OpenError> {
    let same = fs::fstat(base)?.st_dev == fs::fstat(&opened)?.st_dev;
    if same { Ok(opened) } else { Err(OpenError::Refused) }
}

fn is_link(folder: &OwnedFd, name: &Path) -> bool {
    fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn or_dot(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs as std_fs, os::unix::fs::symlink};

    struct Tree(tempfile::TempDir);

    impl Tree {
        /// `base/…` is served, `outside/…` is not.
        fn new() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for folder in ["base/sub", "outside", "base/.hidden"] {
                std_fs::create_dir_all(tree.path(folder)).unwrap();
            }
            for file in ["base/file", "base/sub/file", "outside/file"] {
                std_fs::write(tree.path(file), file).unwrap();
            }
            for (link, leads_to) in [
                ("base/inner", "sub/file"),
                ("base/up-and-back", "../base/file"),
                ("base/sub/up", "../file"),
                ("base/leaves", "../outside/file"),
                ("base/folder-leaves", "../outside"),
                ("base/folder-inner", "sub"),
                ("base/dangling", "nothing"),
                ("base/loop", "loop"),
                ("swapped", "base"),
            ] {
                symlink(leads_to, tree.path(link)).unwrap();
            }
            symlink(tree.path("base/sub/file"), tree.path("base/absolute-inner")).unwrap();
            symlink(tree.path("outside/file"), tree.path("base/absolute-leaves")).unwrap();
            symlink("/proc/self/exe", tree.path("base/proc")).unwrap();
            tree
        }

        fn path(&self, relative: &str) -> std::path::PathBuf {
            self.0.path().join(relative)
        }

        fn open(
            &self,
            opener: &Opener,
            relative: &str,
            links: LinkPolicy,
            kind: OpenKind,
        ) -> Result<OwnedFd, OpenError> {
            let base = self.path("swapped");
            let path = base.join(relative);
            opener.open(SharedPath { path: path.to_str().unwrap(), base: &base, relative, links, mounts: true }, kind)
        }
    }

    fn openers() -> [Opener; 2] {
        [Opener::default(), Opener { without_openat2: Cell::new(true), bases: Bases::default() }]
    }

    #[test]
    fn links_are_followed_as_far_as_the_policy_allows() {
        use OpenError::{Missing, Refused};
        let tree = Tree::new();
        //                         Follow         StayBelow      Never
        let table = [
            ("file", [Ok(()), Ok(()), Ok(())]),
            ("sub/file", [Ok(()), Ok(()), Ok(())]),
            ("sub//file", [Ok(()), Ok(()), Ok(())]),
            ("inner", [Ok(()), Ok(()), Err(Refused)]),
            ("sub/up", [Ok(()), Ok(()), Err(Refused)]),
            ("up-and-back", [Ok(()), Ok(()), Err(Refused)]),
            ("absolute-inner", [Ok(()), Ok(()), Err(Refused)]),
            ("folder-inner/file", [Ok(()), Ok(()), Err(Refused)]),
            ("leaves", [Ok(()), Err(Refused), Err(Refused)]),
            ("absolute-leaves", [Ok(()), Err(Refused), Err(Refused)]),
            ("folder-leaves/file", [Ok(()), Err(Refused), Err(Refused)]),
            ("proc", [Ok(()), Err(Refused), Err(Refused)]),
            ("missing", [Err(Missing), Err(Missing), Err(Missing)]),
            ("file/below", [Err(Missing), Err(Missing), Err(Missing)]),
            ("dangling", [Err(Missing), Err(Missing), Err(Refused)]),
        ];
        for (relative, expected) in table {
            for (links, expected) in
                [LinkPolicy::Follow, LinkPolicy::StayBelow, LinkPolicy::Never].into_iter().zip(expected)
            {
                for opener in openers() {
                    let opened = tree.open(&opener, relative, links, OpenKind::File).map(drop);
                    assert_eq!(opened, expected, "{relative} {links:?} without openat2: {:?}", opener.without_openat2);
                }
            }
        }
    }

    #[test]
    fn a_link_to_itself_is_not_a_file() {
        let tree = Tree::new();
        for links in [LinkPolicy::Follow, LinkPolicy::StayBelow, LinkPolicy::Never] {
            for opener in openers() {
                let error = tree.open(&opener, "loop", links, OpenKind::File).unwrap_err();
                assert!(matches!(error, OpenError::Missing | OpenError::Refused), "{links:?}: {error:?}");
            }
        }
    }

    #[test]
    fn folders_are_checked_like_files() {
        let tree = Tree::new();
        for opener in openers() {
            for links in [LinkPolicy::Follow, LinkPolicy::StayBelow, LinkPolicy::Never] {
                assert!(tree.open(&opener, "", links, OpenKind::Folder).is_ok(), "{links:?}");
                assert!(tree.open(&opener, "sub", links, OpenKind::Folder).is_ok(), "{links:?}");
                assert_eq!(tree.open(&opener, "file", links, OpenKind::Folder).map(drop), Err(OpenError::Missing));
            }
            assert!(tree.open(&opener, "folder-inner", LinkPolicy::StayBelow, OpenKind::Folder).is_ok());
            for (relative, links) in [("folder-leaves", LinkPolicy::StayBelow), ("folder-inner", LinkPolicy::Never)] {
                let opened = tree.open(&opener, relative, links, OpenKind::Folder).map(drop);
                assert_eq!(opened, Err(OpenError::Refused), "{relative}");
            }
        }
    }

    #[test]
    fn a_path_that_climbs_above_the_base_is_refused() {
        let tree = Tree::new();
        for opener in openers() {
            for links in [LinkPolicy::StayBelow, LinkPolicy::Never] {
                let opened = tree.open(&opener, "../outside/file", links, OpenKind::File).map(drop);
                assert_eq!(opened, Err(OpenError::Refused), "{links:?}");
            }
        }
    }

    #[test]
    fn opening_a_fifo_does_not_wait() {
        let tree = Tree::new();
        fs::mknodat(fs::CWD, tree.path("base/fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        for opener in openers() {
            for links in [LinkPolicy::Follow, LinkPolicy::StayBelow, LinkPolicy::Never] {
                assert!(tree.open(&opener, "fifo", links, OpenKind::File).is_ok(), "{links:?}");
            }
        }
    }

    #[test]
    fn errors_are_classified() {
        let table = [
            (Errno::NOENT, OpenError::Missing),
            (Errno::NAMETOOLONG, OpenError::Missing),
            (Errno::NXIO, OpenError::Missing),
            (Errno::ACCESS, OpenError::Denied),
            (Errno::MFILE, OpenError::Failed(Errno::MFILE)),
            (Errno::IO, OpenError::Failed(Errno::IO)),
        ];
        for (error, expected) in table {
            assert_eq!(OpenError::from(error), expected);
        }
    }
}
