//! Sockets whose peers cannot attach descriptors.
//!
//! A peer of a unix socket may attach descriptors to its bytes (SCM_RIGHTS). A reader that does not want them drops
//! them within its read, and a read that drops the last reference to a TCP socket with unsent data and SO_LINGER waits
//! for the time that the peer has chosen. Therefore each unix socket that reads from an untrusted peer refuses
//! descriptors before it listens or connects: its peers get EPERM. Accepted sockets inherit that. A process that shares
//! the socket itself can allow descriptors again.
//!
//! Linux has the option since 6.16. With an older kernel, descriptors arrive: the supervisor closes them, and sockets
//! that may hold some, also those that it shares, on threads that only do this ([`close_elsewhere`]); `docs/isolation.md`
//! states what is left.

use nix::libc;
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::Signal;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetBool;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// `SO_PASSRIGHTS` of asm-generic/socket.h.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Whether peers may attach descriptors.
#[derive(Clone, Copy, Debug)]
struct PassRights;

/// Threads that close descriptors.
#[derive(Debug)]
struct Closers {
    queue: SyncSender<Box<dyn Send>>,
    threads: Vec<JoinHandle<()>>,
}

/// Descriptors that a peer has sent.
struct Received(Vec<OwnedFd>);

/// Two: one that is blocked does not delay the others at once.
const CLOSER_THREADS: usize = 2;
/// The most entries of the queue.
const CLOSER_QUEUE: usize = 64;
/// Ends the wait of a thread in a close, if the process handles it; otherwise it is ignored. The supervisor looks for dead
/// children then, and finds none.
const INTERRUPT: Signal = Signal::SIGCHLD;
/// How often the threads are interrupted for room in the queue, and the time between.
const INTERRUPTS: u32 = 10;
const INTERRUPT_PAUSE: Duration = Duration::from_millis(1);
/// As large as the kernel allows.
const BACKLOG: i32 = i32::MAX;

nix::setsockopt_impl!(PassRights, libc::SOL_SOCKET, SO_PASSRIGHTS, bool, SetBool);

/// Refuses descriptors that peers attach; `false` if the kernel cannot do that.
pub fn refuse_descriptors(socket: &impl AsFd) -> bool {
    PassRights.set(socket, &false).is_ok()
}

/// Connects to a Unix socket without waiting: a socket that does not block, and refuses descriptors. A name that begins with
/// NUL is abstract.
///
/// # Errors
/// The errors of connect(2). `WouldBlock`: a process listens there, and its backlog is full.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let address = match path.as_os_str().as_bytes() {
        [0, name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new(path)?,
    };
    let socket = unix_socket(SocketFlags::NONBLOCK)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

/// Whether a process listens at this path, also if its backlog is full.
pub fn is_listening(path: &Path) -> bool {
    connect(path).map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true)
}

/// Listens at this path. The first client finds a socket that refuses descriptors.
///
/// # Errors
/// The errors of bind(2) and listen(2).
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = unix_socket(SocketFlags::empty())?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// A socket that refuses descriptors, if the kernel can do that.
fn unix_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    refuse_descriptors(&socket);
    Ok(socket)
}

/// Starts the threads of [`close_elsewhere`], which otherwise start with its first call.
///
/// # Errors
/// When no thread can be started.
pub fn start_closers() -> io::Result<()> {
    of_process().as_ref().map(|_| ()).map_err(|kind| (*kind).into())
}

/// Closes descriptors that a peer has sent, without waiting for it.
pub fn close_received(descriptors: Vec<OwnedFd>) {
    close_elsewhere(Received(descriptors));
}

/// Closes sockets in whose queues such descriptors may lie, without waiting for it.
pub fn close_elsewhere(descriptors: impl Send + 'static) {
    // Without a thread, they are closed here.
    if let Ok(closers) = of_process() {
        closers.close(descriptors);
    }
}

fn of_process() -> &'static Result<Closers, io::ErrorKind> {
    static CLOSERS: OnceLock<Result<Closers, io::ErrorKind>> = OnceLock::new();
    CLOSERS.get_or_init(|| Closers::start(CLOSER_THREADS, CLOSER_QUEUE).map_err(|error| error.kind()))
}

