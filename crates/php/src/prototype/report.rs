//! Messages from the prototype to the supervisor.

use howdah_protocol::messages::prototype::FromPrototype;
use howdah_protocol::sockets::control_socket::ControlSocket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;

/// Sends a message, and waits for room: a living supervisor always reads. If it is dead, the message is dropped: this
/// process dies, too.
pub fn send(control: &ControlSocket, message: &FromPrototype) {
    while let Err(error) = control.send(message, &[]) {
        if error.kind() != io::ErrorKind::WouldBlock {
            return;
        }
        let _ = poll(&mut [PollFd::new(control.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
    }
}
