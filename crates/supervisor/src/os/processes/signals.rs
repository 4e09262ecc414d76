//! The signals that the supervisor receives.

use std::io;
use std::task::{Context, Poll};
use tokio::signal::unix::{self, SignalKind};

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGCHLD: a child may be dead.
    Reap,
    /// SIGTERM, SIGQUIT: drain the requests under way, then exit.
    Drain,
    /// SIGINT: exit.
    Quit,
    /// SIGUSR1: reopen the logs.
    ReopenLogs,
    /// SIGHUP: the terminal is gone, if howdah had one.
    HangUp,
    /// SIGUSR2: do nothing. By default it would kill the process.
    Nothing,
}

/// The streams of all signals.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(SignalRequest, unix::Signal)>,
}

// === impl Signals ===

impl Signals {
    /// Receives the signals from now on.
    pub fn listen() -> io::Result<Signals> {
        let kinds = [
            (SignalRequest::Reap, SignalKind::child()),
            (SignalRequest::Quit, SignalKind::interrupt()),
            (SignalRequest::Drain, SignalKind::terminate()),
            (SignalRequest::Drain, SignalKind::quit()),
            (SignalRequest::ReopenLogs, SignalKind::user_defined1()),
            (SignalRequest::HangUp, SignalKind::hangup()),
            (SignalRequest::Nothing, SignalKind::user_defined2()),
        ];
        let streams = kinds.into_iter().map(|(request, kind)| Ok((request, unix::signal(kind)?)));
        Ok(Signals { streams: streams.collect::<io::Result<_>>()? })
    }

    /// The next request.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<SignalRequest> {
        for (request, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(*request);
            }
        }
        Poll::Pending
    }
}
