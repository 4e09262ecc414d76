//! Another root directory, with the files that PHP needs mounted below it.
//!
//! The application's user may own the rootfs and put symbolic links into it. Therefore all that is mounted is opened or
//! made first, and attached only when the rootfs is `/` and the old root directory is gone: no link in it leads out of
//! it then. (While the old root lies on top of the new one, `/..` leads there.) All mounts are in a mount namespace of
//! their own, and disappear with its last process. Links of procfs are not followed: the operator may have mounted `/proc` there, and
//! `/proc/PID/root` leads out. A link of that user above the rootfs is followed only to a folder of their own.
//!
//! That user may own php.ini and its folder, too. Mounted by root, it could be any file or folder, below any private folder:
//! only a regular file is mounted, and none to which a link of another user than its owner leads.

#![allow(unsafe_code)] // a system call that no crate offers

use super::problem::{Problem, problem};
use crate::sapi;
use howdah_protocol::messages::confinement::{Confinement, Rootfs};
use howdah_protocol::trusted_path;
use nix::libc;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change, mount_remount,
    move_mount, open_tree, unmount,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The kernel's `struct mount_attr`.
#[derive(Debug, Default)]
#[repr(C)]
struct MountChange {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Folders that PHP and its extensions read at run time, besides those that it was built with.
const RUN_TIME_FOLDERS: [&str; 6] = [
    "/usr/share/php",
    "/usr/share/zoneinfo",
    "/usr/lib/locale",
    "/usr/lib/ssl",
    "/etc/ssl/certs",
    "/usr/share/ca-certificates",
];
/// A copy of a mount, with those below it.
const CLONED: OpenTreeFlags =
    OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC).union(OpenTreeFlags::AT_RECURSIVE);
/// Folders that are too large to mount; extensions need no files directly in them.
const TOO_LARGE: [&str; 5] = ["/", "/lib", "/usr", "/usr/lib", "/usr/local/lib"];

/// In a fresh mount namespace: separates its mounts from the machine's, and makes the rootfs, if there is one, `/`.
/// `is_root`: whether this process is root outside of all user namespaces.
pub fn arrange(
    wanted: &Confinement,
    php_ini: Option<&Path>,
    is_root: bool,
    option: &'static str,
) -> Result<(), Problem> {
    // New mounts of the machine appear here, but not the other way round.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(problem(option, "mounts cannot be kept apart from the machine's"))?;
    match &wanted.rootfs {
        Some(rootfs) => enter(rootfs, php_ini, is_root),
        None if wanted.pid => mount_proc("namespaces/pid"),
        None => Ok(()),
    }
}

/// Opens the folder. Root's mounts in it, and its files below private folders, are not for a user who has put a link in its place.
fn open_rootfs(path: &Path, is_root: bool) -> io::Result<OwnedFd> {
    if is_root {
        return trusted_path::open_folder(path);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

fn enter(rootfs: &Rootfs, php_ini: Option<&Path>, is_root: bool) -> Result<(), Problem> {
    let path = &rootfs.path;
    let failed = |doing: &str| problem("rootfs", format!("{}: {doing}", path.display()));
    let mut outside = Vec::new();
    for source in sources(rootfs.language_deps, php_ini) {
        let tree = match php_ini == Some(&source) {
            true => open_php_ini(&source, is_root)
                .and_then(|file| Ok(open_tree(&file, "", CLONED.union(OpenTreeFlags::AT_EMPTY_PATH))?))
                .map_err(problem("rootfs", format!("options/file: {} cannot be opened", source.display())))?,
            false => open_tree(CWD, &source, CLONED)
                .map_err(problem("automount/language_deps", format!("{} cannot be opened", source.display())))?,
        };
        // Before the tree has a path, which may lead elsewhere a moment later.
        let is_protected = protect(&tree)
            .map_err(problem("automount/language_deps", format!("{} cannot be protected", source.display())))?;
        outside.push((source, tree, is_protected));
    }
    // While the old /proc is still mounted: without root, the kernel checks that the new one reveals no more.
    let option = "automount/procfs";
    let proc = rootfs.procfs.then(proc_tree).transpose().map_err(problem(option, "/proc cannot be made"))?;
    let folder =
        open_rootfs(path, is_root).map_err(problem("rootfs", format!("{}: it cannot be opened", path.display())))?;
    let root =
        open_tree(&folder, "", CLONED.union(OpenTreeFlags::AT_EMPTY_PATH)).map_err(failed("it cannot be mounted"))?;
    let onto_itself = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&root, "", &folder, "", onto_itself).map_err(failed("it cannot be mounted"))?;
    rustix::process::fchdir(&root).map_err(failed("it cannot be entered"))?;
    // The old root is on top of the new one then, as ".", until it is unmounted.
    rustix::process::pivot_root(".", ".").map_err(failed("it cannot become the root directory"))?;
    unmount(".", UnmountFlags::DETACH).map_err(failed("the old root directory cannot be left"))?;
    rustix::process::chdir("/").map_err(failed("it cannot be entered"))?;
    if rootfs.tmpfs {
        tmpfs_tree()
            .and_then(|tree| attach(&tree, &folder_in_rootfs(Path::new("/tmp"))?))
            .map_err(problem("automount/tmpfs", "/tmp cannot be mounted"))?;
    }
    // Folders from outside may be below /tmp, too.
    for (target, tree, is_protected) in outside {
        mount_tree(&target, &tree)
            .and_then(|()| if is_protected { Ok(()) } else { protect_path(&target) })
            .map_err(problem("automount/language_deps", format!("{} cannot be mounted", target.display())))?;
    }
    let Some(proc) = proc else { return Ok(()) };
    folder_in_rootfs(Path::new("/proc"))
        .and_then(|folder| attach(&proc, &folder))
        .map_err(problem(option, "/proc cannot be mounted"))
}

/// Without root, the kernel refuses what the user may not read, and shows other users than there are outside.
fn open_php_ini(path: &Path, is_root: bool) -> io::Result<OwnedFd> {
    match is_root {
        true => Ok(trusted_path::read(path)?.into()),
        false => Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?),
    }
}

