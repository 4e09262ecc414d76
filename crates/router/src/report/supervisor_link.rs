//! The messages to the supervisor.
//!
//! No thread of the router waits for the supervisor, which may be busy with a disk for seconds: messages go into a queue,
//! and a thread of its own sends them. No message in the queue is lost while the supervisor lives; the router exits with
//! it.

use crate::report::AbortOnPanic;
use howdah_protocol::messages::router::FromRouter;
use howdah_protocol::sockets::control_socket::ControlSocket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// The way to the supervisor, for every thread.
#[derive(Clone, Debug)]
pub struct SupervisorLink {
    queue: mpsc::Sender<FromRouter>,
    /// How many messages were not sent yet.
    waiting: Arc<AtomicUsize>,
}

/// Sends a message to the supervisor when its last holder drops it.
#[derive(Debug)]
pub struct ReportOnDrop {
    supervisor: SupervisorLink,
    message: Option<FromRouter>,
}

// === impl SupervisorLink ===

impl SupervisorLink {
    /// A link over this socket.
    ///
    /// # Errors
    /// When its thread cannot be started.
    pub fn new(socket: Arc<ControlSocket>) -> io::Result<SupervisorLink> {
        let (queue, messages) = mpsc::channel::<FromRouter>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        std::thread::Builder::new().name("to the supervisor".to_owned()).spawn(move || {
            let _abort = AbortOnPanic;
            for message in messages {
                send(&socket, &message);
                left.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(SupervisorLink { queue, waiting })
    }

    /// Queues a message. A report that is true only now (too few workers) is left out while older messages wait.
    pub fn send(&self, message: &FromRouter) {
        if matches!(message, FromRouter::WorkersWanted { .. }) && self.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The thread receives as long as a sender exists.
        let _ = self.queue.send(message.clone());
    }

    /// A message that is sent at the end of something.
    pub fn send_on_drop(&self, message: FromRouter) -> ReportOnDrop {
        ReportOnDrop { supervisor: self.clone(), message: Some(message) }
    }
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.supervisor.send(&message);
        }
    }
}

/// Waits until the socket has room, or the supervisor is gone.
fn send(socket: &ControlSocket, message: &FromRouter) {
    loop {
        match socket.send(message, &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return tracing::debug!(%error, ?message, "the supervisor is gone"),
            Ok(()) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_supervisor_blocks_no_thread_and_receives_all_but_outdated_reports() {
        const MESSAGES: u64 = 20_000;
        let (supervisor, router) = ControlSocket::pair().expect("sockets");
        let router = SupervisorLink::new(Arc::new(router)).expect("a thread");
        let began = Instant::now();
        for version in 0..MESSAGES {
            router.send(&FromRouter::Configured { version });
        }
        router.send(&FromRouter::WorkersWanted { generation: 1, waiting: 1 });
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let mut expected = 0;
        while expected < MESSAGES {
            match supervisor.receive::<FromRouter>() {
                Ok(Some(FromRouter::Configured { version })) => {
                    assert_eq!(version, expected);
                    expected += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
        while router.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let nothing = supervisor.receive::<FromRouter>().expect_err("an outdated report");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
