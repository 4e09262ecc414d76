//! Confines the prototype, and with it everything that it forks, before it has read anything of the application.
//!
//! The kernel requires this order. A pid namespace needs a fork, and comes before the mount of `/proc`. Mounts and the
//! other root directory are made while the process still is root outside, so that no process inside, not even root of the
//! user namespace, can undo them. The user namespace follows, and then the namespaces that belong to it: network, host
//! name, control groups. Without root the user namespace comes first, because all other steps need its privileges.
//!
//! A failure is reported with the option's path, the step, and what to do; PHP is not started then.

#![allow(unsafe_code)] // forks

use super::problem::{Problem, problem};
use super::report::send;
use super::rootfs;
use howdah_protocol::messages::confinement::{Confinement, UserNamespace};
use howdah_protocol::messages::prototype::{FromPrototype, PrototypeBoot};
use howdah_protocol::sockets::control_socket::ControlSocket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, geteuid, getuid};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::PidfdFlags;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Enters the namespaces and the root directory of the boot message. With a pid namespace it returns in another process,
/// whose parent is the supervisor.
///
/// # Errors
/// A sentence for the operator.
pub fn enter(boot: &PrototypeBoot, control: &ControlSocket) -> Result<(), String> {
    let Some(wanted) = &boot.confinement else { return Ok(()) };
    confine(wanted, boot, control).map_err(|problem| format!("applications/{}/isolation/{problem}", boot.application))
}

/// Gives up the privileges of the user namespace, unless its root runs PHP, and the privileges that a program could gain.
/// Call it after the change of user.
///
/// # Errors
/// A sentence for the operator.
pub fn finish(boot: &PrototypeBoot) -> Result<(), String> {
    let Some(wanted) = &boot.confinement else { return Ok(()) };
    // Where root is not mapped, the kernel does not drop the capabilities of a process that changes its user.
    if wanted.users.is_some() && !getuid().is_root() {
        let none = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
            .map_err(|error| format!("cannot give up the privileges of the user namespace: {error}"))?;
    }
    if wanted.no_new_privs {
        nix::sys::prctl::set_no_new_privs().map_err(|error| {
            format!("applications/{}/isolation/new_privs: the kernel rejects it: {error}", boot.application)
        })?;
    }
    Ok(())
}

/// From now on this process is killed when the supervisor dies, which may be in another pid namespace.
///
/// # Errors
/// When it is dead already.
pub fn die_with(supervisor: &OwnedFd) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut watched = [PollFd::new(supervisor.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, PollTimeout::ZERO)? {
        0 => Ok(()),
        _ => Err(io::Error::other("the supervisor is gone")),
    }
}

