//! The listening sockets. The supervisor opens them, because it may be root, and keeps them open as long as it runs, so
//! that no connection is refused while a router is replaced.
//!
//! An error is one sentence that names the address and what to do.

mod explain;
mod socket_file;
mod stream_socket;

pub use explain::ChosenBy;
pub use socket_file::SocketAccess;

use crate::os::system_error::error_text;
use howdah_config::Address;
use howdah_protocol::sockets::backlog::longest_backlog;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use socket_file::{FileId, SOCKET_MODE, SocketFile};
use socket2::{SockFilter, SockRef};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use stream_socket::stream_socket;

/// Only the owner may connect to the control API.
const CONTROL_MODE: u32 = 0o600;
/// The datagrams that wait in the kernel while the router is busy, or is replaced.
const UDP_BUFFER_BYTES: usize = 2 << 20;
/// Used if the kernel's limit cannot be read.
const DEFAULT_BACKLOG: i32 = 4096;

/// A BPF program for a listening TCP socket that drops new connections: packets with SYN and without ACK. Handshakes
/// that have begun are completed. The program sees each packet from the TCP header on.
///
/// Its user is a client that connects while its listener is removed or howdah shuts down. Without the filter a
/// connection that arrives between the router's last `accept` and the last `close` is reset after it was established,
/// perhaps with a request in it. Measured with three clients in a closed loop and 60 removals of a listener: 73 resets
/// without the filter, none with it. (`tests/control/test_changes.py` repeats this.) With the filter the client's
/// kernel repeats its SYN after a second, and the client is refused, or accepted by a server that listens there by
/// then.
const NO_NEW_HANDSHAKES: [SockFilter; 5] = [
    // Load byte 13 of the TCP header: the flags.
    SockFilter::new(0x30, 0, 0, 13),
    // Keep ACK (0x10) and SYN (0x02).
    SockFilter::new(0x54, 0, 0, 0x12),
    // SYN without ACK: skip one line.
    SockFilter::new(0x15, 1, 0, 0x02),
    // Accept the whole packet.
    SockFilter::new(0x06, 0, 0, u32::MAX),
    // Drop the packet.
    SockFilter::new(0x06, 0, 0, 0),
];

/// All listening sockets by number. A number is not reused.
#[derive(Debug, Default)]
pub struct Listeners {
    sockets: BTreeMap<u64, Socket>,
    last: u64,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// As it is configured.
    configured: Address,
    /// Where it listens, with the port that the kernel chose.
    address: Address,
    /// The listener beside which it is for QUIC; `None` for a listening socket.
    quic_of: Option<u64>,
    /// Removed when the socket is closed.
    file: Option<SocketFile>,
}

// === impl Listeners ===

impl Listeners {
    /// The socket with this address, if it is open already.
    pub fn find(&self, address: &Address) -> Option<u64> {
        let mut listening = self.sockets.iter().filter(|(_, socket)| socket.quic_of.is_none());
        listening.find(|(_, socket)| socket.configured == *address).map(|(id, _)| *id)
    }

    /// Opens a socket with this address. Clients can connect after [`Self::listen`]. Returns the socket's number.
    pub fn open(&mut self, address: &Address, chosen_by: ChosenBy) -> Result<u64, String> {
        let mode = if chosen_by == ChosenBy::Control { CONTROL_MODE } else { SOCKET_MODE };
        let opened = match address {
            Address::Tcp(address) => open_tcp(*address),
            Address::Unix(path) => open_unix(path, mode, self.socket_files()),
            Address::Abstract(name) => open_abstract(name),
        };
        let socket = opened.map_err(|error| self.refusal(address, 0, &error, chosen_by))?;
        self.last += 1;
        self.sockets.insert(self.last, socket);
        Ok(self.last)
    }

    /// The files of all Unix sockets.
    fn socket_files(&self) -> Vec<FileId> {
        self.sockets.values().filter_map(|socket| socket.file.as_ref().map(SocketFile::id)).collect()
    }

    /// The path of a Unix socket, as it is configured.
    pub fn unix_path(&self, id: u64) -> Option<String> {
        match &self.sockets.get(&id)?.configured {
            Address::Unix(path) => Some(path.to_string_lossy().into_owned()),
            _ => None,
        }
    }

