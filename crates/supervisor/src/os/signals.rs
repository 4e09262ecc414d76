//! The signals that the supervisor hears.

use std::io;
use std::task::{Context, Poll};
use tokio::signal::unix::{self, SignalKind};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGCHLD: a child may be dead.
    Reap,
    /// SIGTERM, SIGQUIT: finish what is under way, then end.
    Drain,
    /// SIGINT: end.
    Quit,
    /// SIGUSR1: open the logs anew.
    ReopenLogs,
    /// SIGHUP: the terminal is gone, if there was one.
    HangUp,
    /// SIGUSR2: nothing; it must not end the process.
    Nothing,
}

/// All of them.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Request, unix::Signal)>,
}

// === impl Signals ===

impl Signals {
    /// Hears from now on.
    pub fn listen() -> io::Result<Signals> {
        let kinds = [
            (Request::Reap, SignalKind::child()),
            (Request::Quit, SignalKind::interrupt()),
            (Request::Drain, SignalKind::terminate()),
            (Request::Drain, SignalKind::quit()),
            (Request::ReopenLogs, SignalKind::user_defined1()),
            (Request::HangUp, SignalKind::hangup()),
            (Request::Nothing, SignalKind::user_defined2()),
        ];
        let streams = kinds.into_iter().map(|(request, kind)| Ok((request, unix::signal(kind)?)));
        Ok(Signals { streams: streams.collect::<io::Result<_>>()? })
    }

    /// The next one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Request> {
        for (request, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(*request);
            }
        }
        Poll::Pending
    }
}
