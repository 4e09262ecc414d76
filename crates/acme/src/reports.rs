//! The results, on their way to the supervisor.

use howdah_protocol::messages::acme::FromAcme;
use howdah_protocol::sockets::control_socket::ControlSocket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The way to the supervisor.
#[derive(Clone)]
pub struct Reports {
    socket: Arc<ControlSocket>,
}

// === impl Reports ===

impl Reports {
    /// Over this socket.
    pub fn to(socket: Arc<ControlSocket>) -> Reports {
        Reports { socket }
    }

    /// Sends a message, and waits while the supervisor does not read. `false` if it cannot be sent: it is too long.
    pub fn send(&self, message: &FromAcme) -> bool {
        loop {
            match self.socket.send(message, &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::error!(%error, "a result cannot be sent to the supervisor");
                    return false;
                }
                Ok(()) => return true,
            }
        }
    }
}