    /// A number without a socket, in place of one that cannot be opened.
    pub fn absent(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether there is a socket with this number.
    pub fn is_open(&self, id: u64) -> bool {
        self.sockets.contains_key(&id)
    }

    /// The socket of QUIC beside this listener: UDP on the same address and port. It is opened if it is not open.
    pub fn find_or_open_quic(&mut self, listener: u64) -> Result<u64, String> {
        if let Some((id, _)) = self.sockets.iter().find(|(_, socket)| socket.quic_of == Some(listener)) {
            return Ok(*id);
        }
        let address = self.sockets.get(&listener).map(|socket| &socket.address);
        let Some(Address::Tcp(address)) = address else { return Err("HTTP/3 needs a port".to_owned()) };
        let opened = open_udp(*address);
        let fd = opened.map_err(|error| explain::explain_udp(*address, &error))?;
        let address = Address::Tcp(*address);
        self.last += 1;
        let configured = address.clone();
        self.sockets.insert(self.last, Socket { fd, configured, address, quic_of: Some(listener), file: None });
        Ok(self.last)
    }

    /// Our own listener that is in the way of this address: it has the same port, of all addresses or of this one.
    fn overlapping(&self, wanted: &Address, id: u64) -> Option<&Address> {
        let Address::Tcp(wanted) = wanted else { return None };
        let overlaps = |address: &&Address| match address {
            Address::Tcp(own) => {
                own.port() == wanted.port()
                    && own.is_ipv4() == wanted.is_ipv4()
                    && (own.ip().is_unspecified() || wanted.ip().is_unspecified() || own.ip() == wanted.ip())
            }
            _ => false,
        };
        let others = self.sockets.iter().filter(|(other, socket)| **other != id && socket.quic_of.is_none());
        others.map(|(_, socket)| &socket.address).find(overlaps)
    }

    /// Why the socket with this number cannot listen on this address; 0 is a socket that is not open yet.
    fn refusal(&self, address: &Address, id: u64, error: &io::Error, chosen_by: ChosenBy) -> String {
        match self.overlapping(address, id) {
            Some(own) if error.kind() == io::ErrorKind::AddrInUse => format!(
                "cannot listen on {address}: howdah itself listens on {own}; \
                 make two changes, the first without {own}"
            ),
            _ => explain::explain(address, error, chosen_by),
        }
    }

    /// Sets who may connect to the Unix socket with this number. Other sockets have no file.
    ///
    /// # Errors
    /// A sentence.
    pub fn set_access(&self, id: u64, access: SocketAccess) -> Result<(), String> {
        let Some(Socket { configured, file: Some(file), .. }) = self.sockets.get(&id) else { return Ok(()) };
        file.set_access(access).map_err(|error| {
            format!("the access to {configured} cannot be set: {}; choose another \"socket\"", error_text(&error))
        })
    }

    /// Lets clients connect from now on. At most `backlog` connections may wait, or as many as the kernel allows.
    pub fn listen(&self, id: u64, backlog: Option<u32>, chosen_by: ChosenBy) -> Result<(), String> {
        let backlog = backlog.map_or_else(default_backlog, to_kernel);
        let Some(socket) = self.sockets.get(&id) else { return Ok(()) };
        let address = &socket.configured;
        rustix::net::listen(&socket.fd, backlog).map_err(|error| self.refusal(address, id, &error.into(), chosen_by))
    }

    /// A copy of a socket, for a router.
    pub fn descriptor(&self, id: u64) -> io::Result<OwnedFd> {
        self.sockets.get(&id).ok_or(io::ErrorKind::NotFound)?.fd.try_clone()
    }

    /// The numbers and addresses of all listening sockets, with the ports that the kernel chose.
    pub fn addresses(&self) -> impl Iterator<Item = (u64, &Address)> {
        let listening = self.sockets.iter().filter(|(_, socket)| socket.quic_of.is_none());
        listening.map(|(id, socket)| (*id, &socket.address))
    }

    /// Stops new connections to all TCP listeners except these `ids`: the others are about to be closed. See
    /// [`NO_NEW_HANDSHAKES`].
    pub fn block_new_connections(&self, ids: &[u64]) {
        for (_, socket) in self.sockets.iter().filter(|(id, socket)| socket.is_tcp() && !ids.contains(id)) {
            if let Err(error) = SockRef::from(&socket.fd).attach_filter(&NO_NEW_HANDSHAKES) {
                // Some kernels allow it to root only.
                tracing::debug!(
                    %error,
                    address = %socket.address,
                    "cannot filter new connections; a client that connects while this listener is closed may be reset"
                );
            }
        }
    }

    /// Accepts new connections again: the change that was to close listeners was undone.
    pub fn unblock_new_connections(&self) {
        for socket in self.sockets.values().filter(|socket| socket.is_tcp()) {
            // Fails where no filter is attached.
            let _ = SockRef::from(&socket.fd).detach_filter();
        }
    }

    /// Closes all sockets but these.
    pub fn retain(&mut self, ids: &[u64]) {
        self.sockets.retain(|id, _| ids.contains(id));
    }

    /// Closes all sockets. Connections are refused once the router has closed its copies too.
    pub fn close(&mut self) {
        self.sockets.clear();
    }
}

// === impl Socket ===

impl Socket {
    fn is_tcp(&self) -> bool {
        self.quic_of.is_none() && matches!(self.address, Address::Tcp(_))
    }
}

fn open_tcp(address: SocketAddr) -> io::Result<Socket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = stream_socket(family)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        // Otherwise [::]:80 would also take the port of *:80.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    rustix::net::bind(&fd, &address)?;
    let real = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
    Ok(Socket { fd, configured: Address::Tcp(address), address: Address::Tcp(real), quic_of: None, file: None })
}

