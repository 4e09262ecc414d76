//! The socket of a worker: it listens until the worker has connected, and carries nothing but that one connection.
//!
//! Each start of a worker has a listener of its own. A Unix socket is in a folder of ours, which only the application's
//! group can enter; it belongs to the application's user, and no other user may connect. The supervisor keeps the
//! connection while the worker runs: it orders the worker to exit, and hands the connection to a router. No descriptor
//! comes through it: see [`refuse_descriptors`].

use crate::generation::program::roadrunner::connecting::{Connection, Listener, WorkerPeer};
use crate::generation::program::roadrunner::handshake::Handshake;
use crate::os::files::socket_folder::SocketFolder;
use howdah_goridge::frame;
use howdah_protocol::sockets::refused_descriptors::close_elsewhere;
#[cfg(doc)]
use howdah_protocol::sockets::refused_descriptors::refuse_descriptors;
use rustix::net::listen;
use rustix::process::Pid;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// The socket of a worker through all its restarts.
#[derive(Debug)]
pub struct WorkerSocket {
    place: Place,
    user: WorkerUser,
    /// Until the handshake begins.
    listener: Option<Listener>,
    connection: Connection,
}

/// The user and the group of a worker; `None`: our own.
#[derive(Clone, Copy, Debug)]
pub struct WorkerUser(pub Option<(u32, u32)>);

#[derive(Debug)]
enum Place {
    /// The name of the socket in the folder.
    Unix(Arc<SocketFolder>, String),
    /// The address of the last listener.
    Tcp(SocketAddr),
}

/// The kernel's own limit may be lower.
const TCP_BACKLOG: i32 = 4096;

// === impl WorkerSocket ===

impl WorkerSocket {
    /// The Unix socket of the worker with this number.
    pub fn unix(folder: Arc<SocketFolder>, number: u16, user: WorkerUser) -> WorkerSocket {
        WorkerSocket::new(Place::Unix(folder, format!("{number}.sock")), user)
    }

    /// A port of the loopback interface.
    pub fn tcp(user: WorkerUser) -> WorkerSocket {
        WorkerSocket::new(Place::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), user)
    }

    fn new(place: Place, user: WorkerUser) -> WorkerSocket {
        WorkerSocket { place, user, listener: None, connection: Connection::default() }
    }

    /// Listens for another worker.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn open(&mut self) -> io::Result<()> {
        self.close();
        self.listener = Some(match &mut self.place {
            Place::Unix(folder, name) => Listener::Unix(folder.listen(name, self.user.0)?),
            Place::Tcp(address) => {
                // The kernel chooses another port for each worker.
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                // Users of the machine may connect, too, and take places of the backlog.
                listen(&listener, TCP_BACKLOG)?;
                listener.set_nonblocking(true)?;
                *address = listener.local_addr()?;
                Listener::Tcp(listener)
            }
        });
        Ok(())
    }

    /// The address, as workers read it in `RR_RELAY`.
    pub fn address(&self) -> String {
        match &self.place {
            Place::Unix(folder, name) => format!("unix://{}", folder.socket(name).display()),
            Place::Tcp(address) => format!("tcp://{address}"),
        }
    }

    /// Begins to wait for the worker that leads this process group.
    ///
    /// # Errors
    /// When that was begun already.
    pub fn begin_handshake(&mut self, leader: Pid) -> io::Result<Handshake> {
        let listener = self.listener.take().ok_or_else(|| io::Error::other("no socket listens for it"))?;
        let user = self.user.0.map_or_else(|| rustix::process::geteuid().as_raw(), |(user, _)| user);
        let peer = WorkerPeer { user, leader, address: self.address() };
        Ok(Handshake::begin_connection(listener, peer, self.connection.clone()))
    }

    /// The connection, for a router.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn for_router(&self) -> io::Result<Vec<OwnedFd>> {
        let connection = self.connection.lock();
        let connection = connection.as_ref().ok_or_else(|| io::Error::other("the process has no connection"))?;
        Ok(vec![connection.try_clone()?])
    }

    /// Orders the worker to exit when it has finished its request.
    pub fn order_exit(&self) {
        if let Some(connection) = &*self.connection.lock() {
            // A worker that reads nothing is killed later.
            let _ = rustix::io::write(connection, &frame::exit_frame());
        }
    }

    /// Closes the listener and the connection.
    pub fn close(&mut self) {
        if let Place::Unix(folder, name) = &self.place {
            let _ = std::fs::remove_file::<PathBuf>(folder.socket(name));
        }
        // A handshake that has not ended keeps the former one.
        let connection = std::mem::take(&mut self.connection);
        let connection = connection.lock().take();
        let listener = self.listener.take();
        if listener.is_some() || connection.is_some() {
            // Where the kernel cannot refuse descriptors, some may lie in their queues.
            close_elsewhere((listener, connection));
        }
    }
}

impl Drop for WorkerSocket {
    fn drop(&mut self) {
        self.close();
    }
}
