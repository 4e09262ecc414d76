//! The addresses of the processes of a generation: each has its own, also through restarts.
//!
//! A port is chosen by the kernel, and free when it is chosen. Another program could take it before the process listens.
//! One of another user than root gets no requests, and the next process gets another port. Unix sockets have no such gap,
//! because only the application's user can make files in their folder.

use crate::os::files::socket_folder::SocketFolder;
use crate::os::system_error::error_text;
use crate::plan::program::ProgramPlan;
use howdah_config::{AddressVariable, Endpoint, HttpAddress};
use howdah_protocol::sockets::refused_descriptors::{self, close_elsewhere};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

/// The address of one process.
#[derive(Debug)]
pub struct ProcessAddress {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// The socket that it gets from us.
    pub socket: Option<OwnedFd>,
    /// The user that must listen there.
    pub listening_user: Option<u32>,
    kind: HttpAddress,
    folder: Option<Arc<SocketFolder>>,
}

/// Chooses an address for each process.
///
/// # Errors
/// When a folder or a socket cannot be made.
pub fn choose(
    id: u64,
    plan: &ProgramPlan,
    kind: HttpAddress,
    router_group: Option<u32>,
) -> io::Result<Vec<ProcessAddress>> {
    let ours = rustix::process::geteuid().as_raw();
    let application_user = plan.account.ids.map_or(ours, |(user, _)| user);
    if kind == HttpAddress::Port {
        let listening_user = Some(application_user);
        // All are bound at once, so that each gets another port.
        let bound: Vec<_> =
            (0..plan.processes).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<_>>()?;
        let address = |socket: TcpListener| {
            let endpoint = Endpoint::Tcp(socket.local_addr()?);
            Ok(ProcessAddress { endpoint, socket: None, listening_user, kind, folder: None })
        };
        return bound.into_iter().map(address).collect();
    }
    let user = match kind {
        HttpAddress::ListenFds => ours,
        HttpAddress::Unix | HttpAddress::Port => application_user,
    };
    let make_socket = |path: PathBuf| match kind {
        // The process could leave descriptors in its queue. It has the socket, too, and can allow them again.
        HttpAddress::ListenFds => refused_descriptors::listen(&path).map(|listener| (path, Some(listener))),
        HttpAddress::Unix | HttpAddress::Port => Ok((path, None)),
    };
    let (folder, sockets) = SocketFolder::create(id, plan.account.ids, router_group, |folder| {
        let paths = (1..=plan.processes).map(|number| folder.socket(&format!("{number}.sock")));
        paths.map(make_socket).collect::<io::Result<Vec<_>>>()
    })?;
    let folder = Arc::new(folder);
    let address = |(path, listener): (PathBuf, Option<UnixListener>)| {
        if listener.is_some() {
            folder.open_to_router(&path, user);
        }
        let (socket, folder) = (listener.map(OwnedFd::from), Some(Arc::clone(&folder)));
        ProcessAddress { endpoint: Endpoint::Unix(path), socket, listening_user: Some(user), kind, folder }
    };
    Ok(sockets.into_iter().map(address).collect())
}

// === impl ProcessAddress ===

impl ProcessAddress {
    /// The value of a variable in the command.
    pub fn value(&self, variable: AddressVariable) -> String {
        match (variable, &self.endpoint) {
            (AddressVariable::Port, Endpoint::Tcp(address)) => address.port().to_string(),
            (AddressVariable::Socket, Endpoint::Unix(path)) => path.display().to_string(),
            (_, endpoint) => endpoint.to_string(),
        }
    }

    /// The variables of its environment.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let variables = AddressVariable::ALL.into_iter().filter(|variable| self.kind.has(*variable));
        variables.map(|variable| (variable.name().to_owned(), self.value(variable))).collect()
    }

    /// Removes the socket that a dead process left, which would prevent another one from listening.
    pub fn clear(&self) {
        if let (Endpoint::Unix(path), None, Some(folder)) = (&self.endpoint, &self.socket, &self.folder) {
            folder.remove(path);
        }
    }

    /// Before a process starts. A port that another program uses is replaced by another one: the program may be a process
    /// that left the group of a dead one, or one of another user. It must neither get the requests, nor keep the process from
    /// its start.
    ///
    /// # Errors
    /// When no port is free.
    pub fn prepare(&mut self, process: &str) -> io::Result<()> {
        self.clear();
        let Endpoint::Tcp(address) = self.endpoint else { return Ok(()) };
        match is_free(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
                let (port, next) = (address.port(), other.port());
                tracing::warn!("another program uses port {port}, which {process} had; it gets port {next}");
                self.endpoint = Endpoint::Tcp(other);
                Ok(())
            }
            Err(error) => {
                let (port, reason) = (address.port(), error_text(&error));
                Err(io::Error::other(format!("its port {port} is not free: {reason}")))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Lets the router connect, when the process has made its socket.
    pub fn open_to_router(&self) {
        if let (Endpoint::Unix(path), Some(folder), Some(user)) = (&self.endpoint, &self.folder, self.listening_user) {
            folder.open_to_router(path, user);
        }
    }
}

impl Drop for ProcessAddress {
    /// The end of the socket ends what is left in its queue: connections that the process has made, with descriptors.
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            close_elsewhere(socket);
        }
    }
}

/// Binds the address as servers do, and does not listen: a request that waits for the process must not connect to us.
fn is_free(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}
