//! Reaps dead children, and kills living ones. Orphans of the supervisor's descendants are its children too: the kernel
//! gives them to it.

use howdah_protocol::messages::process_end::ProcessEnd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::io;
use std::time::Duration;

/// How long a child may live after it has closed its control socket.
pub const CLOSED_GRACE: Duration = Duration::from_secs(2);
/// How many dead children are reaped before other events have their turn.
const MOST_AT_ONCE: usize = 64;

/// Makes the orphans of our descendants our children, from now on. None of them stays a zombie then, and a worker whose
/// prototype died can still be watched.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Reaps dead children, a part of them at a time: an application may leave orphans faster than they are reaped. Returns
/// whether there may be more, too.
pub fn reap_some() -> (Vec<(Pid, ProcessEnd)>, bool) {
    some_of(std::iter::from_fn(reap))
}

fn some_of<T>(dead: impl Iterator<Item = T>) -> (Vec<T>, bool) {
    let some: Vec<_> = dead.take(MOST_AT_ONCE).collect();
    let may_be_more = some.len() == MOST_AT_ONCE;
    (some, may_be_more)
}

fn reap() -> Option<(Pid, ProcessEnd)> {
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

/// Kills a child. A pid that is not a child's any more is left alone: another process may have it.
pub fn kill(pid: Pid) {
    if is_child(pid) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Kills a prototype with all processes that it forked. Its group keeps its number until the prototype is reaped.
pub fn kill_group(pid: Pid, group: Pid) {
    if is_child(pid) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        kill(pid);
    }
}

/// Asks a child, which leads a process group, and its group to exit.
pub fn terminate_group(leader: Pid) {
    if is_child(leader) {
        let _ = rustix::process::kill_process_group(leader, Signal::TERM);
    }
}

fn is_child(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(pid), options).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_children_without_end_are_reaped_in_parts() {
        let (some, may_be_more) = some_of(std::iter::repeat(()));
        assert!(some.len() == MOST_AT_ONCE && may_be_more);
        let mut dead = 0..MOST_AT_ONCE + 1;
        assert!(some_of(&mut dead).1);
        assert_eq!(some_of(&mut dead), (vec![MOST_AT_ONCE], false));
    }
}