fn confine(wanted: &Confinement, boot: &PrototypeBoot, control: &ControlSocket) -> Result<(), Problem> {
    let is_root = geteuid().is_root();
    if let Some(users) = wanted.users.as_ref().filter(|_| !is_root) {
        own_user(users)?;
    }
    if wanted.pid {
        become_first_process(control)?;
    }
    // Before /proc is replaced.
    let own_entry =
        rustix::fs::openat(CWD, "/proc/self", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let option = match (&wanted.rootfs, wanted.mount) {
        (Some(_), _) => Some("rootfs"),
        (None, true) => Some("namespaces/mount"),
        // Its /proc is to show its own processes.
        (None, false) if wanted.pid => Some("namespaces/pid"),
        (None, false) => None,
    };
    if let Some(option) = option {
        unshare(CloneFlags::CLONE_NEWNS, option)?;
        rootfs::arrange(wanted, boot.php_ini.as_deref(), is_root, option)?;
    }
    if let Some(users) = wanted.users.as_ref().filter(|_| is_root) {
        let own_entry = own_entry.map_err(problem("namespaces/credential", "/proc/self cannot be opened"))?;
        users_by_root(users, &own_entry)?;
        if wanted.mount {
            unshare(CloneFlags::CLONE_NEWNS, "namespaces/mount")?;
        }
    }
    for (is_wanted, flag, option) in [
        (wanted.network, CloneFlags::CLONE_NEWNET, "namespaces/network"),
        (wanted.uname, CloneFlags::CLONE_NEWUTS, "namespaces/uname"),
        (wanted.cgroup, CloneFlags::CLONE_NEWCGROUP, "namespaces/cgroup"),
    ] {
        if is_wanted {
            unshare(flag, option)?;
        }
    }
    Ok(())
}

fn unshare(flag: CloneFlags, option: &'static str) -> Result<(), Problem> {
    nix::sched::unshare(flag).map_err(problem(option, "a namespace of its own cannot be made"))
}

/// A new pid namespace contains only this process's children, and ends with the first of them. Therefore that child
/// continues as the prototype, and the supervisor, which adopts orphans, becomes its parent.
fn become_first_process(control: &ControlSocket) -> Result<(), Problem> {
    const OPTION: &str = "namespaces/pid";
    let before = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .map_err(problem(OPTION, "this process cannot be watched"))?;
    unshare(CloneFlags::CLONE_NEWPID, OPTION)?;
    // SAFETY: this process has one thread, so the child may do anything.
    match unsafe { fork() }.map_err(problem(OPTION, "the first process cannot be forked"))? {
        ForkResult::Parent { child } => {
            send(control, &FromPrototype::Moved { pid: child.as_raw() });
            // SAFETY: ends this process and nothing else: exit handlers belong to the child.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Child => {
            // A death signal that is set earlier would be for the death of the process that forked this one.
            let mut watched = [PollFd::new(before.as_fd(), PollFlags::POLLIN)];
            while poll(&mut watched, PollTimeout::NONE) == Err(Errno::EINTR) {}
            Ok(())
        }
    }
}

/// Enters a user namespace that knows one user, the present one: more is not allowed without root.
fn own_user(users: &UserNamespace) -> Result<(), Problem> {
    unshare(CloneFlags::CLONE_NEWUSER, "namespaces/credential")?;
    let write = |file: &str, text: &str| std::fs::write(format!("/proc/self/{file}"), text);
    write("setgroups", "deny").map_err(problem("namespaces/credential", "groups cannot be fixed"))?;
    write("uid_map", &users.uid_map).map_err(problem("uidmap", "the users cannot be mapped"))?;
    write("gid_map", &users.gid_map).map_err(problem("gidmap", "the groups cannot be mapped"))
}

/// Enters a user namespace with any users. Only root may write its maps, and only from outside: a child that stays there
/// does.
fn users_by_root(users: &UserNamespace, own_entry: &OwnedFd) -> Result<(), Problem> {
    const OPTION: &str = "namespaces/credential";
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(problem(OPTION, "there is no pipe for it"));
    let ((made, report_made), (answer, give_answer)) = (pipe()?, pipe()?);
    // SAFETY: this process has one thread, so the child may do anything.
    let child = match unsafe { fork() }.map_err(problem(OPTION, "its helper cannot be forked"))? {
        ForkResult::Child => {
            drop((report_made, answer));
            if File::from(made).read(&mut [0]).is_ok_and(|read| read == 1) {
                let _ = File::from(give_answer).write_all(&[map_from_outside(users, own_entry)]);
            }
            // SAFETY: ends this process and nothing else.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Parent { child } => child,
    };
    drop((made, give_answer));
    let result = unshare(CloneFlags::CLONE_NEWUSER, OPTION).and_then(|()| {
        let reported = File::from(report_made).write_all(&[0]);
        reported.map_err(problem(OPTION, "its helper is gone"))?;
        let mut failed = [0; 2];
        let len = File::from(answer).read(&mut failed).map_err(problem(OPTION, "its helper does not answer"))?;
        let errno = |code| io::Error::from_raw_os_error(i32::from(code));
        match (len, failed[0]) {
            (1, 0) => Ok(()),
            (1, code) if code & GROUPS == 0 => Err(problem("uidmap", "the users cannot be mapped")(errno(code))),
            (1, code) => Err(problem("gidmap", "the groups cannot be mapped")(errno(code & !GROUPS))),
            _ => Err(problem(OPTION, "its helper is gone")(errno(0))),
        }
    });
    // If the namespace was not made, the helper has seen the end of its pipe.
    while waitpid(child, None) == Err(Errno::EINTR) {}
    result
}

/// The groups failed, not the users. The error numbers of these writes are below 128.
const GROUPS: u8 = 128;

/// Writes the maps; returns 0, or the error number.
fn map_from_outside(users: &UserNamespace, own_entry: &OwnedFd) -> u8 {
    let write = |file: &str, text: &str| {
        let file = rustix::fs::openat(own_entry, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, text.as_bytes())
    };
    let code = |error: rustix::io::Errno| error.raw_os_error() as u8 & !GROUPS;
    if let Err(error) = write("uid_map", &users.uid_map) {
        return code(error);
    }
    write("gid_map", &users.gid_map).map_or_else(|error| code(error) | GROUPS, |_| 0)
}
