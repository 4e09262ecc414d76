//! The signals that the supervisor receives.

use std::io;
use std::task::{Context, Poll};
use tokio::signal::unix::{self, SignalKind};

/// The request that a signal of an operator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
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
    children: unix::Signal,
}

// === impl Signals ===

impl Signals {
    /// Receives the signals from now on.
    pub fn listen() -> io::Result<Signals> {
        let kinds = [
            (SignalRequest::Quit, SignalKind::interrupt()),
            (SignalRequest::Drain, SignalKind::terminate()),
            (SignalRequest::Drain, SignalKind::quit()),
            (SignalRequest::ReopenLogs, SignalKind::user_defined1()),
            (SignalRequest::HangUp, SignalKind::hangup()),
            (SignalRequest::Nothing, SignalKind::user_defined2()),
        ];
        let streams = kinds.into_iter().map(|(request, kind)| Ok((request, unix::signal(kind)?)));
        Ok(Signals { streams: streams.collect::<io::Result<_>>()?, children: unix::signal(SignalKind::child())? })
    }

    /// The next request of an operator.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<SignalRequest> {
        for (request, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(*request);
            }
        }
        Poll::Pending
    }

    /// SIGCHLD: a child may be dead.
    pub fn poll_child(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.children.poll_recv(cx).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::sockets::refused_descriptors::close_elsewhere;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
    use std::io::{IoSlice, Read, Write};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(1000);
    /// More than the threads and their queue take.
    const ENTRIES: usize = 200;

    /// A socket in whose queue is a connection whose end waits, the other end of the socket, and the peer.
    fn with_lingering(listener: &TcpListener) -> (UnixStream, UnixStream, TcpStream) {
        let mut connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sockopt::set_socket_linger(&connection, Some(LONG)).unwrap();
        sockopt::set_socket_send_buffer_size(&connection, 4096).unwrap();
        connection.set_nonblocking(true).unwrap();
        while connection.write(&[0; 1 << 16]).is_ok() {}
        let (a, b) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let attached = [connection.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&attached)));
        sendmsg(&a, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        a.set_nonblocking(true).unwrap();
        (a, b, listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn a_close_that_waits_is_interrupted_for_others() {
        let _signals = Signals::listen().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let began = Instant::now();
        let (mut open, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..ENTRIES {
            let (theirs, ours, peer) = with_lingering(&listener);
            peers.push(peer);
            close_elsewhere(ours);
            // Its end is noticed when a thread begins to close it.
            open.retain_mut(|socket: &mut UnixStream| {
                socket.read(&mut [0]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
            });
            open.push(theirs);
        }
        assert!(open.len() < ENTRIES / 2, "{} are open", open.len());
        assert!(began.elapsed() < LONG / 2);
    }
}