/// A /proc of this process's namespace, which is not mounted yet.
fn proc_tree() -> io::Result<OwnedFd> {
    unmounted("proc", &[])
}

/// A folder for temporary files, in the same way.
fn tmpfs_tree() -> io::Result<OwnedFd> {
    unmounted("tmpfs", &[("size", "10%"), ("mode", "1777")])
}

fn unmounted(kind: &str, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn mount_proc(option: &'static str) -> Result<(), Problem> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    std::fs::create_dir_all("/proc")
        .and_then(|()| Ok(mount("proc", "/proc", "proc", flags, None)?))
        .map_err(problem(option, "/proc cannot be mounted"))
}

fn mount_tree(target: &Path, tree: &OwnedFd) -> io::Result<()> {
    let file = rustix::fs::fstat(tree)?;
    if rustix::fs::FileType::from_raw_mode(file.st_mode).is_dir() {
        return attach(tree, &folder_in_rootfs(target)?);
    }
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else { return Err(Errno::ISDIR.into()) };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(folder_in_rootfs(parent)?, name, flags, Mode::from_raw_mode(0o666)) {
        Ok(_) | Err(Errno::EXIST) => attach(tree, &open_in_rootfs(target, OFlags::PATH)?),
        Err(error) => Err(error.into()),
    }
}

fn attach(tree: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let by_descriptors = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", place, "", by_descriptors)?)
}

/// Makes a tree and the mounts in it read-only, without programs of other users and without devices. `false` if the kernel
/// cannot do that (before Linux 5.12).
fn protect(tree: &OwnedFd) -> io::Result<bool> {
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let change = MountChange { set: attributes.bits().into(), ..MountChange::default() };
    // SAFETY: the path is a C string, and the kernel reads as many bytes of `change` as it has.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const change,
            size_of::<MountChange>(),
        )
    };
    match result {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => Ok(false),
            error => Err(error),
        },
    }
}

/// The same for a mounted tree, without the mounts in it.
fn protect_path(target: &Path) -> io::Result<()> {
    Ok(mount_remount(target, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, c"")?)
}

/// The folder at this path below `/`, with the folders above it. Missing ones are made.
fn folder_in_rootfs(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    match (open_in_rootfs(path, flags), path.parent(), path.file_name()) {
        (Err(Errno::NOENT), Some(parent), Some(name)) => {
            match mkdirat(folder_in_rootfs(parent)?, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => Ok(open_in_rootfs(path, flags)?),
                Err(error) => Err(error.into()),
            }
        }
        (opened, ..) => Ok(opened?),
    }
}

/// Opens a path below `/`, without the links of a `/proc` there.
fn open_in_rootfs(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// The folders and files to mount: each once, and none that is below another one.
fn sources(language_deps: bool, php_ini: Option<&Path>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    if language_deps {
        let [extensions, ini] = sapi::built_in_folders();
        // Debian: /etc/php/8.2 has a folder for each SAPI, of links to mods-available beside them.
        let ini = if ini.starts_with("/etc/php") { ini.parent().map_or(ini.clone(), Path::to_owned) } else { ini };
        all.extend([extensions, ini]);
        all.extend(RUN_TIME_FOLDERS.map(PathBuf::from));
        all.extend(library_folders(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default()));
    }
    all.extend(php_ini.map(Path::to_owned));
    all.retain(|path| path.exists() && !TOO_LARGE.iter().any(|too_large| path == Path::new(too_large)));
    all.sort();
    all.dedup();
    let everything = all.clone();
    all.retain(|path| !everything.iter().any(|other| other != path && path.starts_with(other)));
    all
}

/// The folders of the libraries that this process has loaded: extensions find theirs there.
fn library_folders(maps: &str) -> Vec<PathBuf> {
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let libraries = files.filter(|file| file.to_string_lossy().contains(".so"));
    libraries.filter_map(|library| library.parent().map(Path::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_folders_are_those_of_the_loaded_libraries() {
        let maps = "\
7f00-7f01 r-xp 00000000 fe:00 123                        /usr/lib/x86_64-linux-gnu/libc.so.6
7f01-7f02 rw-p 00000000 00:00 0                          [heap]
7f02-7f03 r-xp 00000000 fe:00 124                        /opt/my php/lib/libphp.so
7f03-7f04 r-xp 00000000 fe:00 125                        /srv/howdah-php8.2
";
        assert_eq!(
            library_folders(maps),
            [PathBuf::from("/usr/lib/x86_64-linux-gnu"), PathBuf::from("/opt/my php/lib")]
        );
    }

    #[test]
    fn a_folder_below_another_mount_is_not_mounted_again() {
        assert_eq!(sources(false, None), Vec::<PathBuf>::new());
        assert_eq!(sources(false, Some(Path::new("/etc/passwd"))), [PathBuf::from("/etc/passwd")]);
        let all = sources(true, None);
        for path in &all {
            assert!(path.is_absolute() && path.exists(), "{path:?}");
            assert!(!all.iter().any(|other| other != path && path.starts_with(other)), "{path:?} of {all:?}");
        }
    }
}
