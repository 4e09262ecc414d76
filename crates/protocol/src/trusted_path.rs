//! Opens a file at a configured path, in a folder in which another user may be able to replace it.
//!
//! A symbolic link at the end of the path is followed if root or we own it: one that an application's user owns may
//! lead to any file that we may write. The link that is checked is the one that is followed, because both use one
//! descriptor of it: a user who swaps the file while it is opened gains nothing.
//!
//! A link among the folders above the file is followed, too, if it leads to a folder of the link's owner, as the `current` of a
//! deploy does: a user who owns a folder of the path must not lead root to a folder of another user. A `..` behind it is held to the
//! same rule.
//!
//! A file that is only read may be behind any link whose owner owns the file, too: its content gives that user nothing new.
//!
//! A hard link is refused in a folder that another user can write to, unless the file is only read: it may be a name of any file. The
//! kernel prevents such links only with `fs.protected_hardlinks`.
//!
//! The kernel follows a link of procfs (`/dev/stderr` leads to `/proc/self/fd/2`), because its text need not be a path:
//! that of a pipe is `pipe:[123]`. Behind a link of another user, links of procfs are refused: `/proc/PID/root` of a process of this
//! user leads to its own mounts, where any file may have any name.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, StatxFlags, fstat, fstatfs, openat, readlinkat, statx,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The most links in a row, as the kernel has it.
const MAX_LINKS: u32 = 40;
/// The most names on the way, in all links together: each costs system calls, and the text of a link may have two thousand.
const MAX_NAMES: u32 = 1000;
/// The mode of a folder that its group or all users can write to.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a file with these flags. A file that is created has this mode.
///
/// # Errors
/// The errors of open(2), and one for a link of another user.
pub fn open(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let (folder, file) = follow(path, flags, mode, |owner| Err(not_followed(owner)))?;
    with_one_name(&folder, file)
}

/// Opens a regular file to read it. It does not wait for the writer of a named pipe.
///
/// # Errors
/// The errors of open(2), one for another kind of file, and one for a link to a file of another user than the link's.
pub fn read(path: &Path) -> io::Result<File> {
    let mut owners = Vec::new();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let (_, file) = follow(path, flags, Mode::empty(), |owner| {
        owners.push(owner);
        Ok(())
    })?;
    let stat = fstat(&file)?;
    match owners.into_iter().find(|owner| *owner != stat.st_uid) {
        Some(owner) => Err(not_followed(owner)),
        None if is_regular(&stat) => Ok(File::from(file)),
        None => Err(io::Error::other("it is not a regular file")),
    }
}

/// Opens a file behind links. `untrusted` decides about a link at the end of the path that this user owns. Returns the folder
/// of the file, too.
fn follow(
    path: &Path,
    flags: OFlags,
    mode: Mode,
    mut untrusted: impl FnMut(u32) -> io::Result<()>,
) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut links = Links::new();
    let mut folder = links.folder_of(CWD, path)?;
    let mut name = name_of(path)?;
    loop {
        match openat(&folder, &name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode) {
            Err(Errno::LOOP) => {}
            opened => return opened.map(|file| (folder, file)).map_err(io::Error::from),
        }
        let link = openat(&folder, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&link)?;
        links.count()?;
        if !is_link(&stat) {
            // It is another file than a moment ago.
            continue;
        }
        let owner = stat.st_uid;
        if !is_trusted(owner) {
            untrusted(owner)?;
        }
        if links.is_of_procfs(&folder)? {
            let file = openat(&folder, &name, flags | OFlags::CLOEXEC, mode)?;
            return Ok((folder, file));
        }
        links.begin_link_of(owner);
        let target = PathBuf::from(OsString::from_vec(readlinkat(&link, "", Vec::new())?.into_bytes()));
        folder = links.folder_of(folder.as_fd(), &target)?;
        name = name_of(&target)?;
    }
}

