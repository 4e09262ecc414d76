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
//! On an event loop, the mount is a part of that one step, too: a link that is swapped after the look-up cannot lead into a
//! file system that hangs. All that may wait is [`OpenError::WouldWait`] there.
//!
//! A client can cause [`OpenError::Missing`], [`OpenError::Denied`] and [`OpenError::Refused`]; [`OpenError::Failed`] is
//! trouble on our side, such as no descriptors left.

mod bases;

use std::{os::fd::OwnedFd, path::Path, sync::LazyLock};

use crate::file_access::{PathError, Waiting, canonical_at_once, open_at_once};
use bases::{BASES, BaseError, FOLDER};
use howdah_protocol::canonical;
use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags},
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
    /// Another thread must open it.
    WouldWait,
    Failed(Errno),
}

/// Opens shared paths. Each thread has its own.
pub(super) struct Opener {
    waiting: Waiting,
    without_openat2: bool,
}

/// Whether the kernel, or a seccomp filter in front of it, rejects `openat2` as unknown: older container runtimes return
/// EPERM for such system calls. The error of a served file decides nothing: a FUSE file system returns any error it likes.
static WITHOUT_OPENAT2: LazyLock<bool> = LazyLock::new(|| {
    let root = fs::openat2(CWD, "/", FOLDER, Mode::empty(), ResolveFlags::empty());
    matches!(root, Err(Errno::NOSYS | Errno::PERM))
});

// === impl Opener ===

impl Opener {
    pub(super) fn new(waiting: Waiting) -> Self {
        Self { waiting, without_openat2: *WITHOUT_OPENAT2 }
    }

    pub(super) fn open(&self, shared: SharedPath<'_>, kind: OpenKind) -> Result<OwnedFd, OpenError> {
        self.open_as(shared, kind, self.waiting.at_present())
    }

    fn open_as(&self, shared: SharedPath<'_>, kind: OpenKind, waiting: Waiting) -> Result<OwnedFd, OpenError> {
        match shared.links {
            LinkPolicy::Follow if shared.mounts => open_path(Path::new(shared.path), kind.flags(), waiting),
            LinkPolicy::Follow => self.open_on_mount(shared, kind, waiting),
            LinkPolicy::Never => {
                let base = BASES.open(shared.base, waiting)?;
                self.open_without_links(base, Path::new(shared.relative), shared.mounts, kind, waiting)
            }
            LinkPolicy::StayBelow => self.open_below(shared, kind, waiting),
        }
    }

    fn open_below(&self, shared: SharedPath<'_>, kind: OpenKind, waiting: Waiting) -> Result<OwnedFd, OpenError> {
        let base = BASES.open(shared.base, waiting)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | crossing(shared.mounts);
        match self.openat2(&base, Path::new(shared.relative), kind, resolve, waiting) {
            Some(Err(PathError::Failed(Errno::XDEV))) | None => {}
            Some(Err(PathError::Failed(Errno::LOOP))) => return Err(OpenError::Refused),
            Some(opened) => return opened.map_err(OpenError::from),
        }
        let leads_to = |path: &Path| match waiting {
            Waiting::Never => canonical_at_once(path).map_err(OpenError::from),
            Waiting::Allowed => canonical(path).map_err(OpenError::from),
        };
        let canonical_base = leads_to(shared.base)?;
        let canonical_path = leads_to(&shared.base.join(shared.relative))?;
        let relative = canonical_path.strip_prefix(&canonical_base).map_err(|_| OpenError::Refused)?;
        // Below the base that was opened: its path may lead elsewhere by now.
        self.open_without_links(base, relative, shared.mounts, kind, waiting)
    }

    /// Follows all links, but stays on the base's file system.
    fn open_on_mount(&self, shared: SharedPath<'_>, kind: OpenKind, waiting: Waiting) -> Result<OwnedFd, OpenError> {
        let base = open_path(shared.base, FOLDER, waiting)?;
        let relative = Path::new(shared.relative);
        match self.openat2(&base, relative, kind, crossing(false), waiting) {
            Some(Err(PathError::Failed(Errno::XDEV))) => Err(OpenError::Refused),
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
        waiting: Waiting,
    ) -> Result<OwnedFd, OpenError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | crossing(mounts);
        let opened = self.openat2(&base, relative, kind, resolve, waiting);
        let opened = match opened {
            Some(opened) => opened,
            None => {
                let opened = walk(base.try_clone().map_err(|_| OpenError::Failed(Errno::MFILE))?, relative, kind);
                match opened {
                    Ok(opened) if !mounts => return stays_on_device(&base, opened),
                    opened => opened.map_err(PathError::from),
                }
            }
        };
        opened.map_err(|error| match error {
            PathError::Failed(Errno::LOOP | Errno::XDEV) => OpenError::Refused,
            other => OpenError::from(other),
        })
    }

