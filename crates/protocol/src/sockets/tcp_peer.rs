//! The user at the other end of a connection over the loopback interface: of a client, or of a server.
//!
//! The kernel's tables have both ends of such a connection. The peer's end has a user only while a process holds it: a
//! connection that its process has closed counts as one of an unknown user.
//!
//! A client that resets its connection leaves its port to others, also while our end waits to be accepted: ask [`is_reset`]
//! after the look-up.
//!
//! The kernel looks one connection up on a netlink socket (sock_diag(7)). Where it cannot, as in some sandboxes, its tables
//! are read, which takes long if the machine has many connections: call it on a thread that may wait.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// The type of a request for sockets of a family, and of the answer.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The type of an answer that is an error.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
/// Of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// The place of the state in an answer.
const STATE: usize = HEADER_BYTES + 1;
/// States of a socket (TCP_SYN_SENT, TCP_SYN_RECV, TCP_LISTEN).
const SYN_SENT: u8 = 2;
const SYN_RECV: u8 = 3;
const LISTEN: u8 = 10;
/// The loopback interface has this number in each network namespace (LOOPBACK_IFINDEX). A socket may be bound to it
/// (SO_BINDTODEVICE), and is not found without it.
const LOOPBACK_INTERFACE: u32 = 1;
/// The place of the addresses in an answer, and their length: ports, and room for IPv6.
const ADDRESSES: std::ops::Range<usize> = HEADER_BYTES + 4..HEADER_BYTES + 4 + 36;
/// The places of the user and the inode in an answer.
const USER: usize = HEADER_BYTES + 64;
const INODE: usize = HEADER_BYTES + 68;

/// Whether a connection is reset, or closed in both directions. One whose peer only sends no more is not.
pub fn is_reset(own: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(own, PollFlags::empty())];
    // The kernel returns these in any case.
    let ended = PollFlags::HUP | PollFlags::ERR;
    poll(&mut polled, Some(&Timespec::default())).map_or(true, |_| polled[0].revents().intersects(ended))
}

/// The user whose process holds the socket `peer` that is connected to our socket `own`, if our connection is not
/// [reset](is_reset).
pub fn user_of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    look_up(peer, own).unwrap_or_else(|_| read_tables(peer, own))
}

/// Checks that only this user, or root, may have accepted the connection of our socket `own` to the listener `server`: another
/// user may have bound the port before.
///
/// # Errors
/// With the other user, if the kernel shows none, or without a descriptor for the look-up. Where the kernel cannot look connections
/// up, every user passes.
pub fn check_listening_user(server: SocketAddr, own: SocketAddr, expected: u32) -> io::Result<()> {
    // The end of a listener resets the connections in its queue. Therefore this order: a connection that was not accepted
    // after the first look-up belongs to that listener.
    let mut is_known = false;
    for found in [look_up_listener(server), look_up(server, own)] {
        match found {
            Ok(Some(user)) if user != expected && user != 0 => {
                return Err(io::Error::other(format!("user id {user} listens there, and not {expected}")));
            }
            Err(error) if is_shortage(&error) => return Err(error),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => is_known = true,
        }
    }
    is_known.then_some(()).ok_or_else(|| io::Error::other("the kernel does not show which user listens there"))
}

