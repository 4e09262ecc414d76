//! DNS-01: the operator's command adds and removes a record.
//!
//! The command gets `add` or `remove` as its last argument, and the record in variables. It fails if its exit code is not
//! 0, or if it takes too long. Its output is in the error.

use howdah_protocol::messages::acme::DnsRecord;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;

const TIMEOUT: Duration = Duration::from_secs(120);
const MAX_OUTPUT_CHARS: usize = 400;

/// Runs the command for a record: `add` or `remove`.
///
/// # Errors
/// A phrase, with the command's output.
pub async fn change(command: &[String], verb: &str, record: &DnsRecord) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Err("the command is empty".to_owned()) };
    let mut running = Command::new(program);
    running.args(arguments).arg(verb);
    running.env_clear().envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMPDIR"));
    running.env("HOWDAH_DNS_NAME", &record.name).env("HOWDAH_DNS_VALUE", &record.value);
    running.env("HOWDAH_DOMAIN", &record.domain);
    running.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let output = match tokio::time::timeout(TIMEOUT, output(&mut running)).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            return Err(format!(
                "the command {program:?} of \"dns\" cannot be started: {error}; the router's user must be able to"
            ));
        }
        Err(_) => return Err(format!("the command {program:?} of \"dns\" did not end within {} s", TIMEOUT.as_secs())),
    };
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stderr, output.stdout].concat();
    let text: String = String::from_utf8_lossy(&text).trim().chars().take(MAX_OUTPUT_CHARS).collect();
    Err(format!("the command {program:?} of \"dns\" failed with `{verb}` ({}): {text:?}", output.status))
}

/// The output of a command. When this is dropped before its end, the command is killed with all that it has started.
async fn output(command: &mut Command) -> io::Result<Output> {
    let running = command.spawn()?;
    let group = running.id().map(|pid| ProcessGroup(Pid::from_raw(pid as i32)));
    let output = running.wait_with_output().await;
    if let Some(group) = group {
        group.has_ended();
    }
    output
}

/// Processes that are killed when this is dropped.
struct ProcessGroup(Pid);

// === impl ProcessGroup ===

impl ProcessGroup {
    /// Its first process has ended, and the others have closed their output: they run on.
    fn has_ended(self) {
        std::mem::forget(self);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Its number belongs to the group while one of its processes lives.
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_all_that_it_has_started() {
        let file = std::env::temp_dir().join(format!("howdah-dns-hook-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("sleep 60 & echo $! > {}; wait", file.display()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let started = async {
            while std::fs::read_to_string(&file).map_or(true, |text| !text.ends_with('\n')) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            output = output(&mut command) => panic!("{output:?}"),
            () = started => {}
        }
        let child = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        let is_alive = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let until = Instant::now() + Duration::from_secs(10);
        while is_alive() {
            assert!(Instant::now() < until, "{child} runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