    /// `None` if `openat2` is not available, and other system calls may wait.
    fn openat2(
        &self,
        base: &OwnedFd,
        relative: &Path,
        kind: OpenKind,
        resolve: ResolveFlags,
        waiting: Waiting,
    ) -> Option<Result<OwnedFd, PathError>> {
        /// The kernel returns EAGAIN if a rename happens elsewhere while it resolves a `..` in a link.
        const TRIES: usize = 16;
        if waiting == Waiting::Never {
            return Some(open_at_once(base, or_dot(relative), kind.flags(), resolve));
        }
        if self.without_openat2 {
            return None;
        }
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            opened = fs::openat2(base, or_dot(relative), kind.flags(), Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        Some(opened.map_err(PathError::from))
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

impl From<PathError> for OpenError {
    fn from(error: PathError) -> Self {
        match error {
            PathError::WouldWait => Self::WouldWait,
            PathError::Failed(error) => error.into(),
        }
    }
}

impl From<BaseError> for OpenError {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Refused => Self::BaseRefused,
            BaseError::WouldWait => Self::WouldWait,
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

/// Opens a path, whatever links it has.
fn open_path(path: &Path, flags: OFlags, waiting: Waiting) -> Result<OwnedFd, OpenError> {
    match waiting {
        Waiting::Never => Ok(open_at_once(CWD, path, flags, ResolveFlags::empty())?),
        Waiting::Allowed => Ok(fs::open(path, flags, Mode::empty())?),
    }
}

fn or_dot(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs as std_fs, io::Read, os::unix::fs::symlink};

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

        /// Opens a file below a base without links, as if some mount could wait.
        fn open_as(
            &self,
            opener: &Opener,
            relative: &str,
            (links, mounts): (LinkPolicy, bool),
            waiting: Waiting,
        ) -> Result<(), OpenError> {
            let base = std_fs::canonicalize(self.path("base")).unwrap();
            let path = base.join(relative);
            let shared = SharedPath { path: path.to_str().unwrap(), base: &base, relative, links, mounts };
            let mut content = String::new();
            let file = opener.open_as(shared, OpenKind::File, waiting)?;
            std_fs::File::from(file).read_to_string(&mut content).unwrap();
            assert!(content.ends_with("file"), "{relative}: {content}");
            Ok(())
        }
    }

    fn openers() -> [Opener; 2] {
        let waiting = Waiting::Allowed;
        [Opener::new(waiting), Opener { without_openat2: true, waiting }]
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

    const POLICIES: [(LinkPolicy, bool); 6] = [
        (LinkPolicy::Follow, true),
        (LinkPolicy::StayBelow, true),
        (LinkPolicy::Never, true),
        (LinkPolicy::Follow, false),
        (LinkPolicy::StayBelow, false),
        (LinkPolicy::Never, false),
    ];

    #[test]
    fn an_event_loop_opens_what_the_kernel_has_in_its_cache() {
        let (tree, opener) = (Tree::new(), Opener::new(Waiting::Never));
        for relative in ["file", "sub/file", "inner", "sub/up", "absolute-inner", "leaves", "folder-leaves/file"] {
            for policy in POLICIES {
                let allowed = tree.open_as(&opener, relative, policy, Waiting::Allowed);
                let at_once = tree.open_as(&opener, relative, policy, Waiting::Never);
                // Some file systems, such as overlayfs, do not have links in the cache.
                let is_link = !["file", "sub/file"].contains(&relative);
                let is_same = at_once == allowed || (is_link && at_once == Err(OpenError::WouldWait));
                assert!(is_same, "{relative} {policy:?}: {at_once:?}, not {allowed:?}");
            }
        }
    }

    #[test]
    fn an_event_loop_asks_no_file_system_for_a_file() {
        let tree = Tree::new();
        for opener in openers() {
            for (number, policy) in POLICIES.into_iter().enumerate() {
                let never_seen = format!("never-seen-{number}-{}", opener.without_openat2);
                assert_eq!(tree.open_as(&opener, &never_seen, policy, Waiting::Never), Err(OpenError::WouldWait));
                assert_eq!(tree.open_as(&opener, &never_seen, policy, Waiting::Allowed), Err(OpenError::Missing));
            }
            // The kernel computes this link.
            let policy = (LinkPolicy::Follow, true);
            assert_eq!(tree.open_as(&opener, "proc", policy, Waiting::Never), Err(OpenError::WouldWait));
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
