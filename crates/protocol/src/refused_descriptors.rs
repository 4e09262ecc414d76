//! Sockets whose peers cannot attach descriptors.
//!
//! A peer of a unix socket may attach descriptors to its bytes (SCM_RIGHTS). A reader that does not want them drops them
//! within its read, and a read that drops the last reference to a TCP socket with unsent data and SO_LINGER waits for the
//! time that the peer has chosen. Therefore each unix socket that reads from an untrusted peer refuses descriptors before it
//! listens or connects: its peers get EPERM. Accepted sockets inherit that.
//!
//! Linux has the option since 6.16. With an older kernel, descriptors arrive: the supervisor closes them, and sockets that may
//! hold some, on a thread of their own ([`close_elsewhere`]); `docs/isolation.md` states what is left.

use nix::libc;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetBool;
use std::os::fd::AsFd;

/// `SO_PASSRIGHTS` of asm-generic/socket.h.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Whether peers may attach descriptors.
#[derive(Clone, Copy, Debug)]
struct PassRights;

nix::setsockopt_impl!(PassRights, libc::SOL_SOCKET, SO_PASSRIGHTS, bool, SetBool);

/// Refuses descriptors that peers attach; `false` if the kernel cannot do that.
pub fn refuse_descriptors(socket: &impl AsFd) -> bool {
    PassRights.set(socket, &false).is_ok()
}

/// Closes descriptors that a peer has sent, or sockets in whose queues they may lie, without waiting for it.
pub fn close_elsewhere(descriptors: impl Send + 'static) {
    // If no thread can be started, the closure is dropped here.
    let _ = std::thread::Builder::new().name("close".to_owned()).spawn(move || drop(descriptors));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    };
    use std::io::{IoSlice, Read};
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn send_descriptor(stream: &impl AsFd) -> rustix::io::Result<usize> {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let attached = [file.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&attached)));
        rustix::net::sendmsg(stream, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::NOSIGNAL)
    }

    #[test]
    fn accepted_and_connected_sockets_refuse_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (_, unrelated) = UnixStream::pair().unwrap();
        if !refuse_descriptors(&unrelated) {
            return;
        }
        let listener = UnixListener::bind(&path).unwrap();
        assert!(refuse_descriptors(&listener));
        let client = UnixStream::connect(&path).unwrap();
        assert_eq!(send_descriptor(&client), Err(rustix::io::Errno::PERM));
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(send_descriptor(&client), Err(rustix::io::Errno::PERM));
        std::io::Write::write_all(&mut &client, b"y").unwrap();
        let mut byte = [0];
        accepted.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");

        let upstream = UnixListener::bind(folder.path().join("upstream")).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let connected: OwnedFd =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        assert!(refuse_descriptors(&connected));
        rustix::net::connect(&connected, &SocketAddrUnix::new(folder.path().join("upstream")).unwrap()).unwrap();
        let (server, _) = upstream.accept().unwrap();
        assert_eq!(send_descriptor(&server), Err(rustix::io::Errno::PERM));
    }
}