/// The folder of a file, whose links are followed as above, and the file's name in it. Work there by this descriptor stays
/// in this folder, whatever a user puts in the place of its path meanwhile.
///
/// # Errors
/// The errors of open(2), and one for a link of another user.
pub fn folder(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let folder = Links::new().folder_of(CWD, path)?;
    Ok((folder, name_of(path)?))
}

/// The folder at this path, whose links are followed as above: a descriptor with `O_PATH`.
///
/// # Errors
/// The errors of open(2), and one for a link of another user.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Links::new().folder(CWD, path)
}

/// The folder of a share at this path, whose links are followed as above. A link leads also to what lies directly in a folder of
/// its owner, such as a release that another user unpacked: this owner can have it sent without the link, too.
///
/// # Errors
/// The errors of open(2), and one for a link of another user.
pub fn open_shared_folder(path: &Path) -> io::Result<OwnedFd> {
    Links { lead_into_folders: true, ..Links::new() }.folder(CWD, path)
}

/// The same for a path in a root directory, as a process has it whose root directory this is.
///
/// # Errors
/// The errors of [`open_shared_folder`], and one for a link in `/proc`.
pub fn open_shared_folder_in(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = open_shared_folder(root)?;
    let base = root.try_clone()?;
    Links { lead_into_folders: true, root: Some(root), ..Links::new() }.folder(base, path)
}

/// The owner and the group of the folder at this path, whose links are followed as above.
///
/// # Errors
/// The errors of [`open_folder`].
pub fn owner_of_folder(path: &Path) -> io::Result<(u32, u32)> {
    let stat = fstat(open_folder(path)?)?;
    Ok((stat.st_uid, stat.st_gid))
}

/// The links and names that may still be followed.
struct Links {
    left: u32,
    names_left: u32,
    /// Whether all links until now are of root or ours.
    are_trusted: bool,
    /// The owner of the last link of another user, by which the path has come to where it is.
    led_by: Option<u32>,
    /// Whether a folder directly in a folder of the link's owner is as good as a folder of the owner.
    lead_into_folders: bool,
    /// The root directory, if it is not ours.
    root: Option<OwnedFd>,
}

// === impl Links ===

impl Links {
    fn new() -> Links {
        Links {
            left: MAX_LINKS,
            names_left: MAX_NAMES,
            are_trusted: true,
            led_by: None,
            lead_into_folders: false,
            root: None,
        }
    }

    /// The folder of a file. A path that is not absolute begins at `base`.
    fn folder_of(&mut self, base: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.folder(base, folder)
    }

