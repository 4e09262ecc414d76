//! The control sockets between the supervisor and its children: JSON messages with descriptors.
//!
//! There is one `SOCK_SEQPACKET` pair for each child. A message is one packet of at most [`MESSAGE_BYTES`]; an end of
//! file means that the other side is dead. A message of the supervisor may be longer: its text is then in a memfd, the
//! first of the descriptors. The supervisor accepts no descriptor from a child: a read of it could block without end,
//! and so could its end. The sockets do not block: both sides wait with poll(2) or in an event loop.
//!
//! If too few descriptors are free for those of a message, the kernel cuts them off, and a part of a pair of pipes would
//! look like a connection. Such a message is an error ([`CutOff::is`]). A child receives nothing of it: the message
//! stays in the socket until descriptors are free.

use crate::sockets::descriptor_reserve::{CutOff, DescriptorReserve};
use crate::sockets::refused_descriptors::close_received;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The longest message, in bytes.
pub const MESSAGE_BYTES: usize = 64 * 1024;
/// The most descriptors that go with one message (the kernel's `SCM_MAX_FD`).
pub const MESSAGE_DESCRIPTORS: usize = 253;
/// Replaces a text that is too long. It is not JSON.
const IN_FIRST_DESCRIPTOR: &[u8] = b"\0";

/// One end of a control socket.
#[derive(Debug)]
pub struct ControlSocket {
    fd: OwnedFd,
}

// === impl ControlSocket ===

impl ControlSocket {
    /// Makes both ends. They are closed on exec.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn pair() -> io::Result<(ControlSocket, ControlSocket)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok((ControlSocket { fd: a }, ControlSocket { fd: b }))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `WouldBlock` when the other side does not read; `BrokenPipe` when it is dead; `InvalidInput` when the message is
    /// too long.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_text(&serde_json::to_vec(message).map_err(io::Error::other)?, descriptors)
    }

    fn send_text(&self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if text.len() > MESSAGE_BYTES || descriptors.len() > MESSAGE_DESCRIPTORS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a control message is too long"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        rustix::net::sendmsg(&self.fd, &[IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message of any length, for [`Self::receive_long`].
    ///
    /// # Errors
    /// The errors of [`Self::send`], and when there is no memory or no descriptor for it.
    pub fn send_long(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message).map_err(io::Error::other)?;
        if text.len() <= MESSAGE_BYTES {
            return self.send_text(&text, descriptors);
        }
        let mut file = File::from(rustix::fs::memfd_create("howdah-message", MemfdFlags::CLOEXEC)?);
        file.write_all(&text)?;
        let all: Vec<_> = std::iter::once(file.as_fd()).chain(descriptors.iter().copied()).collect();
        self.send_text(IN_FIRST_DESCRIPTOR, &all)
    }

    /// Receives a message of any length from a sender that is trusted.
    ///
    /// # Errors
    /// The errors of [`Self::receive`]. After one for which [`CutOff::is`] is true, the message can be received again.
    pub fn receive_long<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let Some((mut text, mut descriptors)) = self.receive_text(RecvFlags::PEEK)? else { return Ok(None) };
        // The message is whole. Without room for descriptors, the kernel drops its own references to them.
        match rustix::net::recv(&self.fd, &mut [0; 1], RecvFlags::empty()) {
            Ok(_) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if text == IN_FIRST_DESCRIPTOR && !descriptors.is_empty() {
            let mut file = File::from(descriptors.remove(0));
            text.clear();
            file.rewind()?;
            file.read_to_end(&mut text)?;
        }
        Ok(Some((serde_json::from_slice(&text).map_err(io::Error::other)?, descriptors)))
    }

    /// Waits for a message of any length from a sender that is trusted; `Ok(None)` when the other side is dead.
    ///
    /// # Errors
    /// The errors of [`Self::receive`], but for the ones that only mean that no message has come.
    pub fn wait_for_long<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        self.wait_for(|| self.receive_long())
    }

    /// The same for a process with a reserve of descriptors.
    ///
    /// # Errors
    /// As for [`Self::wait_for_long`].
    pub fn wait_for_long_with<T: DeserializeOwned>(
        &self,
        reserve: &DescriptorReserve,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        self.wait_for(|| reserve.open(|| self.receive_long()))
    }

    fn wait_for<T>(&self, receive: impl Fn() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
        loop {
            match receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Receives a message from a sender that is not trusted; `Ok(None)` when the other side is dead.
    ///
    /// # Errors
    /// `WouldBlock` when there is no message. Other kinds when the message is not a `T`, or has descriptors.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let Some((text, descriptors)) = self.receive_text(RecvFlags::empty())? else { return Ok(None) };
        if !descriptors.is_empty() {
            close_received(descriptors);
            return Err(io::Error::other("it has descriptors"));
        }
        serde_json::from_slice(&text).map(Some).map_err(io::Error::other)
    }

    fn receive_text(&self, flags: RecvFlags) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut text = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(&self.fd, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags);
        let (len, is_cut_off) = match received {
            Ok(message) => (message.bytes, message.flags.contains(ReturnFlags::CTRUNC)),
            Err(Errno::CONNRESET) => (0, false),
            Err(error) => return Err(error.into()),
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        if is_cut_off {
            // A trusted sender's message is still in the socket, with all of them.
            if !flags.contains(RecvFlags::PEEK) {
                close_received(descriptors);
            }
            return Err(io::Error::other(CutOff));
        }
        if len == 0 {
            // The other side is dead, or it sent an empty message, which may have descriptors, too.
            if !descriptors.is_empty() {
                close_received(descriptors);
            }
            return Ok(None);
        }
        text.truncate(len);
        Ok(Some((text, descriptors)))
    }
}