// === impl Received ===

impl Drop for Received {
    fn drop(&mut self) {
        for descriptor in &self.0 {
            // The connection is reset at once. Other kinds of descriptors have no such option.
            let _ = set_socket_linger(descriptor, Some(Duration::ZERO));
        }
    }
}

// === impl Closers ===

impl Closers {
    fn start(threads: usize, queue: usize) -> io::Result<Closers> {
        let (sender, queue) = mpsc::sync_channel::<Box<dyn Send>>(queue);
        let queue = Arc::new(Mutex::new(queue));
        let start_one = |_| {
            let queue = Arc::clone(&queue);
            let next = move || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            thread::Builder::new().name("close".to_owned()).spawn(move || while next().is_ok() {})
        };
        let threads = (0..threads).map(start_one).collect::<io::Result<_>>()?;
        Ok(Closers { queue: sender, threads })
    }

    /// Full queue: all threads are blocked. A signal ends the wait for a TCP connection. If they wait for something else,
    /// such as a file system, the descriptors stay open until the process exits: a close on the caller's thread could
    /// block the caller as well.
    fn close(&self, descriptors: impl Send + 'static) {
        let mut entry: Box<dyn Send> = Box::new(descriptors);
        for _ in 0..INTERRUPTS {
            match self.queue.try_send(entry) {
                Err(TrySendError::Full(rejected)) => entry = rejected,
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
            for thread in &self.threads {
                let _ = pthread_kill(thread.as_pthread_t(), INTERRUPT);
            }
            thread::sleep(INTERRUPT_PAUSE);
        }
        std::mem::forget(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::io::{IoSlice, Read};
    use std::mem::MaybeUninit;

    /// Its end reports itself, then waits for a permission.
    struct Slow(Arc<Mutex<mpsc::Receiver<()>>>, mpsc::Sender<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.1.send(());
            let _ = self.0.lock().unwrap().recv();
        }
    }

    #[test]
    fn the_threads_and_the_queue_are_limited_and_no_caller_waits() {
        let closers = Closers::start(1, 1).unwrap();
        let (permit, permits) = mpsc::channel();
        let (closing, closed) = mpsc::channel();
        let permits = Arc::new(Mutex::new(permits));
        let slow = || Slow(Arc::clone(&permits), closing.clone());
        closers.close(slow());
        closed.recv().unwrap();
        // The thread is busy. One entry waits, and the others stay open.
        closers.close(slow());
        closers.close(slow());
        closers.close(slow());
        drop(permit);
        closed.recv().unwrap();
        // It is idle again. This entry is the next one: the entries that did not fit are still open.
        let (last, was_last) = mpsc::channel::<()>();
        closers.close(last);
        assert!(was_last.recv().is_err() && closed.try_recv().is_err());
    }

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
        let listener = listen(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        assert_eq!(send_descriptor(&client), Err(rustix::io::Errno::PERM));
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(send_descriptor(&client), Err(rustix::io::Errno::PERM));
        std::io::Write::write_all(&mut &client, b"y").unwrap();
        let mut byte = [0];
        accepted.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");

        let upstream = UnixListener::bind(folder.path().join("upstream")).unwrap();
        let _connected = connect(&folder.path().join("upstream")).unwrap();
        let (server, _) = upstream.accept().unwrap();
        assert_eq!(send_descriptor(&server), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn no_client_comes_before_the_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let (_, unrelated) = UnixStream::pair().unwrap();
        if !refuse_descriptors(&unrelated) {
            return;
        }
        for number in 0..1000 {
            let path = folder.path().join(number.to_string());
            let client = thread::spawn({
                let path = path.clone();
                move || loop {
                    if let Ok(client) = UnixStream::connect(&path) {
                        return send_descriptor(&client);
                    }
                }
            });
            let _listener = listen(&path).unwrap();
            assert_eq!(client.join().unwrap(), Err(rustix::io::Errno::PERM), "{number}");
        }
    }

    #[test]
    fn a_full_backlog_does_not_block_a_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert!(!is_listening(&path) && connect(&path).unwrap_err().kind() == io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = connect(&path).unwrap();
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(is_listening(&path));
        drop(listener);
        assert!(!is_listening(&path));
    }
}
