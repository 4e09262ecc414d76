//! Sockets for streams.

use howdah_protocol::sockets::refused_descriptors::refuse_descriptors;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;

/// A socket that does not block. A Unix socket refuses attached descriptors.
///
/// # Errors
/// Of socket(2).
pub(super) fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if family == AddressFamily::UNIX {
        refuse_descriptors(&socket);
    }
    Ok(socket)
}
