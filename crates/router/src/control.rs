//! What the router tells the supervisor.

use howdah_channel::control::ControlSocket;
use howdah_channel::lifecycle::FromRouter;
use nix::poll::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The way to the supervisor, for every thread.
#[derive(Clone, Debug)]
pub struct Supervisor {
    socket: Arc<ControlSocket>,
}

/// Tells the supervisor once it is dropped, by whoever holds it last.
#[derive(Debug)]
pub struct TellOnDrop {
    supervisor: Supervisor,
    message: Option<FromRouter>,
}

/// How long the supervisor may leave its socket full, in milliseconds: it is a loop that never waits for us.
const PATIENCE_MILLISECONDS: u16 = 5000;

// === impl Supervisor ===

impl Supervisor {
    /// Talks over this socket.
    pub fn new(socket: Arc<ControlSocket>) -> Supervisor {
        Supervisor { socket }
    }

    /// Tells it. Nothing is lost while the supervisor lives; the router ends with it.
    pub fn tell(&self, message: &FromRouter) {
        loop {
            match self.socket.send(message, &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let waited =
                        poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)], PATIENCE_MILLISECONDS);
                    if waited == Ok(0) {
                        tracing::error!(?message, "the supervisor does not listen; it is not told");
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return tracing::debug!(%error, ?message, "the supervisor is gone"),
                Ok(()) => return,
            }
        }
    }

    /// A message for the end of something.
    pub fn tell_on_drop(&self, message: FromRouter) -> TellOnDrop {
        TellOnDrop { supervisor: self.clone(), message: Some(message) }
    }
}

impl Drop for TellOnDrop {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.supervisor.tell(&message);
        }
    }
}
