//! The control sockets between the supervisor and its children: JSON messages with descriptors.
//!
//! One `SOCK_SEQPACKET` pair for each child: a message is one packet, of at most [`MESSAGE_BYTES`], and an end of file
//! is the other side's death. Text that may be longer travels as a descriptor. The sockets do not block: both sides
//! wait with poll(2) or in an event loop.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The longest message, in bytes.
pub const MESSAGE_BYTES: usize = 64 * 1024;
/// The most descriptors that go with one message (the kernel's `SCM_MAX_FD`).
pub const MESSAGE_DESCRIPTORS: usize = 253;

/// One end of a control socket.
#[derive(Debug)]
pub struct ControlSocket {
    fd: OwnedFd,
}

// === impl ControlSocket ===

impl ControlSocket {
    /// Two ends. Both are closed on exec.
    ///
    /// # Errors
    /// When there are no descriptors left.
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
    /// `WouldBlock` when the other side does not read; `BrokenPipe` when it is gone; `InvalidInput` when the message is
    /// too long.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message).map_err(io::Error::other)?;
        if text.len() > MESSAGE_BYTES || descriptors.len() > MESSAGE_DESCRIPTORS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a control message is too long"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        rustix::net::sendmsg(&self.fd, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a message; `Ok(None)` when the other side is gone.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` when it is not such a message.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut text = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received =
            rustix::net::recvmsg(&self.fd, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let len = match received {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        if len == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let message = serde_json::from_slice(&text[..len]).map_err(io::Error::other)?;
        Ok(Some((message, descriptors)))
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

/// Takes the descriptor that the parent left for this process at a known number, once, at its start.
///
/// # Errors
/// When there is none.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: only asks about the number; nothing is owned yet.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open (just asked), and the process was started with it for this very purpose: nobody else owns it.
    Ok(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_descriptors() {
        let (a, b) = ControlSocket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        a.send(&"one", &[]).unwrap();
        a.send(&"two", &[file.as_fd(), file.as_fd()]).unwrap();
        assert_eq!(b.receive::<String>().unwrap().unwrap().0, "one");
        let (text, descriptors) = b.receive::<String>().unwrap().unwrap();
        assert_eq!((text.as_str(), descriptors.len()), ("two", 2));
        assert_eq!(b.receive::<String>().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert!(b.receive::<String>().unwrap().is_none());
    }
}
