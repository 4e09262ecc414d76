//! The process that obtains certificates: started when there is an order, ended when there has been none for a while.
//!
//! It talks to the network, so its messages are checked like those of any other child, and it has no privileges.

use crate::os::identity::UserAccount;
use crate::os::processes::link::ChildLink;
use crate::os::processes::{reap, spawn};
use howdah_protocol::messages::acme::{AcmeBoot, FromAcme, ToAcme};
use rustix::process::Pid;
use std::io;
use std::task::{Context, Poll};

/// A running process.
#[derive(Debug)]
pub struct AcmeProcess {
    pid: Pid,
    link: ChildLink<ToAcme, FromAcme>,
}

// === impl AcmeProcess ===

impl AcmeProcess {
    /// Starts it.
    ///
    /// # Errors
    /// With the reason.
    pub fn start(account: &UserAccount) -> io::Result<AcmeProcess> {
        let (pid, socket) = spawn::acme()?;
        let link = ChildLink::new(socket).inspect_err(|_| reap::kill(pid))?;
        let mut process = AcmeProcess { pid, link };
        process.send(ToAcme::Boot(AcmeBoot { identity: account.identity(), user: account.name.clone() }));
        Ok(process)
    }

    /// Sends a message.
    pub fn send(&mut self, message: ToAcme) {
        self.link.send(message, Vec::new());
    }

    /// Its next message; `None`, once, when it has closed its socket.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromAcme>> {
        self.link.poll_receive(cx)
    }

    /// A message that has arrived already.
    pub fn try_receive(&mut self) -> Option<FromAcme> {
        self.link.try_receive()
    }

    /// Whether this is its pid.
    pub fn is_process(&self, pid: Pid) -> bool {
        self.pid == pid
    }

    /// Kills it.
    pub fn kill(&self) {
        reap::kill(self.pid);
    }
}
