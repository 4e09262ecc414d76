//! A child's own session. Code of an application runs in it, as another user, so it must not keep what belongs to the
//! user who started howdah.
//!
//! - The terminal: a process of its session can read what root types there, and type for root (TIOCSTI).
//! - The keys of the session (keyrings(7)), such as Kerberos tickets: a process has them whatever its user is.

#![allow(unsafe_code)]

use nix::libc;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `KEYCTL_JOIN_SESSION_KEYRING` of keyctl(2).
const JOIN_SESSION_KEYRING: libc::c_int = 1;

/// The command's process will lead a session and a process group of its own, without a terminal and without keys.
pub fn begin_session(command: &mut Command) {
    // SAFETY: the closure runs in the forked child, where only functions that neither lock nor allocate may be called. Both
    // only make system calls.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            join_new_keyring()
        });
    }
}

/// Without keyrings, or where a container forbids the call, nothing is to be done: the application cannot make it, either. A user
/// other than root, who has few keyrings, shares them with the child anyway.
fn join_new_keyring() -> io::Result<()> {
    // SAFETY: keyctl(2) with a null pointer as the name makes an anonymous keyring, and accesses no memory of ours.
    let keyring = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    if keyring >= 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_leads_a_session_and_a_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "cut -d' ' -f1,5,6,7 /proc/$$/stat"]);
        begin_session(&mut command);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let ids: Vec<&str> = output.split_whitespace().collect();
        let [pid, group, session, terminal] = ids[..] else { panic!("{ids:?}") };
        assert!(pid == group && pid == session && terminal == "0", "{ids:?}");
    }
}
