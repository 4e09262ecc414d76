//! The first steps of a program that is not howdah's own: this executable, under another title, gets a [`LaunchOrder`],
//! becomes the application's user, and replaces itself with the program.
//!
//! The kernel kills the program when the supervisor dies. A step that fails is one line on standard error, which is the
//! application's, and an exit code as that of a shell: 127 if there is no such program.

use command_fds::{CommandFdExt, FdMapping};
use howdah_protocol::child::inherited::{CONTROL_FD, take_inherited};
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::launch::LaunchOrder;
use howdah_protocol::sockets::control_socket::ControlSocket;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The exit code if there is no such program.
const NOT_FOUND: u8 = 127;
/// The exit code if the program cannot be started for another reason.
const NOT_STARTED: u8 = 126;
/// The descriptor of a listening socket, as systemd passes it.
const LISTEN_FD: i32 = 3;

/// Becomes the program. Returns only if that fails.
pub fn main() -> ExitCode {
    let (reason, code) = launch();
    // One write: other processes of the application write to the same log. If this fails, the exit code remains.
    let _ = io::stderr().write_all(format!("howdah: {reason}\n").as_bytes());
    ExitCode::from(code)
}

fn launch() -> (String, u8) {
    let (order, socket) = match receive_order() {
        Ok(received) => received,
        Err(error) => return (format!("cannot receive the order to start the program: {error}"), NOT_STARTED),
    };
    if let Some(folder) = &order.working_directory
        && let Err(error) = std::env::set_current_dir(folder)
    {
        return (format!("cannot change to the working directory {folder:?}: {error}"), NOT_STARTED);
    }
    let Some((program, arguments)) = order.command.split_first() else {
        return ("the command is empty".to_owned(), NOT_STARTED);
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&order.environment);
    if let Some(socket) = socket {
        command.env("LISTEN_FDS", "1").env("LISTEN_PID", std::process::id().to_string());
        if let Err(error) = command.fd_mappings(vec![FdMapping { parent_fd: socket, child_fd: LISTEN_FD }]) {
            return (format!("cannot pass the socket on: {error}"), NOT_STARTED);
        }
    }
    let error = command.exec();
    match error.kind() {
        // The kernel also returns the second one if a folder of PATH is not open to the user.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            let advice = "install it, or correct \"command\"; a program without a \"/\" is looked up in PATH";
            let problem = "there is no such program, or the application's user may not run it";
            (format!("cannot start {program:?}: {problem}; {advice}"), NOT_FOUND)
        }
        _ => (format!("cannot start {program:?}: {error}"), NOT_STARTED),
    }
}

fn receive_order() -> io::Result<(LaunchOrder, Option<OwnedFd>)> {
    let control = ControlSocket::from(take_inherited(CONTROL_FD)?);
    die_with_supervisor(&control)?;
    let received: Option<(LaunchOrder, Vec<OwnedFd>)> = control.wait_for_long()?;
    let (order, mut sockets) = received.ok_or_else(|| io::Error::other("the supervisor is gone"))?;
    if let Some(descriptors) = order.descriptors {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), maximum })?;
    }
    order.identity.assume(order.user.as_deref(), None)?;
    // A change of the user clears the death signal.
    die_with_supervisor(&control)?;
    Ok((order, sockets.pop()))
}