    fn folder(&mut self, base: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
        let mut folder = openat(base, ".", FOLDER, Mode::empty())?;
        for component in path.components() {
            let name = component.as_os_str();
            self.names_left = self
                .names_left
                .checked_sub(1)
                .ok_or_else(|| io::Error::other("its symbolic links have too many names"))?;
            // The root is a component, too: a path begins again there.
            if component == Component::RootDir {
                self.led_by = None;
            }
            let next = match (component, &self.root) {
                (Component::RootDir, Some(root)) => openat(root, ".", FOLDER, Mode::empty())?,
                (Component::ParentDir, Some(root)) if is_same(&folder, root)? => folder.try_clone()?,
                _ => openat(&folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?,
            };
            let stat = fstat(&next)?;
            folder = match is_link(&stat) {
                false => next,
                true if self.is_of_procfs(&folder)? => openat(&folder, name, FOLDER, Mode::empty())?,
                true => self.linked_folder(&folder, &next, stat.st_uid)?,
            };
            // A folder of this user may be in a folder of another one.
            if let (Component::ParentDir, Some(owner)) = (component, self.led_by)
                && stat.st_uid != owner
            {
                return Err(io::Error::other(format!(
                    "a `..` of its path, behind a symbolic link of user id {owner}, leads to a folder of another user: it is not \
                     followed"
                )));
            }
        }
        Ok(openat(&folder, ".", FOLDER, Mode::empty())?)
    }

    /// The folder to which a link of this owner in another folder leads.
    fn linked_folder(&mut self, folder: &OwnedFd, link: &OwnedFd, owner: u32) -> io::Result<OwnedFd> {
        self.count()?;
        self.begin_link_of(owner);
        let target = PathBuf::from(OsString::from_vec(readlinkat(link, "", Vec::new())?.into_bytes()));
        let linked = self.folder(folder, &target)?;
        if is_trusted(owner) {
            return Ok(linked);
        }
        let found = fstat(&linked)?.st_uid;
        if found != owner && !self.is_in_folder_of(owner, &linked)? {
            let target = target.display();
            return Err(io::Error::other(format!(
                "a folder of its path is a symbolic link of user id {owner} to {target}, which belongs to another user, id {found}: \
                 it is not followed"
            )));
        }
        self.led_by = Some(owner);
        Ok(linked)
    }

    /// A mount is not in the folder of its mount point: the owner of the folder may not read it.
    fn is_in_folder_of(&self, owner: u32, folder: &OwnedFd) -> io::Result<bool> {
        let is_root = self.root.as_ref().map_or(Ok(false), |root| is_same(folder, root))?;
        if !self.lead_into_folders || is_root {
            return Ok(false);
        }
        let above = openat(folder, "..", FOLDER, Mode::empty())?;
        Ok(fstat(&above)?.st_uid == owner && mount_of(&above)? == mount_of(folder)?)
    }

    /// Whether the kernel follows the links of this folder.
    fn is_of_procfs(&self, folder: &OwnedFd) -> io::Result<bool> {
        let is_of_procfs = fstatfs(folder)?.f_type == PROC_SUPER_MAGIC;
        if is_of_procfs && !self.are_trusted {
            return Err(io::Error::other(
                "a symbolic link of another user leads to a link in /proc, which is not followed",
            ));
        }
        if is_of_procfs && self.root.is_some() {
            return Err(io::Error::other("a link in /proc of another root directory is not followed"));
        }
        Ok(is_of_procfs)
    }

    /// The text of a link of this user comes next. A text of another user may lead anywhere on its way: its end counts.
    fn begin_link_of(&mut self, owner: u32) {
        if !is_trusted(owner) {
            self.are_trusted = false;
            self.led_by = None;
        }
    }

    fn count(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or(Errno::LOOP)?;
        Ok(())
    }
}

fn not_followed(owner: u32) -> io::Error {
    io::Error::other(format!("it is a symbolic link of user id {owner}, which is not followed"))
}

/// Whether a link of this user may lead anywhere.
fn is_trusted(owner: u32) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&owner)
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// The number of the mount, or of the device if the kernel has no such number (before Linux 5.8).
fn mount_of(folder: &OwnedFd) -> io::Result<u64> {
    let state = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if state.stx_mask & StatxFlags::MNT_ID.bits() != 0 { Ok(state.stx_mnt_id) } else { Ok(fstat(folder)?.st_dev) }
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// Refuses a hard link that another user may have made, or has made and removed since the file was opened.
fn with_one_name(folder: &OwnedFd, file: OwnedFd) -> io::Result<File> {
    let stat = fstat(&file)?;
    let parent = fstat(folder)?;
    if is_regular(&stat) && (!is_trusted(parent.st_uid) || parent.st_mode & WRITABLE_BY_OTHERS != 0) {
        let names = stat.st_nlink;
        if names > 1 {
            return Err(io::Error::other(format!(
                "it has {names} names (hard links), and another user can write to its folder; remove it"
            )));
        }
        // The name by which it was opened is the one that was counted if it is there after the count: a removed one does not come back.
        let path = readlinkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
        if path.as_bytes().ends_with(b" (deleted)") {
            return Err(io::Error::other(
                "another user has removed it while it was opened; use a folder to which no other user can write",
            ));
        }
    }
    Ok(File::from(file))
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn name_of(path: &Path) -> io::Result<OsString> {
    path.file_name().map(OsStr::to_owned).ok_or_else(|| Errno::ISDIR.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CREATE);

    fn append(path: &Path) -> io::Result<()> {
        open(path, APPEND, Mode::from_raw_mode(0o600))?.write_all(b"x")
    }

    #[test]
    fn links_of_our_own_are_followed_wherever_they_lead() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("logs")).unwrap();
        symlink("logs/relative", at("first")).unwrap();
        symlink(at("last"), at("logs/relative")).unwrap();
        append(&at("first")).unwrap();
        assert_eq!(std::fs::read(at("last")).unwrap(), b"x");
        symlink("circle", at("circle")).unwrap();
        assert_eq!(Errno::from_io_error(&append(&at("circle")).unwrap_err()), Some(Errno::LOOP));
        symlink("..", at("up")).unwrap();
        assert!(append(&at("up")).is_err() && append(Path::new("/")).is_err());
    }

    #[test]
    fn a_folder_that_another_user_replaces_by_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["private", "shop", "shop/release", "shop/release/logs"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        symlink(at("private"), at("shop/logs")).unwrap();
        symlink("release", at("shop/current")).unwrap();
        symlink("shop", at("ours")).unwrap();
        symlink("circle/x", at("circle")).unwrap();
        append(&at("shop/logs/log")).unwrap();
        append(&at("ours/./current/../release/logs/log")).unwrap();
        assert_eq!(Errno::from_io_error(&append(&at("circle/log")).unwrap_err()), Some(Errno::LOOP));
        assert_eq!(Errno::from_io_error(&append(&at("private/log/x")).unwrap_err()), Some(Errno::NOTDIR));
        if !rustix::process::geteuid().is_root() {
            return;
        }
        for name in ["shop", "shop/release", "shop/release/logs", "shop/logs", "shop/current"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        let refused = append(&at("shop/logs/log")).unwrap_err().to_string();
        assert!(refused.starts_with("a folder of its path is a symbolic link of user id 65534"), "{refused}");
        append(&at("ours/current/logs/log")).unwrap();
        // Through a folder of its own, to one that is not.
        symlink(at("private"), at("shop/release/away")).unwrap();
        lchown(at("shop/release/away"), Some(65534), None).unwrap();
        append(&at("ours/current/away/log")).unwrap_err();
        assert_eq!(std::fs::read(at("private/log")).unwrap(), b"x");
        assert_eq!(std::fs::read(at("shop/release/logs/log")).unwrap(), b"xx");
    }

    #[test]
    fn a_pipe_of_our_own_is_opened_through_procfs() {
        let (mut reader, writer) = io::pipe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        let of_procfs = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        symlink(&of_procfs, &link).unwrap();
        append(&of_procfs).unwrap();
        append(&link).unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "xx");
    }

    #[test]
    fn a_link_of_another_user_leads_to_no_link_of_procfs() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let real = std::fs::canonicalize(folder.path()).unwrap().join("real");
        let through_procfs = PathBuf::from(format!("/proc/self/root{}", real.display()));
        std::fs::create_dir(&real).unwrap();
        symlink(&through_procfs, at("logs")).unwrap();
        symlink(at("logs"), at("nested")).unwrap();
        symlink(through_procfs.join("log"), at("log")).unwrap();
        append(&at("logs/log")).unwrap();
        append(&at("nested/log")).unwrap();
        read(&at("log")).unwrap();
        for name in ["real", "real/log", "logs", "log"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        for name in ["logs/log", "nested/log"] {
            let refused = append(&at(name)).unwrap_err().to_string();
            assert!(refused.ends_with("a link in /proc, which is not followed"), "{refused}");
            read(&at(name)).unwrap_err();
        }
        append(&at("log")).unwrap_err();
        read(&at("log")).unwrap_err();
        owner_of_folder(&at("logs")).unwrap_err();
        assert_eq!(std::fs::read(at("real/log")).unwrap(), b"xx");
    }

    #[test]
    fn a_file_without_its_name_is_refused_where_others_may_have_removed_it() {
        let folder = tempfile::tempdir().unwrap();
        let parent = OwnedFd::from(File::open(folder.path()).unwrap());
        let open = || OwnedFd::from(File::create(folder.path().join("log")).unwrap());
        let removed = || {
            std::fs::hard_link(folder.path().join("log"), folder.path().join("victim")).unwrap();
            let file = open();
            std::fs::remove_file(folder.path().join("log")).unwrap();
            file
        };
        with_one_name(&parent, open()).unwrap();
        with_one_name(&parent, removed()).unwrap();
        std::fs::rename(folder.path().join("victim"), folder.path().join("log")).unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        with_one_name(&parent, open()).unwrap();
        let error = with_one_name(&parent, removed()).unwrap_err().to_string();
        assert_eq!(
            error,
            "another user has removed it while it was opened; use a folder to which no other user can write"
        );
    }

    #[test]
    fn a_way_up_behind_a_link_of_another_user_stays_with_this_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("private/theirs/inner")).unwrap();
        symlink(at("private/theirs"), at("up")).unwrap();
        symlink(at("private/theirs/inner"), at("inner")).unwrap();
        symlink(at("up"), at("of-root")).unwrap();
        symlink(folder.path(), at("home")).unwrap();
        for name in ["private/theirs", "private/theirs/inner", "up", "inner"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        for refused in ["up/../log", "of-root/../log", "inner/../../log"] {
            let error = append(&at(refused)).unwrap_err().to_string();
            assert!(error.starts_with("a `..` of its path, behind a symbolic link of user id 65534"), "{error}");
            owner_of_folder(at(refused).parent().unwrap()).unwrap_err();
        }
        assert!(!at("private/log").exists());
        append(&at("inner/../log")).unwrap();
        append(&at("home/private/../log")).unwrap();
        // An absolute link of root begins from the start.
        symlink(at("private/../private"), at("private/theirs/again")).unwrap();
        append(&at("up/again/log")).unwrap();
        assert!(at("private/theirs/log").exists() && at("log").exists() && at("private/log").exists());
        // The text of their own link may pass folders of others, if it ends in one of theirs.
        std::fs::create_dir(at("private/shared")).unwrap();
        symlink("../../shared", at("private/theirs/inner/shared")).unwrap();
        for name in ["private/shared", "private/theirs/inner/shared"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        append(&at("inner/shared/log")).unwrap();
        append(&at("inner/shared/../log")).unwrap_err();
    }

    #[test]
    fn the_owner_of_a_folder_is_not_that_of_another_users_choice() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("site")).unwrap();
        symlink("site", at("link")).unwrap();
        let ours = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(owner_of_folder(&at("link")).unwrap(), ours);
        owner_of_folder(&at("missing")).unwrap_err();
        if rustix::process::geteuid().is_root() {
            lchown(at("site"), Some(5), Some(5)).unwrap();
            assert_eq!(owner_of_folder(&at("link")).unwrap(), (5, 5));
            lchown(at("link"), Some(65534), None).unwrap();
            owner_of_folder(&at("link")).unwrap_err();
            lchown(at("link"), Some(5), None).unwrap();
            assert_eq!(owner_of_folder(&at("link")).unwrap(), (5, 5));
        }
    }

    #[test]
    fn the_link_to_a_shared_folder_leads_also_into_a_folder_of_its_owner() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["site/releases/1/public", "private/files"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink("releases/1", at("site/current")).unwrap();
        symlink(at("private"), at("site/private")).unwrap();
        symlink(at("private/files"), at("site/files")).unwrap();
        symlink("../../private/files", at("site/releases/files")).unwrap();
        symlink("/proc/self", at("site/process")).unwrap();
        symlink("site/private", at("of-root")).unwrap();
        for name in ["site", "site/releases", "site/current", "site/private", "site/files", "site/releases/files"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        lchown(at("site/process"), Some(65534), None).unwrap();
        open_folder(&at("site/current/public")).unwrap_err();
        open_shared_folder(&at("site/current/public")).unwrap();
        for name in
            ["site/private", "site/private/files", "site/files", "site/releases/files", "site/process", "of-root"]
        {
            open_shared_folder(&at(name)).expect_err(name);
        }
        let refused = open_shared_folder(&at("site/files")).unwrap_err().to_string();
        assert!(
            refused.ends_with("/private/files, which belongs to another user, id 0: it is not followed"),
            "{refused}"
        );
        let many = std::iter::repeat_n("../site/", 400).collect::<String>();
        for (link, target) in [("site/many", many.clone()), ("site/more", many + "many/")] {
            symlink(target, at(link)).unwrap();
            lchown(at(link), Some(65534), None).unwrap();
        }
        open_shared_folder(&at("site/many")).unwrap();
        let refused = open_shared_folder(&at("site/more")).unwrap_err().to_string();
        assert_eq!(refused, "its symbolic links have too many names");
        // Root may lead anywhere.
        lchown(at("site/private"), Some(0), None).unwrap();
        open_shared_folder(&at("site/private/files")).unwrap();
    }

    #[test]
    fn a_hard_link_that_another_user_may_have_made_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (log, victim) = (folder.path().join("log"), folder.path().join("victim"));
        std::fs::write(&victim, "").unwrap();
        std::fs::hard_link(&victim, &log).unwrap();
        append(&log).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(append(&log).unwrap_err().to_string().starts_with("it has 2 names (hard links)"));
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
            lchown(folder.path(), Some(12345), None).unwrap();
            append(&log).unwrap_err();
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"x");
        std::fs::remove_file(&victim).unwrap();
        append(&log).unwrap();
    }

    #[test]
    fn a_file_is_read_behind_a_link_of_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let content = |name: &str| read(&at(name)).and_then(io::read_to_string).map_err(|error| error.to_string());
        std::fs::write(at("page"), "page").unwrap();
        std::fs::write(at("private"), "private").unwrap();
        std::fs::hard_link(at("page"), at("name")).unwrap();
        symlink("page", at("to-page")).unwrap();
        symlink("private", at("to-private")).unwrap();
        symlink("to-page", at("ours")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for name in ["page", "name", "to-page", "ours"] {
            assert_eq!(content(name), Ok("page".to_owned()), "{name}");
        }
        for name in ["pipe", "."] {
            content(name).expect_err(name);
        }
        if !rustix::process::geteuid().is_root() {
            return;
        }
        for name in ["page", "to-page", "to-private"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        for name in ["page", "name", "to-page", "ours"] {
            assert_eq!(content(name), Ok("page".to_owned()), "{name}");
        }
        assert!(content("to-private").unwrap_err().starts_with("it is a symbolic link of user id 65534"));
        // A link of ours in between changes nothing.
        symlink("private", at("to-page.new")).unwrap();
        std::fs::rename(at("to-page.new"), at("page")).unwrap();
        content("to-page").unwrap_err();
    }

    #[test]
    fn a_link_that_is_swapped_in_meanwhile_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (log, victim) = (at("log"), at("victim"));
        std::fs::write(&victim, "").unwrap();
        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    // Both renames are atomic: the log is always one or the other.
                    std::fs::write(at("file.new"), "").unwrap();
                    std::fs::rename(at("file.new"), &log).unwrap();
                    symlink(&victim, at("link.new")).unwrap();
                    lchown(at("link.new"), Some(65534), None).unwrap();
                    std::fs::rename(at("link.new"), &log).unwrap();
                    // A link of ours, which leads to another file: a check of the wrong link would be passed.
                    symlink(at("other"), at("ours.new")).unwrap();
                    std::fs::rename(at("ours.new"), &log).unwrap();
                }
            });
            for _ in 0..20_000 {
                let _ = append(&log);
            }
            finished.store(true, Ordering::Relaxed);
        });
        assert_eq!(std::fs::read(&victim).unwrap(), b"");
        assert!(std::fs::metadata(at("other")).unwrap().len() > 0, "our own link was followed");
    }
}