/// Asks the kernel for this connection.
fn look_up(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<u32>> {
    let request = request(peer, own);
    unless_unsupported(user_in_answer(&ask(&request)?, &request)?)
}

/// Asks the kernel for the listener of this address, which may listen on all addresses.
fn look_up_listener(server: SocketAddr) -> io::Result<Option<u32>> {
    unless_unsupported(find_listener(server)?)
}

fn find_listener(server: SocketAddr) -> io::Result<Option<u32>> {
    let nowhere = match server.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    listener_in_answer(&ask(&request(server, SocketAddr::new(nowhere, 0)))?)
}

/// A kernel without the module for TCP answers as if there were no such socket: one of ours is looked up then, once.
fn unless_unsupported(found: Option<u32>) -> io::Result<Option<u32>> {
    static FINDS_SOCKETS: OnceLock<bool> = OnceLock::new();
    if found.is_some() {
        return Ok(found);
    }
    let finds_sockets = match FINDS_SOCKETS.get() {
        Some(known) => *known,
        None => {
            let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|own| Ok((own.local_addr()?, own)));
            let finds = match own.and_then(|(address, _own)| find_listener(address)) {
                Ok(user) => user.is_some(),
                Err(error) if is_shortage(&error) => return Err(error),
                Err(_) => false,
            };
            *FINDS_SOCKETS.get_or_init(|| finds)
        }
    };
    if finds_sockets { Ok(None) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Whether this look-up has failed, and others may not.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

fn ask(request: &[u8]) -> io::Result<Vec<u8>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    sendto(&socket, request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 1024];
    // The answer is there when the request is sent.
    let (_, length) = recv(&socket, &mut answer, RecvFlags::empty())?;
    Ok(answer[..length.min(answer.len())].to_vec())
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(peer: SocketAddr, own: SocketAddr) -> Vec<u8> {
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut body = vec![family.as_raw() as u8, IPPROTO_TCP, 0, 0];
    // All states.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend([peer, own].iter().flat_map(|end| end.port().to_be_bytes()));
    for end in [peer, own] {
        let mut address = match end.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        address.resize(16, 0);
        body.extend(address);
    }
    // No cookie.
    body.extend(LOOPBACK_INTERFACE.to_ne_bytes());
    body.extend([u8::MAX; 8]);
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The user in `struct inet_diag_msg`; `None` if there is no such connection, or no process has it.
fn user_in_answer(answer: &[u8], request: &[u8]) -> io::Result<Option<u32>> {
    let user = socket_in_answer(answer)?;
    // Without such a connection, the kernel returns a listener. An attempt to connect from a port that was free again is no
    // connection of ours.
    let is_connected = answer.get(STATE).is_some_and(|state| ![SYN_SENT, SYN_RECV].contains(state));
    let wanted = &request[ADDRESSES.start + 4..ADDRESSES.end + 4];
    let is_it = |found: &[u8]| found == wanted || found == mapped(wanted);
    Ok(user.filter(|_| is_connected && answer.get(ADDRESSES).is_some_and(is_it)))
}

/// The ports and addresses of IPv4 as those of a socket of IPv6.
fn mapped(addresses: &[u8]) -> Vec<u8> {
    let (ports, addresses) = addresses.split_at(4);
    let mapped = addresses.chunks(16).flat_map(|address| [&[0; 10][..], &[0xff; 2], &address[..4]].concat());
    ports.iter().copied().chain(mapped).collect()
}

/// The same for a listener.
fn listener_in_answer(answer: &[u8]) -> io::Result<Option<u32>> {
    let user = socket_in_answer(answer)?;
    Ok(user.filter(|_| answer.get(STATE) == Some(&LISTEN)))
}

/// The user of the socket in an answer; `None` without a socket, and for a socket without a process.
fn socket_in_answer(answer: &[u8]) -> io::Result<Option<u32>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = answer.get(4..6).ok_or_else(malformed)?;
    if kind == NLMSG_ERROR.to_ne_bytes() {
        let code = word(HEADER_BYTES).ok_or_else(malformed)?.cast_signed();
        let error = Errno::from_raw_os_error(code.wrapping_neg());
        return if error == Errno::NOENT { Ok(None) } else { Err(error.into()) };
    }
    let (Some(user), Some(inode)) = (word(USER), word(INODE)) else { return Err(malformed()) };
    let is_held = kind == SOCK_DIAG_BY_FAMILY.to_ne_bytes() && inode != 0;
    Ok(is_held.then_some(user))
}

/// The same by the tables of all connections.
fn read_tables(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let lines = BufReader::new(File::open(table).ok()?).lines().map_while(Result::ok);
        lines.skip(1).find_map(|line| user_in(&line, peer, own))
    })
}

/// The user in a line: number, local and remote address, state, queues, timer, retransmissions, user, timeout, inode.
fn user_in(line: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, local, remote, state, _, _, _, user, _, inode] = fields[..] else { return None };
    let is_connected = u8::from_str_radix(state, 16).is_ok_and(|state| ![SYN_SENT, SYN_RECV].contains(&state));
    // A socket without a process has no inode, and user 0.
    (is_connected && inode != "0" && address(local)? == peer && address(remote)? == own).then(|| user.parse().ok())?
}

