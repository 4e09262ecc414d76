//! Opens a file at a configured path, in a folder in which another user may be able to replace it.
//!
//! A symbolic link at the end of the path is followed if it is trusted: one that an application's user owns may
//! lead to any file that we may write. The link that is checked is the one that is followed, because both use one
//! descriptor of it: a user who swaps the file while it is opened gains nothing.
//!
//! A link is trusted if root or we own it, and all folders on the way to it: a user who owns one of them can rename a link that
//! root has made there, or a folder above it. Such a link is as good as one of this user, and one of another user as good as one of
//! both. Into a folder to which all users can write, each user can move a link of root's. The group of a folder is trusted.
//! A link of root's to `/dev/stderr`, `/dev/stdout` or `/dev/null` is always followed.
//!
//! A link of a user among the folders above the file is followed, too, if it leads to a folder of this user, as the `current` of a
//! deploy does: a user who owns a folder of the path must not lead root to a folder of another user. A `..` behind it is held to the
//! same rule. A link of root's in a folder of the user may also lead to below its own folder: a rename alone leads there.
//!
//! A file that is only read may be behind any link of a user who owns the file, too: its content gives that user nothing new.
//!
//! The same is true of a socket to which we connect.
//!
//! A hard link is refused in a folder that another user can write to, unless the file is only read: it may be a name of any file. The
//! kernel prevents such links only with `fs.protected_hardlinks`.
//!
//! In a FUSE file system that another user has mounted, all belongs to this user ([`owner_of`]).
//!
//! The kernel follows a link of procfs (`/dev/stderr` leads to `/proc/self/fd/2`), because its text need not be a path:
//! that of a pipe is `pipe:[123]`. Behind a link of another user, links of procfs are refused: `/proc/PID/root` of a process of this
//! user leads to its own mounts, where any file may have any name.

mod owner;
#[cfg(test)]
mod tests;

use crate::plain_text::plain_and_short;
use owner::Owners;
use rustix::fs::{
    AtFlags, CWD, Dev, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, StatxFlags, fstat, fstatfs, openat, readlinkat,
    statx,
};
use rustix::io::Errno;
use std::cell::Cell;
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
const WRITABLE_BY_ALL: u32 = 0o002;
/// In such a folder, a user can rename what is the user's own only.
const STICKY: u32 = 0o1000;
/// Containers have links of root's to these in place of logs. They lead to no file of another user.
const HARMLESS: [&str; 3] = ["/dev/stderr", "/dev/stdout", "/dev/null"];
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a file with these flags. A file that is created has this mode.
///
/// # Errors
/// The errors of open(2), and one for a link of another user.
pub fn open(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let (folder, file) = follow(path, flags, mode, |led_by| Err(led_by.refusal()))?;
    with_one_name(&folder, file)
}

/// Opens a regular file to read it. It does not wait for the writer of a named pipe.
///
/// # Errors
/// The errors of open(2), one for another kind of file, and one for a link to a file of another user than the link's.
pub fn read(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Found { file, stat, refused, .. } = find(path, flags)?;
    match refused {
        Some(led_by) => Err(led_by.refusal()),
        None if is_regular(&stat) => Ok(File::from(file)),
        None => Err(io::Error::other("it is not a regular file")),
    }
}

/// Opens a socket without access, for connect(2) by `/proc/self/fd`. A link leads to a socket of its owner only: ours may be permitted
/// to connect to sockets of other users, to which the owner of the link may not.
///
/// # Errors
/// The errors of open(2), and one for a link to a socket of another user than the link's, or a hard link.
pub fn socket(path: &Path) -> io::Result<OwnedFd> {
    open_socket(path).map_err(|error| match error.raw_os_error() {
        Some(_) => error,
        None => io::Error::other(format!("{error}; write the path of the socket itself into the configuration")),
    })
}

fn open_socket(path: &Path) -> io::Result<OwnedFd> {
    let Found { folder, file, stat, user, refused } = find(path, OFlags::PATH)?;
    let parent = fstat(&folder)?;
    if let Some(led_by) = refused {
        let link = led_by.link();
        return Err(io::Error::other(format!(
            "it is {link} to a socket of another user, id {user}: it is not followed"
        )));
    }
    let is_of_folder = stat.st_uid == parent.st_uid && parent.st_mode & WRITABLE_BY_OTHERS == 0;
    if stat.st_nlink > 1 && !is_of_folder && is_open_to_others(&parent) {
        return Err(hard_links(stat.st_nlink));
    }
    Ok(file)
}

/// A file behind links.
struct Found {
    folder: OwnedFd,
    file: OwnedFd,
    stat: Stat,
    /// The owner that counts.
    user: u32,
    /// The users of a link who may not lead to a file of this owner.
    refused: Option<LedBy>,
}

