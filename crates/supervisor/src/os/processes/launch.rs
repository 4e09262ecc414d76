//! Starts programs that are not howdah's own: a copy of this executable, the [launcher](crate::launcher), gets an order,
//! drops its privileges and becomes the program. The supervisor cannot do that between fork and exec without unsafe code.
//!
//! Such a program leads a process group, and is killed when the supervisor dies. An order that cannot be sent, or a
//! control group that does not admit the process, is an error, and no process is left.

use crate::os::cgroup::Group;
use crate::os::processes::process;
use crate::os::processes::{reap, spawn};
use howdah_protocol::messages::launch::LaunchOrder;
use rustix::process::{Pid, Signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The standard streams and the resources of a program.
#[derive(Debug)]
pub struct LaunchResources<'a> {
    /// Its standard input; `None`: it is empty.
    pub stdin: Option<OwnedFd>,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
    /// Its listening socket, for `LISTEN_FDS`.
    pub socket: Option<&'a OwnedFd>,
    /// Its control group.
    pub cgroup: Option<&'a Group>,
}

/// Starts a program.
///
/// # Errors
/// With the reason.
pub fn launch(order: &LaunchOrder, resources: LaunchResources<'_>) -> io::Result<Pid> {
    let LaunchResources { stdin, stdout, stderr, socket, cgroup } = resources;
    let (pid, control) = spawn::launcher(stdin, stdout, stderr)?;
    let descriptors: Vec<_> = socket.iter().map(|socket| socket.as_fd()).collect();
    let admitted = cgroup.map_or(Ok(()), |cgroup| cgroup.admit(pid));
    let admitted = admitted.map_err(|problem| io::Error::other(format!("isolation/cgroup/path: {problem}")));
    // The program starts when it is in its group.
    let ordered = admitted.and_then(|()| control.send_long(order, &descriptors));
    if let Err(error) = ordered {
        reap::kill(pid);
        return Err(error);
    }
    Ok(pid)
}

/// Kills the processes of a group whose leader is dead and reaped. A process of the group that is our child, because we
/// adopted it, keeps the group's number from being given to other processes.
pub fn kill_orphaned_group(group: Pid) {
    if process::has_child_in(group) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}
