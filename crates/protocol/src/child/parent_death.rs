//! The death signal: a child is killed when its supervisor dies.

use crate::sockets::control_socket::ControlSocket;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use std::io;

/// From now on this process is killed when the supervisor at the other end of its control socket dies. Call it at the
/// start, and again after `Identity::assume`, because a change of user clears the signal.
///
/// # Errors
/// When the supervisor is dead already: its death sends no signal any more.
pub fn die_with_supervisor(control: &ControlSocket) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The peer of a socket pair is the process that made the pair.
    let supervisor = rustix::net::sockopt::socket_peercred(control)?.pid;
    if rustix::process::getppid() != Some(supervisor) {
        return Err(io::Error::other("the supervisor is gone"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_made_the_socket_must_be_the_parent() {
        let (ours, _theirs) = ControlSocket::pair().unwrap();
        // This process made the pair itself, and is not its own parent.
        assert!(die_with_supervisor(&ours).unwrap_err().to_string().contains("gone"));
        prctl::set_pdeathsig(None).unwrap();
    }
}