fn open_udp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    // The kernel's limit may be lower: then it sets that. All connections of the listener share the two buffers.
    sockopt::set_socket_recv_buffer_size(&fd, UDP_BUFFER_BYTES)?;
    sockopt::set_socket_send_buffer_size(&fd, UDP_BUFFER_BYTES)?;
    rustix::net::bind(&fd, &address)?;
    Ok(fd)
}

fn open_unix(path: &Path, mode: u32, own: Vec<FileId>) -> io::Result<Socket> {
    let (fd, file) = SocketFile::bind(path, mode, own)?;
    let address = Address::Unix(path.to_owned());
    Ok(Socket { fd, configured: address.clone(), address, quic_of: None, file: Some(file) })
}

fn open_abstract(name: &str) -> io::Result<Socket> {
    let fd = stream_socket(AddressFamily::UNIX)?;
    rustix::net::bind(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let address = Address::Abstract(name.to_owned());
    Ok(Socket { fd, configured: address.clone(), address, quic_of: None, file: None })
}

fn to_kernel(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

fn default_backlog() -> i32 {
    longest_backlog().map_or(DEFAULT_BACKLOG, to_kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::os::unix::fs::MetadataExt;

    fn open(address: &Address) -> Result<Listeners, String> {
        let mut listeners = Listeners::default();
        let id = listeners.open(address, ChosenBy::Option)?;
        listeners.listen(id, None, ChosenBy::Option).map(|()| listeners)
    }

    #[test]
    fn an_occupied_port_is_named() {
        let first = open(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let (_, address) = first.addresses().next().unwrap();
        let error = open(address).unwrap_err();
        assert!(
            error.contains("is in use by another program; choose another with --listen, as in 127.0.0.1:"),
            "{error}"
        );
    }

    #[test]
    fn quic_has_the_port_of_its_listener() {
        let mut listeners = open(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let (id, address) = listeners.addresses().next().map(|(id, address)| (id, address.clone())).unwrap();
        let quic = listeners.find_or_open_quic(id).unwrap();
        assert_eq!(listeners.find_or_open_quic(id), Ok(quic));
        assert!(quic != id && listeners.addresses().count() == 1);
        let bound: SocketAddr =
            rustix::net::getsockname(listeners.descriptor(quic).unwrap()).unwrap().try_into().unwrap();
        assert_eq!(Address::Tcp(bound), address);
        listeners.retain(&[id]);
        assert!(listeners.descriptor(quic).is_err());
        let _other = std::net::UdpSocket::bind(bound).unwrap();
        let error = listeners.find_or_open_quic(id).unwrap_err();
        assert!(error.contains("which HTTP/3 needs, is in use by another program"), "{error}");
    }

    #[test]
    fn blocked_listeners_accept_only_connections_from_before() {
        let listeners = open(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let (id, Address::Tcp(address)) = listeners.addresses().next().unwrap() else { panic!("TCP") };
        let connect = || std::net::TcpStream::connect_timeout(address, std::time::Duration::from_millis(100));
        let early = connect().unwrap();
        listeners.block_new_connections(&[id]);
        connect().expect("another listener is blocked");
        listeners.block_new_connections(&[]);
        if !rustix::process::geteuid().is_root() {
            return;
        }
        connect().expect_err("new connections are blocked");
        assert!(rustix::net::accept(&listeners.sockets[&id].fd).is_ok(), "it connected before");
        listeners.unblock_new_connections();
        connect().expect("new connections are allowed again");
        drop(early);
    }

    #[test]
    fn our_own_listener_that_is_in_the_way_is_named() {
        let mut listeners = open(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let Address::Tcp(first) = *listeners.addresses().next().unwrap().1 else { panic!("no port") };
        let error = listeners.open(&format!("*:{}", first.port()).parse().unwrap(), ChosenBy::Configuration);
        let error = error.unwrap_err();
        assert!(error.contains(&format!("howdah itself listens on {first}; make two changes")), "{error}");
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let address = Address::Unix(path.clone());
        let listeners = open(&address).unwrap();
        assert!(open(&address).unwrap_err().contains("is in use by another program"));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, SOCKET_MODE);
        drop(listeners);
        assert!(!path.exists());
    }

    #[test]
    fn our_own_socket_that_does_not_listen_yet_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, same) = (folder.path().join("folder/s"), folder.path().join("link/s"));
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        std::os::unix::fs::symlink("folder", folder.path().join("link")).unwrap();
        let mut listeners = Listeners::default();
        listeners.open(&Address::Unix(path.clone()), ChosenBy::Option).unwrap();
        let inode = path.metadata().unwrap().ino();
        let error = listeners.open(&Address::Unix(same), ChosenBy::Option).unwrap_err();
        assert!(error.contains("is in use by another program"), "{error}");
        assert_eq!(path.metadata().unwrap().ino(), inode);
    }

    #[test]
    fn the_access_to_a_socket_can_be_changed_and_that_to_another_file_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listeners = open(&Address::Unix(path.clone())).unwrap();
        let (id, _) = listeners.addresses().next().unwrap();
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let found = || path.metadata().map(|it| (it.mode() & 0o7777, it.uid(), it.gid())).unwrap();
        for mode in [0o600, 0o666] {
            listeners.set_access(id, SocketAccess { mode: Some(mode), ..SocketAccess::default() }).unwrap();
            assert_eq!(found(), (mode, own.0, own.1));
        }
        if own.0 == 0 {
            let access = SocketAccess { user: Some(1), group: Some(2), mode: None };
            listeners.set_access(id, access).unwrap();
            assert_eq!(found(), (SOCKET_MODE, 1, 2));
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        let before = found();
        let error =
            listeners.set_access(id, SocketAccess { mode: Some(0o777), ..SocketAccess::default() }).unwrap_err();
        assert!(error.contains("another program has replaced its file"), "{error}");
        assert_eq!(found(), before);
    }

    #[test]
    fn without_a_configured_group_the_file_keeps_that_of_a_setgid_folder() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), None, Some(2)).unwrap();
        rustix::fs::chmod(folder.path(), Mode::from_raw_mode(0o2775)).unwrap();
        let path = folder.path().join("s");
        let listeners = open(&Address::Unix(path.clone())).unwrap();
        let (id, _) = listeners.addresses().next().unwrap();
        for (group, expected) in [(None, 2), (Some(3), 3), (None, 2)] {
            listeners.set_access(id, SocketAccess { group, ..SocketAccess::default() }).unwrap();
            assert_eq!(path.metadata().unwrap().gid(), expected);
        }
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "x").unwrap();
        assert!(open(&Address::Unix(path.clone())).unwrap_err().contains("there is a file that is not a socket"));
        assert!(path.exists());
    }
}
