//! The messages to the supervisor.
//!
//! No thread of the router waits for the supervisor, which may be busy with a disk for seconds: messages go into a queue,
//! and a thread of its own sends them. No message in the queue is lost while the supervisor lives; the router exits with
//! it. A load report that is longer than a message is sent in parts. A message that fails for another reason is logged as
//! an error, once a minute.

use crate::report::{AbortOnPanic, OncePerMinute};
use howdah_protocol::messages::router::FromRouter;
use howdah_protocol::messages::router_load::LoadParts;
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
            let failures = OncePerMinute::new();
            for message in messages {
                deliver(&socket, message, &failures);
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

/// Sends a message, in parts if it is a load report that is too long.
fn deliver(socket: &ControlSocket, message: FromRouter, failures: &OncePerMinute) {
    let error = match send(socket, &message) {
        Ok(()) => return,
        Err(error) => error,
    };
    match message {
        FromRouter::Load(load) if error.kind() == io::ErrorKind::InvalidInput => {
            let LoadParts { parts, left_out, .. } = LoadParts::of(load);
            if left_out > 0 && failures.is_due("load") {
                tracing::error!(
                    entries = left_out,
                    "the load report is too long; `howdah status` and the metrics show the rest of it as 0"
                );
            }
            for message in parts.into_iter().map(FromRouter::Load) {
                if let Err(error) = send(socket, &message) {
                    log_failure(&error, &message, failures);
                }
            }
        }
        message => log_failure(&error, &message, failures),
    }
}

fn log_failure(error: &io::Error, message: &FromRouter, failures: &OncePerMinute) {
    if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
        return tracing::debug!(%error, "the supervisor is gone");
    }
    let text = format!("{message:?}");
    let name = text.split(|other: char| !other.is_alphanumeric()).next().unwrap_or_default();
    if failures.is_due(name) {
        tracing::error!(%error, message = name, "cannot send a message to the supervisor; the message is lost");
    }
}

/// Waits until the socket has room, or the supervisor is gone.
fn send(socket: &ControlSocket, message: &FromRouter) -> io::Result<()> {
    loop {
        match socket.send(message, &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::messages::router::{FastCgiServerLoad, RouterLoad};
    use howdah_protocol::messages::router_load::ArrivingLoad;
    use std::collections::BTreeMap;
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

    #[test]
    fn a_load_report_of_a_thousand_servers_arrives_and_delays_no_other_message() {
        let (supervisor, router) = ControlSocket::pair().expect("sockets");
        let router = SupervisorLink::new(Arc::new(router)).expect("a thread");
        let server = FastCgiServerLoad { connections: 1, idle: 1, trouble: Some("x".repeat(200)) };
        let servers = |id: u64| BTreeMap::from([(format!("unix:/run/{id}.sock"), server.clone())]);
        let load = RouterLoad {
            requests_total: 7,
            requests_active: (0..1000).map(|id| (id, 1)).collect(),
            fastcgi_servers: (0..1000).map(|id| (id, servers(id))).collect(),
            ..RouterLoad::default()
        };
        router.send(&FromRouter::Load(load.clone()));
        // Longer than a message, and not a load report: it is lost.
        router.send(&FromRouter::Rejected { version: 1, reason: "x".repeat(100_000) });
        router.send(&FromRouter::Load(RouterLoad::default()));
        let (mut arriving, mut reports, mut parts) = (ArrivingLoad::default(), Vec::new(), 0);
        while reports.len() < 2 {
            match supervisor.receive::<FromRouter>() {
                Ok(Some(FromRouter::Load(part))) => {
                    parts += 1;
                    reports.extend(arriving.add(part));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
        assert!(parts > 3 && reports == [load, RouterLoad::default()], "{parts}");
    }
}