impl From<OwnedFd> for ControlSocket {
    fn from(fd: OwnedFd) -> Self {
        ControlSocket { fd }
    }
}

impl From<ControlSocket> for OwnedFd {
    fn from(socket: ControlSocket) -> OwnedFd {
        socket.fd
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for ControlSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::refused_descriptors::close_elsewhere;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn a_message_of_any_length_arrives_from_a_trusted_sender() {
        let (a, b) = ControlSocket::pair().unwrap();
        let long = "x".repeat(3 * MESSAGE_BYTES);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(a.send(&long, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        a.send_long(&long, &[file.as_fd()]).unwrap();
        a.send_long(&"short", &[]).unwrap();
        let (text, descriptors) = b.receive_long::<String>().unwrap().unwrap();
        assert!(text == long && descriptors.len() == 1);
        assert_eq!(b.receive_long::<String>().unwrap().unwrap().0, "short");
        a.send_long(&long, &[]).unwrap();
        assert!(b.receive::<String>().is_err(), "a sender that is not trusted can't send a long message");
    }

    #[test]
    fn messages_keep_their_bounds_and_descriptors() {
        let (a, b) = ControlSocket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        a.send(&"one", &[]).unwrap();
        a.send(&"two", &[file.as_fd(), file.as_fd()]).unwrap();
        assert_eq!(b.receive::<String>().unwrap().unwrap(), "one");
        let (text, descriptors) = b.receive_long::<String>().unwrap().unwrap();
        assert_eq!((text.as_str(), descriptors.len()), ("two", 2));
        assert_eq!(b.receive::<String>().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert!(b.receive::<String>().unwrap().is_none());
    }

    /// A connection whose end waits for this time, because its peer reads nothing.
    fn lingering(time: Duration) -> (TcpListener, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(time)).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65536]).is_ok() {}
        (listener, stream.into())
    }

    #[test]
    fn a_descriptor_whose_end_takes_long_does_not_block_the_receiver() {
        const LONG: Duration = Duration::from_secs(60);
        let (a, b) = ControlSocket::pair().unwrap();
        let (_listener, first) = lingering(LONG);
        let (_other_listener, second) = lingering(LONG);
        let began = Instant::now();
        a.send(&"one", &[first.as_fd()]).unwrap();
        // The receiver has the last reference. (Kernels that refuse descriptors are asked elsewhere.)
        close_elsewhere(first);
        assert!(b.receive::<String>().unwrap_err().to_string().contains("descriptors"));
        let (_third_listener, third) = lingering(LONG);
        a.send_text(b"", &[third.as_fd()]).unwrap();
        close_elsewhere(third);
        assert!(b.receive::<String>().unwrap().is_none(), "an empty message");
        a.send(&"unread", &[second.as_fd()]).unwrap();
        close_elsewhere(second);
        close_elsewhere(b);
        assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    }
}