/// `0100007F:1F90`: words of the address in the byte order of the machine. IPv4 in IPv6 is IPv4.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (number, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(number * 8)?);
            }
            IpAddr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn the_user_is_known_until_the_peer_closes() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(loopback) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let own = accepted.local_addr().unwrap();
            let us = Some(rustix::process::geteuid().as_raw());
            assert_eq!((user_of(peer, own), read_tables(peer, own)), (us, us), "{loopback}");
            match look_up(peer, own) {
                Ok(found) => assert_eq!(found, us, "{loopback}"),
                Err(error) => eprintln!("this kernel has no sock_diag: {error}"),
            }
            let other = SocketAddr::new(peer.ip(), peer.port() ^ 1);
            assert_eq!(user_of(own, other), None, "the listener is no connection");
            assert!(!is_reset(&accepted));
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(user_of(peer, own).is_some() && !is_reset(&accepted), "it still reads");
            drop(client);
            assert_eq!(user_of(peer, own), None);
            assert_eq!(user_of(own, peer), Some(rustix::process::geteuid().as_raw()), "our own end");
        }
    }

    #[test]
    fn the_user_who_listens_is_checked() {
        let us = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(server).unwrap();
            let own = client.local_addr().unwrap();
            match look_up_listener(server) {
                Ok(found) => assert_eq!(found, Some(us), "{address}"),
                Err(error) => return eprintln!("this kernel has no sock_diag: {error}"),
            }
            let check = |user| check_listening_user(server, own, user).is_ok();
            // Root may serve for all users.
            let is_checked = || check(us) && check(us + 1) == (us == 0);
            assert!(is_checked(), "{address}: in the queue");
            let accepted = listener.accept().unwrap();
            assert!(is_checked(), "{address}: accepted");
            drop(listener);
            assert_eq!(look_up_listener(server).unwrap(), None);
            assert_eq!(look_up(server, own).unwrap(), Some(us), "{address}: the listener has ended");
            assert!(is_checked(), "{address}: the listener has ended");
            drop(accepted);
        }
    }

    #[test]
    fn a_port_that_another_connection_has_taken_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let connect_from = |peer: SocketAddr| {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
            rustix::net::bind(&socket, &peer).unwrap();
            rustix::net::connect(&socket, &server).unwrap();
            TcpStream::from(socket)
        };
        // No other test takes a port of this address.
        let first = connect_from((Ipv4Addr::new(127, 11, 12, 13), 0).into());
        let peer = first.local_addr().unwrap();
        // It resets the connection, which waits to be accepted: tcp_disconnect.
        rustix::net::connect_unspec(&first).unwrap();
        let _second = connect_from(peer);
        let (accepted, its_peer) = listener.accept().unwrap();
        assert_eq!(its_peer, peer);
        assert!(user_of(peer, server).is_some(), "that of the second connection");
        assert!(is_reset(&accepted));
        let (accepted, _) = listener.accept().unwrap();
        assert!(!is_reset(&accepted) && user_of(peer, server).is_some());
    }

    #[test]
    fn a_listener_that_is_bound_to_the_interface_is_found() {
        let us = rustix::process::geteuid().as_raw();
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        if let Err(error) = nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::BindToDevice, &"lo".into())
        {
            return eprintln!("this kernel does not bind to an interface: {error}");
        }
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        rustix::net::listen(&socket, 10).unwrap();
        let listener = TcpListener::from(socket);
        let server = listener.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let own = client.local_addr().unwrap();
        if look_up(own, server).is_err() {
            return;
        }
        assert_eq!(look_up_listener(server).unwrap(), Some(us));
        let accepted = listener.accept().unwrap();
        drop(listener);
        assert_eq!(look_up(server, own).unwrap(), Some(us));
        drop(accepted);
        assert!(check_listening_user(server, own, us).is_err(), "no user is shown");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_tables_are_read() {
        let peer = "127.0.0.1:40000".parse().unwrap();
        let own = "127.0.0.1:8081".parse().unwrap();
        let line = |local: &str, remote: &str, user: &str, inode: &str| {
            format!(
                "  1: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {user:>5} 0 {inode} 1 0 20 4 30 10 -1"
            )
        };
        let (there, here) = ("0100007F:9C40", "0100007F:1F91");
        let mapped = ("0000000000000000FFFF00000100007F:9C40", "0000000000000000FFFF00000100007F:1F91");
        assert_eq!(user_in(&line(there, here, "33", "5"), peer, own), Some(33));
        assert_eq!(user_in(&line(mapped.0, mapped.1, "33", "5"), peer, own), Some(33));
        assert_eq!(user_in(&line(here, there, "0", "5"), peer, own), None, "our own end");
        assert_eq!(user_in(&line(there, here, "0", "0"), peer, own), None, "closed");
        let connecting = line(there, here, "33", "5").replace(" 01 ", " 02 ");
        assert_eq!(user_in(&connecting, peer, own), None);
        assert_eq!(user_in("no line", peer, own), None);
    }
}