/// Opens a file behind links of any user.
fn find(path: &Path, flags: OFlags) -> io::Result<Found> {
    let mut leaders = Vec::new();
    let (folder, file) = follow(path, flags, Mode::empty(), |led_by| {
        leaders.push(led_by);
        Ok(())
    })?;
    let stat = fstat(&file)?;
    let (user, _) = owner(&file, &stat)?;
    let refused = leaders.into_iter().find(|led_by| !led_by.may_lead_to(user));
    Ok(Found { folder, file, stat, user, refused })
}

/// Opens a file behind links. `untrusted` decides about a link at the end of the path that is not trusted. Returns the folder of the
/// file, too.
fn follow(
    path: &Path,
    flags: OFlags,
    mode: Mode,
    mut untrusted: impl FnMut(LedBy) -> io::Result<()>,
) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut links = Links::new();
    let mut folder = links.folder_of(CWD, path)?;
    let mut name = name_of(path)?;
    loop {
        match openat(&folder, &name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode) {
            Err(Errno::LOOP) => {}
            // Without access, a link itself is opened.
            Ok(file) if flags.contains(OFlags::PATH) && is_link(&fstat(&file)?) => {}
            opened => return opened.map(|file| (folder, file)).map_err(io::Error::from),
        }
        let link = openat(&folder, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&link)?;
        links.count()?;
        if !is_link(&stat) {
            // It is another file than a moment ago.
            continue;
        }
        let target = target_of(&link)?;
        let led_by = links.leader(links.owner(&link, &stat)?, &fstat(&folder)?, &target);
        if let Some(led_by) = led_by {
            untrusted(led_by)?;
        }
        if links.is_of_procfs(&folder)? {
            let file = openat(&folder, &name, flags | OFlags::CLOEXEC, mode)?;
            return Ok((folder, file));
        }
        links.begin_link_of(led_by);
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
    place(path).map(|place| (place.folder, place.name))
}

/// The same, with whether the path stays what it is.
///
/// # Errors
/// As above.
pub fn place(path: &Path) -> io::Result<Place> {
    let mut links = Links::new();
    let folder = links.folder_of(CWD, path)?;
    Ok(Place { folder, name: name_of(path)?, is_fixed: links.is_fixed })
}

/// The folder at this path, whose links are followed as above: a descriptor with `O_PATH`.
///
/// # Errors
/// The errors of open(2), and one for a link of another user.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Links::new().folder(CWD, path)
}

/// The folder of a share at this path, whose links are followed as above. A link leads also to what lies directly in a folder of
/// its owner, such as a release that another user unpacked, or below its own folder: this owner can have it sent without the link, too.
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
    let folder = open_folder(path)?;
    owner(&folder, &fstat(&folder)?)
}

/// The owner of the file, folder or link at this path.
///
/// # Errors
/// Of the system, or when the user is unknown who has mounted its file system.
pub fn owner_of(path: &Path) -> io::Result<u32> {
    let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    owner_of_opened(file)
}

/// The owner of an open file, folder or link.
///
/// # Errors
/// As for [`owner_of`].
pub fn owner_of_opened(file: impl AsFd) -> io::Result<u32> {
    let stat = fstat(&file)?;
    owner(file, &stat).map(|(user, _)| user)
}

/// Where a file is, or may be created.
#[derive(Debug)]
pub struct Place {
    /// The folder, with `O_PATH`.
    pub folder: OwnedFd,
    /// The name in it.
    pub name: OsString,
    /// Whether no other user can make the path lead to another folder.
    pub is_fixed: bool,
}

/// The links and names that may still be followed.
struct Links {
    left: u32,
    names_left: u32,
    /// Whether all links until now are trusted.
    are_trusted: bool,
    /// The users of the last link that is not trusted, by which the path has come to where it is.
    led_by: Option<LedBy>,
    /// Another user who owns a folder on the way to where the path is: the last one.
    in_folder_of: Option<u32>,
    /// Whether a folder directly in a folder of the link's user, or below the folder of the link, is as good as a folder of this user.
    lead_into_folders: bool,
    /// The root directory, if it is not ours.
    root: Option<OwnedFd>,
    /// Whether no other user could have replaced a folder on the way.
    is_fixed: bool,
    /// The owners of the last file system, and its device.
    owners: Cell<Option<(Dev, Owners)>>,
}

/// Users who can put a link in the place where it is, although we do not trust them.
#[derive(Clone, Copy)]
struct LedBy {
    /// The owner of the link, if it is one of them.
    owner: Option<u32>,
    /// The owner of a folder above it.
    folder: Option<u32>,
    /// All users can write to its folder.
    all: bool,
}

