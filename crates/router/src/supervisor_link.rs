//! What the router tells the supervisor.
//!
//! Nobody here waits for it: the supervisor may be busy with a disk for seconds. What it is told goes into a queue, and a
//! thread of its own sends it. Nothing in the queue is lost while the supervisor lives; the router ends with it.

use howdah_protocol::control_socket::ControlSocket;
use howdah_protocol::router_messages::FromRouter;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// The way to the supervisor, for every thread.
#[derive(Clone, Debug)]
pub struct Supervisor {
    queue: mpsc::Sender<FromRouter>,
    /// How many messages were not sent yet.
    waiting: Arc<AtomicUsize>,
}

/// Tells the supervisor once it is dropped, by whoever holds it last.
#[derive(Debug)]
pub struct TellOnDrop {
    supervisor: Supervisor,
    message: Option<FromRouter>,
}

// === impl Supervisor ===

impl Supervisor {
    /// Talks over this socket.
    ///
    /// # Errors
    /// When there cannot be another thread.
    pub fn new(socket: Arc<ControlSocket>) -> io::Result<Supervisor> {
        let (queue, messages) = mpsc::channel::<FromRouter>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        std::thread::Builder::new().name("to the supervisor".to_owned()).spawn(move || {
            for message in messages {
                send(&socket, &message);
                left.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Supervisor { queue, waiting })
    }

    /// Tells it, soon. What is true only now (that there are too few workers) is not said late: it is left out if the
    /// supervisor has not heard what came before.
    pub fn tell(&self, message: &FromRouter) {
        if matches!(message, FromRouter::WorkersWanted { .. }) && self.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The thread takes messages for as long as somebody can send any.
        let _ = self.queue.send(message.clone());
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

/// Waits until the supervisor has room, or is gone.
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
    fn nobody_waits_for_a_supervisor_that_is_busy_and_it_hears_all_but_old_news() {
        const MESSAGES: u64 = 20_000;
        let (supervisor, router) = ControlSocket::pair().expect("sockets");
        let router = Supervisor::new(Arc::new(router)).expect("a thread");
        let began = Instant::now();
        for version in 0..MESSAGES {
            router.tell(&FromRouter::Configured { version });
        }
        router.tell(&FromRouter::WorkersWanted { generation: 1, waiting: 1 });
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let mut expected = 0;
        while expected < MESSAGES {
            match supervisor.receive::<FromRouter>() {
                Ok(Some((FromRouter::Configured { version }, _))) => {
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
        let nothing = supervisor.receive::<FromRouter>().expect_err("what was wanting then");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
