//! System calls and instructions of processes, which `perf stat` counts while it is attached.
//!
//! Counting slows the processes by a few percent: take their CPU time and their throughput from a run without it. An event that
//! this machine or this user cannot count is missing.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempPath;

/// The counts of some processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelEvents {
    /// System calls.
    pub system_calls: Option<u64>,
    /// Instructions, those of the kernel included.
    pub instructions: Option<u64>,
}

/// Counts events of the processes of each role, until [`Counting::finish`].
#[derive(Debug)]
pub struct Counting {
    roles: Vec<(String, Child, TempPath)>,
}

const SYSTEM_CALLS: &str = "raw_syscalls:sys_enter";
const INSTRUCTIONS: &str = "instructions";
/// perf is attached after this time, or has ended.
const ATTACH: Duration = Duration::from_millis(300);

// === impl Counting ===

impl Counting {
    /// Attaches perf, the program at this path, to the processes of each role.
    ///
    /// # Errors
    /// perf cannot be started.
    pub fn start(perf: &Path, pids: &BTreeMap<String, Vec<u32>>) -> Result<Counting, String> {
        let mut counting = Counting { roles: Vec::new() };
        for (role, pids) in pids {
            let file = tempfile::NamedTempFile::new().map_err(|error| crate::reason::of(&error))?.into_temp_path();
            let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
            let mut command = Command::new(perf);
            command.args(["stat", "-x", ";", "-e", &format!("{SYSTEM_CALLS},{INSTRUCTIONS}"), "-p", &pids.join(",")]);
            command.arg("-o").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().map_err(|error| format!("perf: {}", crate::reason::of(&error)))?;
            counting.roles.push((role.clone(), child, file));
        }
        std::thread::sleep(ATTACH);
        Ok(counting)
    }

    /// Detaches, and returns what was counted, by role.
    pub fn finish(mut self) -> BTreeMap<String, KernelEvents> {
        let roles = std::mem::take(&mut self.roles);
        let finish = |(role, mut child, file): (String, Child, TempPath)| {
            interrupt(&mut child);
            (role, parse(&read(&file)))
        };
        roles.into_iter().map(finish).collect()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.roles.iter_mut().for_each(|(_, child, _)| interrupt(child));
    }
}

/// perf writes its counts when it is interrupted.
fn interrupt(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::INT);
    }
    let _ = child.wait();
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Lines of `perf stat -x ;`: count, unit, event, …
fn parse(text: &str) -> KernelEvents {
    let count = |event: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.split(';');
            let (count, name) = (fields.next()?, fields.nth(1)?);
            // perf may append a modifier: instructions:u.
            (name.split(':').next() == event.split(':').next()).then(|| count.parse().ok())?
        })
    };
    KernelEvents { system_calls: count(SYSTEM_CALLS), instructions: count(INSTRUCTIONS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_what_cannot_be_counted_is_missing() {
        let text =
            "# started on x\n\n1234;;raw_syscalls:sys_enter;9;100.00;;\n<not supported>;;instructions;0;0.00;;\n";
        assert_eq!(parse(text), KernelEvents { system_calls: Some(1234), instructions: None });
        assert_eq!(parse("77;;instructions:u;9;100.00;;\n").instructions, Some(77));
        assert_eq!(parse(""), KernelEvents::default());
    }
}
