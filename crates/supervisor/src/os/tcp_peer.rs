//! The user at the other end of a connection over the loopback interface.
//!
//! The kernel's tables have both ends of such a connection. The peer's end has a user only while a process holds it: a
//! connection that its process has closed counts as one of an unknown user. Reading the tables takes long if the
//! machine has many connections: call it on a thread that may wait.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

/// The user whose process holds the socket `peer` that is connected to our socket `own`.
pub fn user_of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let lines = BufReader::new(File::open(table).ok()?).lines().map_while(Result::ok);
        lines.skip(1).find_map(|line| user_in(&line, peer, own))
    })
}

/// The user in a line: number, local and remote address, state, queues, timer, retransmissions, user, timeout, inode.
fn user_in(line: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, local, remote, _, _, _, _, user, _, inode] = fields[..] else { return None };
    // A socket without a process has no inode, and user 0.
    (inode != "0" && address(local)? == peer && address(remote)? == own).then(|| user.parse().ok())?
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
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_user_is_known_until_the_peer_closes() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(loopback) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let own = accepted.local_addr().unwrap();
            assert_eq!(user_of(peer, own), Some(rustix::process::geteuid().as_raw()), "{loopback}");
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(user_of(peer, own).is_some(), "it still reads");
            drop(client);
            assert_eq!(user_of(peer, own), None);
            assert_eq!(user_of(own, peer), Some(rustix::process::geteuid().as_raw()), "our own end");
        }
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
        assert_eq!(user_in("no line", peer, own), None);
    }
}
