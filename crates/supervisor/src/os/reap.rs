//! The death of processes: of our own children, and of their orphans, which the kernel gives to us.

use howdah_protocol::process_end::ProcessEnd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::io;
use std::time::Duration;

/// How long a child may go on after it has closed its control socket.
pub const CLOSED_GRACE: Duration = Duration::from_secs(2);

/// From now on the orphans of our descendants become our children, so that none of them stays a zombie, and a worker
/// whose prototype died is still ours to watch.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Reaps one dead child, if there is one.
pub fn reap() -> Option<(Pid, ProcessEnd)> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(end) = ProcessEnd::of(status) {
                    return Some((pid, end));
                }
            }
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Kills a child. One that has been reaped is left alone: its number may be somebody else's.
pub fn kill(pid: Pid) {
    if is_child(pid) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Kills a prototype with all that it forked. Its group keeps its number for as long as it has not been reaped.
pub fn kill_group(pid: Pid, group: Pid) {
    if is_child(pid) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        kill(pid);
    }
}

fn is_child(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(pid), options).is_ok()
}
