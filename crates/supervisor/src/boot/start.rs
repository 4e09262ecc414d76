//! From the command line to the supervisor: what it needs, and how it gets there.
//!
//! The command line replaces itself: same process, a new title. Its settings are in a memfd, so that no argument shows
//! them in `ps`.

use crate::os::files::memory_file::memory_file;
use crate::os::identity::UserAccount;
use command_fds::{CommandFdExt, FdMapping};
use howdah_protocol::child::inherited;
use howdah_protocol::child::inherited::CONTROL_FD;
use howdah_protocol::log_format::{LOG_DAEMON_VARIABLE, LOG_FORMAT_VARIABLE, LogFormat};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The supervisor's `argv[0]`.
pub const SUPERVISOR_TITLE: &str = "howdah (supervisor)";

/// The settings of a supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The configuration's text; `None` is the stored one, or else an empty one.
    pub configuration: Option<String>,
    /// The account of applications that name no user; `None`: from the settings of the configuration.
    pub account: Option<UserAccount>,
    /// The account of the router; `None`: the router's own, or else that of such applications.
    pub router_account: Option<UserAccount>,
    /// The kind of application that `howdah serve` recognised, for the first line; `None` for `howdah run`.
    pub recognised: Option<String>,
    /// The name of the configuration, if it is only checked: everything but the router is started, and exits again.
    pub check: Option<String>,
    /// Where the configuration is stored; `None` is nowhere.
    pub state_dir: Option<PathBuf>,
    /// Where certificates of authorities are stored, if there is no state directory; `None` is nowhere.
    pub certificate_dir: Option<PathBuf>,
    /// Where the control API listens, as in a listener; `None` is nowhere.
    pub control: Option<String>,
    /// The private folder of a `howdah serve`, which is removed at the end: its control socket and its slow logs.
    pub runtime_dir: Option<PathBuf>,
    /// The file that is to have the supervisor's process id.
    pub pid_file: Option<PathBuf>,
    /// The file that standard error is, to be reopened at SIGUSR1.
    pub log_file: Option<PathBuf>,
    /// The daemon that gets howdah's own messages, as in the configuration; `None` is standard error.
    pub log_daemon: Option<String>,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// The process id of a child of ours that ends with howdah: the dashboard of a `howdah serve`.
    pub companion: Option<i32>,
    /// The folder of temporary files, if it is not the system's.
    pub tmp_dir: Option<PathBuf>,
}

// === impl Start ===

impl Start {
    /// Replaces this process with the supervisor. Returns if that fails.
    pub fn become_supervisor(&self) -> io::Error {
        let text = match serde_json::to_vec(self).map_err(io::Error::other).and_then(|text| memory_file(&text)) {
            Ok(text) => text,
            Err(error) => return error,
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg0(SUPERVISOR_TITLE);
        command.env(LOG_FORMAT_VARIABLE, self.log_format.name());
        match &self.log_daemon {
            Some(daemon) => command.env(LOG_DAEMON_VARIABLE, daemon),
            None => command.env_remove(LOG_DAEMON_VARIABLE),
        };
        if let Some(folder) = &self.tmp_dir {
            command.env("TMPDIR", folder);
        }
        match command.fd_mappings(vec![FdMapping { parent_fd: text, child_fd: CONTROL_FD }]) {
            Ok(command) => command.exec(),
            Err(error) => io::Error::other(error),
        }
    }

    pub(crate) fn inherited() -> Result<Start, String> {
        let read = || {
            inherited::set_close_on_exec()?;
            let mut text = String::new();
            File::from(inherited::take_inherited(CONTROL_FD)?).read_to_string(&mut text)?;
            serde_json::from_str(&text).map_err(io::Error::other)
        };
        read().map_err(|error| format!("the supervisor is started by `howdah serve` and `howdah run` only ({error})"))
    }
}
