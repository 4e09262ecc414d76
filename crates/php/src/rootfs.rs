//! Another root directory, with what PHP needs mounted below it.
//!
//! Whoever runs PHP may own the rootfs and put symbolic links into it. So what comes from outside is opened first, and
//! mounted only when the rootfs is `/` already: no link in it leads out of it. All of it is in a mount namespace of its
//! own, and vanishes with the last process.

use crate::confine::{Problem, problem};
use crate::sapi;
use howdah_protocol::confinement::{Confinement, Rootfs};
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind_recursive,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};
use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where things are that PHP and its extensions look for at run time, besides those that it was built with.
const SHARED: [&str; 6] = [
    "/usr/share/php",
    "/usr/share/zoneinfo",
    "/usr/lib/locale",
    "/usr/lib/ssl",
    "/etc/ssl/certs",
    "/usr/share/ca-certificates",
];
/// Everything is in these, and nothing that an extension needs is in themselves.
const TOO_MUCH: [&str; 5] = ["/", "/lib", "/usr", "/usr/lib", "/usr/local/lib"];

/// In a fresh mount namespace: makes mounts ours, and the rootfs, if there is one, `/`.
pub fn arrange(wanted: &Confinement, php_ini: Option<&Path>, option: &'static str) -> Result<(), Problem> {
    // Mounts of the machine still come in; ours do not go out.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(problem(option, "mounts cannot be kept apart from the machine's"))?;
    match &wanted.rootfs {
        Some(rootfs) => enter(rootfs, php_ini),
        None if wanted.pid => mount_proc("namespaces/pid"),
        None => Ok(()),
    }
}

fn enter(rootfs: &Rootfs, php_ini: Option<&Path>) -> Result<(), Problem> {
    let path = &rootfs.path;
    let failed = |doing: &str| problem("rootfs", format!("{}: {doing}", path.display()));
    let mut outside = Vec::new();
    for source in sources(rootfs.language_deps, php_ini) {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, &source, flags)
            .map_err(problem("automount/language_deps", format!("{} cannot be taken along", source.display())))?;
        outside.push((source, tree));
    }
    mount_bind_recursive(path, path).map_err(failed("it cannot be mounted"))?;
    rustix::process::chdir(path).map_err(failed("it cannot be entered"))?;
    // The old root is on top of the new one then, as ".", until it is unmounted.
    rustix::process::pivot_root(".", ".").map_err(failed("it cannot become the root directory"))?;
    if rootfs.tmpfs {
        make_folder(Path::new("/tmp"))
            .and_then(|()| {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                Ok(mount("tmpfs", "/tmp", "tmpfs", flags, c"size=10%,mode=1777")?)
            })
            .map_err(problem("automount/tmpfs", "/tmp cannot be mounted"))?;
    }
    // What comes from outside may be below /tmp, too.
    for (target, tree) in outside {
        place(&target, &tree)
            .map_err(problem("automount/language_deps", format!("{} cannot be mounted", target.display())))?;
    }
    if rootfs.procfs {
        // While the old /proc is still there: without root, the kernel wants to see that it hides nothing.
        mount_proc("automount/procfs")?;
    }
    unmount(".", UnmountFlags::DETACH).map_err(failed("the old root directory cannot be left"))?;
    rustix::process::chdir("/").map_err(failed("it cannot be entered"))
}

fn mount_proc(option: &'static str) -> Result<(), Problem> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    make_folder(Path::new("/proc"))
        .and_then(|()| Ok(mount("proc", "/proc", "proc", flags, None)?))
        .map_err(problem(option, "/proc cannot be mounted"))
}

fn place(target: &Path, tree: &OwnedFd) -> io::Result<()> {
    let file = rustix::fs::fstat(tree)?;
    if rustix::fs::FileType::from_raw_mode(file.st_mode).is_dir() {
        make_folder(target)?;
    } else {
        target.parent().map_or(Ok(()), make_folder)?;
        if target.symlink_metadata().is_err() {
            OpenOptions::new().write(true).create_new(true).open(target)?;
        }
    }
    move_mount(tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(mount_remount(target, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, c"")?)
}

fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() { Ok(()) } else { std::fs::create_dir_all(path) }
}

/// What is mounted: each once, and nothing that is below another one.
fn sources(language_deps: bool, php_ini: Option<&Path>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    if language_deps {
        // SAFETY: string literals.
        let built_in =
            unsafe { [sapi::howdah_php_extension_dir(), sapi::howdah_php_ini_dir()].map(|at| CStr::from_ptr(at)) };
        let [extensions, ini] = built_in.map(|text| PathBuf::from(text.to_string_lossy().into_owned()));
        // Debian: /etc/php/8.2 has a folder for each SAPI, of links to mods-available beside them.
        let ini = if ini.starts_with("/etc/php") { ini.parent().map_or(ini.clone(), Path::to_owned) } else { ini };
        all.extend([extensions, ini]);
        all.extend(SHARED.map(PathBuf::from));
        all.extend(library_folders(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default()));
    }
    all.extend(php_ini.map(Path::to_owned));
    all.retain(|path| path.exists() && !TOO_MUCH.iter().any(|too_much| path == Path::new(too_much)));
    all.sort();
    all.dedup();
    let everything = all.clone();
    all.retain(|path| !everything.iter().any(|other| other != path && path.starts_with(other)));
    all
}

/// Where the libraries are that are loaded: there an extension finds its own.
fn library_folders(maps: &str) -> Vec<PathBuf> {
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let libraries = files.filter(|file| file.to_string_lossy().contains(".so"));
    libraries.filter_map(|library| library.parent().map(Path::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_where_the_loaded_ones_are() {
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
    fn what_is_below_another_mount_is_not_mounted_again() {
        assert_eq!(sources(false, None), Vec::<PathBuf>::new());
        assert_eq!(sources(false, Some(Path::new("/etc/passwd"))), [PathBuf::from("/etc/passwd")]);
        let all = sources(true, None);
        for path in &all {
            assert!(path.is_absolute() && path.exists(), "{path:?}");
            assert!(!all.iter().any(|other| other != path && path.starts_with(other)), "{path:?} of {all:?}");
        }
    }
}
