//! The dashboard of a `howdah serve --dashboard`: a child process that ends with it.

use crate::commands::dashboard::server::listening::check_address;
use howdah_protocol::sockets::refused_descriptors::is_listening;
use howdah_supervisor::system_error::error_text;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time between two looks at the control socket.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts it. This process is about to become the supervisor. The history is in the private folder of this howdah, if it has
/// one, and ends with it. Returns the process id.
///
/// # Errors
/// The address is not of this machine, or no process can be started.
pub fn start(address: SocketAddr, control: &str, folder: Option<&Path>) -> Result<i32, String> {
    check_address(address, false, "--dashboard")?;
    let parent = std::process::id().to_string();
    let mut command = Command::new("/proc/self/exe");
    command.args(["dashboard", "--listen", &address.to_string(), "--control", control, "--companion-of", &parent]);
    if let Some(folder) = folder {
        command.arg("--history").arg(folder.join("dashboard"));
    }
    let child = command
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start the dashboard: {}", error_text(&error)))?;
    i32::try_from(child.id()).map_err(|_| "cannot start the dashboard: its process id is too large".to_owned())
}

/// In the child: ends with its parent, however that ends, and waits until the parent's control socket exists.
///
/// # Errors
/// The parent has ended already.
pub fn follow(parent: i32, control: &str) -> Result<(), String> {
    let ended = || "the howdah of this dashboard has ended".to_owned();
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| error.to_string())?;
    loop {
        if getppid().is_none_or(|actual| actual.as_raw_nonzero().get() != parent) {
            return Err(ended());
        }
        // A port answers while the supervisor boots; the page shows what comes.
        let Some(path) = control.strip_prefix("unix:") else { return Ok(()) };
        if path.starts_with('@') || is_listening(Path::new(path)) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}