// === impl Links ===

impl Links {
    fn new() -> Links {
        Links {
            left: MAX_LINKS,
            names_left: MAX_NAMES,
            are_trusted: true,
            led_by: None,
            in_folder_of: None,
            lead_into_folders: false,
            root: None,
            is_fixed: true,
            owners: Cell::default(),
        }
    }

    /// The folder of a file. A path that is not absolute begins at `base`.
    fn folder_of(&mut self, base: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.folder(base, folder)
    }

    fn folder(&mut self, base: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
        let mut folder = openat(base, ".", FOLDER, Mode::empty())?;
        let stat = fstat(&folder)?;
        self.pass_folder(self.owner(&folder, &stat)?, &stat);
        for component in path.components() {
            let name = component.as_os_str();
            self.count_name()?;
            // The root is a component, too: a path begins again there.
            if component == Component::RootDir {
                (self.led_by, self.in_folder_of) = (None, None);
            }
            let next = match (component, &self.root) {
                (Component::RootDir, Some(root)) => openat(root, ".", FOLDER, Mode::empty())?,
                (Component::ParentDir, Some(root)) if is_same(&folder, root)? => folder.try_clone()?,
                _ => openat(&folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?,
            };
            let stat = fstat(&next)?;
            let owner = self.owner(&next, &stat)?;
            folder = match is_link(&stat) {
                false => {
                    self.pass_folder(owner, &stat);
                    next
                }
                true if self.is_of_procfs(&folder)? => openat(&folder, name, FOLDER, Mode::empty())?,
                true => self.linked_folder(&folder, &next, owner)?,
            };
            // A folder of this user may be in a folder of another one.
            if let (Component::ParentDir, Some(led_by)) = (component, self.led_by)
                && !led_by.may_lead_to(owner)
            {
                return Err(io::Error::other(format!(
                    "a `..` of its path, behind {}, leads to a folder of another user: it is not followed",
                    led_by.link()
                )));
            }
        }
        Ok(openat(&folder, ".", FOLDER, Mode::empty())?)
    }

    /// The folder to which a link of this owner in another folder leads.
    fn linked_folder(&mut self, folder: &OwnedFd, link: &OwnedFd, owner: u32) -> io::Result<OwnedFd> {
        self.count()?;
        let (target, place) = (target_of(link)?, fstat(folder)?);
        let led_by = self.leader(owner, &place, &target);
        self.begin_link_of(led_by);
        let linked = self.folder(folder, &target)?;
        let Some(led_by) = led_by else { return Ok(linked) };
        self.is_fixed = false;
        let found = self.owner(&linked, &fstat(&linked)?)?;
        let may_lead_there = led_by.may_lead_to(found)
            || self.is_in_folder_of(led_by, &linked)?
            || (self.leads_below(led_by, &place) && self.is_below(led_by, folder, &linked)?);
        if !may_lead_there {
            return Err(io::Error::other(format!(
                "a folder of its path is {} to {}, which belongs to another user, id {found}: it is not followed",
                led_by.link(),
                plain_and_short(&target.to_string_lossy())
            )));
        }
        self.led_by = Some(led_by);
        Ok(linked)
    }

    /// The users who can put a link of this owner where the path is, if the link is not trusted. It is in this folder.
    fn leader(&self, owner: u32, folder: &Stat, target: &Path) -> Option<LedBy> {
        let is_trusted = is_trusted(owner);
        if is_trusted && HARMLESS.iter().any(|path| target == Path::new(path)) {
            return None;
        }
        let is_ours_alone = owner == rustix::process::geteuid().as_raw() && owner != 0;
        let all = is_trusted && !is_ours_alone && folder.st_mode & WRITABLE_BY_ALL != 0;
        let led_by = LedBy {
            owner: (!is_trusted).then_some(owner),
            folder: self.in_folder_of.filter(|user| *user != owner),
            all,
        };
        (led_by.owner.is_some() || led_by.folder.is_some() || all).then_some(led_by)
    }

    /// Whether this link may lead to below its folder: a rename does, too, but not for each user in a folder with the sticky bit.
    fn leads_below(&self, led_by: LedBy, folder: &Stat) -> bool {
        led_by.owner.is_none() || (self.lead_into_folders && folder.st_mode & STICKY == 0)
    }

    /// The path leads through this folder.
    fn pass_folder(&mut self, owner: u32, folder: &Stat) {
        if !is_trusted(owner) {
            self.in_folder_of = Some(owner);
        }
        let all_can_rename = folder.st_mode & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL;
        self.is_fixed &= is_trusted(owner) && !all_can_rename;
    }

    /// The owner that counts.
    fn owner(&self, file: &OwnedFd, stat: &Stat) -> io::Result<u32> {
        let known = self.owners.get().filter(|(device, _)| *device == stat.st_dev);
        let (_, owners) =
            known.map_or_else(|| Ok((stat.st_dev, Owners::of_file_system(file, stat.st_dev)?)), Ok::<_, io::Error>)?;
        self.owners.set(Some((stat.st_dev, owners)));
        Ok(owners.of(stat).0)
    }

    /// Whether this folder is somewhere below the other one; for a link of another user not in another mount, which has no rename.
    fn is_below(&mut self, led_by: LedBy, above: &OwnedFd, folder: &OwnedFd) -> io::Result<bool> {
        if led_by.owner.is_some() && mount_of(above)? != mount_of(folder)? {
            return Ok(false);
        }
        let mut at = folder.try_clone()?;
        loop {
            self.count_name()?;
            if is_same(&at, above)? {
                return Ok(true);
            }
            let next = openat(&at, "..", FOLDER, Mode::empty())?;
            if is_same(&at, &next)? {
                return Ok(false);
            }
            at = next;
        }
    }

    /// A mount is not in the folder of its mount point: the owner of the folder may not read it.
    fn is_in_folder_of(&self, led_by: LedBy, folder: &OwnedFd) -> io::Result<bool> {
        let is_root = self.root.as_ref().map_or(Ok(false), |root| is_same(folder, root))?;
        if !self.lead_into_folders || is_root {
            return Ok(false);
        }
        let above = openat(folder, "..", FOLDER, Mode::empty())?;
        let owner = self.owner(&above, &fstat(&above)?)?;
        Ok(led_by.may_lead_to(owner) && mount_of(&above)? == mount_of(folder)?)
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

    /// The text of a link comes next. That of another user may lead anywhere on its way: its end counts.
    fn begin_link_of(&mut self, led_by: Option<LedBy>) {
        if led_by.is_some() {
            self.are_trusted = false;
            self.led_by = None;
        }
    }

    fn count_name(&mut self) -> io::Result<()> {
        let left = self.names_left.checked_sub(1);
        self.names_left = left.ok_or_else(|| io::Error::other("its symbolic links have too many names"))?;
        Ok(())
    }

    fn count(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or(Errno::LOOP)?;
        Ok(())
    }
}

// === impl LedBy ===

impl LedBy {
    /// Whether a folder or file of this user is one of all of them.
    fn may_lead_to(self, user: u32) -> bool {
        !self.all && self.owner.is_none_or(|owner| owner == user) && self.folder.is_none_or(|owner| owner == user)
    }

    /// The link, in an error.
    fn link(self) -> String {
        let owner = self.owner.map(|owner| format!(" of user id {owner}")).unwrap_or_default();
        let folder = match self.folder {
            _ if self.all => " in a folder to which all users can write".to_owned(),
            Some(owner) => format!(" in a folder of user id {owner}"),
            None => String::new(),
        };
        format!("a symbolic link{owner}{folder}")
    }

    fn refusal(self) -> io::Error {
        io::Error::other(format!("it is {}, which is not followed", self.link()))
    }
}

/// The owner and the group that count.
fn owner(file: impl AsFd, stat: &Stat) -> io::Result<(u32, u32)> {
    Ok(Owners::of_file_system(file, stat.st_dev)?.of(stat))
}

/// Whether a link of this user in a folder of this user may lead anywhere.
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

fn target_of(link: &OwnedFd) -> io::Result<PathBuf> {
    Ok(PathBuf::from(OsString::from_vec(readlinkat(link, "", Vec::new())?.into_bytes())))
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// Refuses a hard link that another user may have made, or has made and removed since the file was opened.
fn with_one_name(folder: &OwnedFd, file: OwnedFd) -> io::Result<File> {
    let stat = fstat(&file)?;
    let parent = fstat(folder)?;
    if is_regular(&stat) && is_open_to_others(&parent) {
        if stat.st_nlink > 1 {
            return Err(hard_links(stat.st_nlink));
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

fn is_open_to_others(folder: &Stat) -> bool {
    !is_trusted(folder.st_uid) || folder.st_mode & WRITABLE_BY_OTHERS != 0
}

fn hard_links(names: u64) -> io::Error {
    io::Error::other(format!("it has {names} names (hard links), and another user can write to its folder; remove it"))
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn name_of(path: &Path) -> io::Result<OsString> {
    path.file_name().map(OsStr::to_owned).ok_or_else(|| Errno::ISDIR.into())
}
