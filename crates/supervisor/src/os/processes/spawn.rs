//! Starts child processes: with a title, a control socket at [`CONTROL_FD`], and no other descriptor of ours.
//!
//! A child has a session and a process group of its own: Ctrl-C in a terminal then reaches the supervisor alone, which
//! stops the others in their order, and no child can read from the terminal or write to it as if the operator typed.

use command_fds::{CommandFdExt, FdMapping};
use howdah_protocol::child::inherited::CONTROL_FD;
use howdah_protocol::child::session::begin_session;
use howdah_protocol::sockets::control_socket::ControlSocket;
use howdah_protocol::sockets::refused_descriptors::refuse_descriptors;
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The router's `argv[0]`.
pub const ROUTER_TITLE: &str = "howdah: router";
/// The `argv[0]` of the process of the metrics listener.
pub const EXPORTER_TITLE: &str = "howdah: metrics";
/// The `argv[0]` of a process that becomes another program.
pub const LAUNCHER_TITLE: &str = "howdah: launcher";

/// The `argv[0]` of the process that obtains certificates.
pub const ACME_TITLE: &str = "howdah: acme";

/// The settings of the allocator, jemalloc, and the variable that holds them: memory that a burst of connections used
/// is returned to the kernel after a second, also if nothing happens afterwards.
const ALLOCATOR_VARIABLE: &str = "MALLOC_CONF";
const ALLOCATOR_SETTINGS: &str = "dirty_decay_ms:1000,muzzy_decay_ms:0,background_thread:true,max_background_threads:1";

/// The variables of the supervisor's environment that every prototype gets: programs are found, PHP finds its php.ini,
/// and temporary files are in the folder of `--tmp-dir`. All others may be secrets of the program that started howdah.
const INHERITED: [&str; 4] = ["PATH", "PHPRC", "PHP_INI_SCAN_DIR", "TMPDIR"];
/// The variables with which the dynamic loader finds a custom libphp. The prototype removes them before it loads PHP.
const FOR_LOADER: [&str; 1] = ["LD_LIBRARY_PATH"];
/// In builds with debug assertions, also variables that begin with this.
const TEST_PREFIX: &str = "HOWDAH_TEST_";

/// The environment of the processes of an application.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The configured variables.
    pub variables: BTreeMap<String, String>,
    /// Whether the supervisor's environment is passed on whole.
    pub inherits: bool,
}

// === impl Environment ===

impl Environment {
    /// The variables that only the dynamic loader gets: PHP and its child processes do not see them.
    pub fn loader_variables(&self) -> Vec<String> {
        let is_hidden = |name: &&str| !self.inherits && !self.variables.contains_key(*name);
        FOR_LOADER.into_iter().filter(is_hidden).map(str::to_owned).collect()
    }

    /// All variables of a program that is not howdah's own. A variable that is no text is left out.
    pub fn for_program(&self) -> BTreeMap<String, String> {
        let ours = std::env::vars_os().filter(|(name, _)| self.inherits || INHERITED.iter().any(|known| name == known));
        let ours = ours.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        ours.chain(self.variables.clone()).collect()
    }
}

/// Starts a process that waits for the order to become another program: this executable, under another title.
pub fn launcher(stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<(Pid, ControlSocket)> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(LAUNCHER_TITLE).stdout(stdout).stderr(stderr);
    spawn(command, stdin.map_or_else(Stdio::null, Stdio::from))
}

/// Starts a router: this executable, under another title.
pub fn router() -> io::Result<(Pid, ControlSocket)> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ROUTER_TITLE);
    if std::env::var_os(ALLOCATOR_VARIABLE).is_none() {
        command.env(ALLOCATOR_VARIABLE, ALLOCATOR_SETTINGS);
    }
    spawn(command, Stdio::null())
}

/// Starts the process that obtains certificates: this executable, under another title.
pub fn acme() -> io::Result<(Pid, ControlSocket)> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ACME_TITLE);
    spawn(command, Stdio::null())
}

/// Starts the process of the metrics listener: this executable, under another title.
pub fn exporter() -> io::Result<(Pid, ControlSocket)> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(EXPORTER_TITLE);
    spawn(command, Stdio::null())
}

/// Starts the prototype of an application with this standard output and error.
pub fn prototype(
    executable: &Path,
    application: &str,
    environment: &Environment,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> io::Result<(Pid, ControlSocket)> {
    let mut command = Command::new(executable);
    if !environment.inherits {
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_inherited(name)));
    }
    command
        .arg0(format!("howdah: \"{application}\" prototype"))
        .envs(&environment.variables)
        .stdout(stdout)
        .stderr(stderr);
    spawn(command, Stdio::null())
}

fn is_inherited(name: &OsStr) -> bool {
    INHERITED.iter().chain(&FOR_LOADER).any(|inherited| name == *inherited)
        || (cfg!(debug_assertions) && name.as_encoded_bytes().starts_with(TEST_PREFIX.as_bytes()))
}

fn spawn(mut command: Command, stdin: Stdio) -> io::Result<(Pid, ControlSocket)> {
    let (ours, theirs) = ControlSocket::pair()?;
    // Code of an application can write to the prototype's end.
    refuse_descriptors(&ours);
    begin_session(&mut command);
    command
        .stdin(stdin)
        .fd_mappings(vec![FdMapping { parent_fd: theirs.into(), child_fd: CONTROL_FD }])
        .map_err(io::Error::other)?;
    let child = command.spawn()?;
    Ok((Pid::from_child(&child), ours))
}
