//! Descriptors that a process keeps for the messages of its control socket: its soft limit of descriptors is below the
//! hard one, and is raised while a message is received that did not fit below it.
//!
//! Clients can hold all descriptors below the soft limit. Other threads may open some in the moment in which the limit is
//! raised, which lasts for one system call. A message that was cut off by that stays in the socket, and can be received
//! later. A descriptor above the soft limit that is closed belongs to the reserve again: no other thread can take it.
//! Descriptors that were held in reserve and closed for a message would not come back: clients would take the next free ones.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

/// The reserve of this process.
#[derive(Debug)]
pub struct DescriptorReserve {
    limit: u64,
}

/// The error of a message whose descriptors the kernel has cut off, because too few are free.
#[derive(Debug)]
pub struct CutOff;

/// The reserve is one in this many descriptors.
const PART: u64 = 16;
/// The largest reserve: more than a message has.
const MOST: u64 = 256;

// === impl DescriptorReserve ===

impl DescriptorReserve {
    /// Sets the soft limit of this process to its hard limit without the reserve.
    ///
    /// # Errors
    /// The errors of setrlimit(2).
    pub fn keep() -> io::Result<DescriptorReserve> {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let limit = hard - (hard / PART).min(MOST);
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard)?;
        Ok(DescriptorReserve { limit })
    }

    /// The number of descriptors without the reserve.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Calls this, and calls it again with the reserve if no descriptor was free.
    ///
    /// # Errors
    /// Its error. One thread may call this at a time.
    pub fn open<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if CutOff::is(&error) || Errno::from_io_error(&error) == Some(Errno::MFILE) => {
                // Another process may have changed the limits (prlimit).
                let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
                setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
                let opened = open();
                setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
                opened
            }
            opened => opened,
        }
    }
}

// === impl CutOff ===

impl CutOff {
    /// Whether this is the error.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<CutOff>())
    }
}

impl Error for CutOff {}

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no descriptor is free for those of a control message (see `ulimit -n`)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::control_socket::ControlSocket;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::process::Command;

    /// Set in the process that has the limit.
    const HAS_OWN_PROCESS: &str = "HOWDAH_TEST_HAS_OWN_PROCESS";

    fn open_one() -> io::Result<OwnedFd> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
    }

    #[test]
    fn a_message_arrives_whole_while_clients_hold_all_other_descriptors() {
        if std::env::var_os(HAS_OWN_PROCESS).is_none() {
            let (_, module) = module_path!().split_once("::").unwrap();
            let name = format!("{module}::a_message_arrives_whole_while_clients_hold_all_other_descriptors");
            let mut own = Command::new(std::env::current_exe().unwrap());
            let output = own.args(["--exact", &name, "--nocapture"]).env(HAS_OWN_PROCESS, "1").output().unwrap();
            let text =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        setrlimit(Resource::RLIMIT_NOFILE, 160, 160).unwrap();
        let reserve = DescriptorReserve::keep().unwrap();
        assert_eq!(reserve.limit(), 150);
        let (supervisor, router) = ControlSocket::pair().unwrap();
        let sent = open_one().unwrap();
        let send = |text: &str, descriptors: usize| {
            let all: Vec<BorrowedFd<'_>> = (0..descriptors).map(|_| sent.as_fd()).collect();
            supervisor.send(&text, &all).unwrap();
        };
        send("two", 2);
        send("none", 0);
        send("ten", 10);
        send("long", 1);
        let mut clients: Vec<OwnedFd> = std::iter::from_fn(|| open_one().ok()).collect();
        for free in [0, 1] {
            let released = clients.split_off(clients.len() - free);
            drop(released);
            let error = router.receive_long::<String>().unwrap_err();
            assert!(CutOff::is(&error) && error.to_string().contains("no descriptor is free"), "{error}");
        }
        clients.extend(std::iter::from_fn(|| open_one().ok()));
        let receive = || reserve.open(|| router.receive_long::<String>());
        let (text, two) = receive().unwrap().unwrap();
        assert_eq!((text.as_str(), two.len()), ("two", 2));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (150, 160));
        assert!(open_one().is_err(), "the reserve is for messages only");
        assert_eq!(receive().unwrap().unwrap().0, "none");
        assert!(CutOff::is(&receive().unwrap_err()), "two of the reserve are in use");
        drop(two);
        assert!(open_one().is_err(), "they belong to the reserve again");
        let (text, ten) = receive().unwrap().unwrap();
        assert_eq!((text.as_str(), ten.len()), ("ten", 10));
        assert!(CutOff::is(&receive().unwrap_err()));
        clients.truncate(clients.len() - 1);
        let (text, one) = receive().unwrap().unwrap();
        assert_eq!((text.as_str(), one.len()), ("long", 1));
        drop(ten);
        assert!(reserve.open(open_one).is_ok(), "a copy of a descriptor of a message");
    }
}
