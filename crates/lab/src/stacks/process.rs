//! Starts and stops the processes of a stack.
//!
//! Each process leads a session and a process group of its own: Ctrl-C reaches the lab only, which stops everything in order, and
//! the measured application has neither a terminal, in which it could type for the operator, nor the operator's keys. With
//! util-linux's setpriv it also ends when the lab is killed.

use super::detect::find;
use crate::measure::process_tree::{self, Process};
use howdah_protocol::child::session::begin_session;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How to start a process.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// Its words.
    pub command: &'a [String],
    /// Its whole environment.
    pub environment: &'a BTreeMap<String, String>,
    /// Its working folder.
    pub folder: &'a Path,
    /// The file for its output.
    pub log: &'a Path,
    /// Its user; `None`: the lab's.
    pub user: Option<&'a str>,
    /// Its cores; empty: all of the lab's.
    pub cores: &'a [u32],
}

/// The time that a process has to end after SIGTERM, and again after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Starts a process.
///
/// # Errors
/// The program cannot be executed, or its user cannot be changed to.
pub fn start(launch: &Launch) -> Result<Child, String> {
    let [program, ..] = launch.command else { return Err("a process without a command".to_owned()) };
    let output = log_file(launch.log).map_err(|error| crate::reason::at(launch.log, &error))?;
    let mut command = command(launch.user, launch.command)?;
    command.env_clear().envs(launch.environment).current_dir(launch.folder).stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(|error| error.to_string())?).stderr(output);
    on_cores(launch.cores, || command.spawn().map_err(|error| format!("{program}: {}", crate::reason::of(&error))))?
}

/// A command that leads a session of its own, as this user, and ends with the lab. Without a user it stays the lab's, and without
/// setpriv it outlives a lab that is killed.
///
/// # Errors
/// Its user cannot be changed to.
pub fn command(user: Option<&str>, words: &[String]) -> Result<Command, String> {
    let mut all = Vec::new();
    match (find("setpriv"), user) {
        (Some(setpriv), _) => all.extend([setpriv.display().to_string(), "--pdeathsig".to_owned(), "TERM".to_owned()]),
        (None, Some(user)) => {
            return Err(format!("setpriv is needed to start a process as {user}: apt-get install util-linux"));
        }
        (None, None) => {}
    }
    if let Some(user) = user {
        all.extend([format!("--reuid={user}"), format!("--regid={user}"), "--init-groups".to_owned()]);
    }
    all.extend(words.iter().cloned());
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]);
    begin_session(&mut command);
    Ok(command)
}

/// Stops a process and what is left of its tree. A process that does not exit even after SIGKILL, because it waits in the kernel, is left
/// with a message.
pub fn stop(child: &mut Child) {
    let mut family = process_tree::tree(&[child.id()]);
    signal(child.id(), Signal::TERM);
    let deadline = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(POLL);
    }
    // A server that was still starting has forked since: its children are in its process group.
    let forked: Vec<_> = process_tree::group(child.id())
        .into_iter()
        .filter(|process| family.iter().all(|old| old.pid != process.pid))
        .collect();
    family.extend(forked);
    let orphans = alive(&family);
    for process in &orphans {
        signal(process.pid, Signal::TERM);
    }
    if !orphans.is_empty() {
        wait_for_end_of(&family, deadline);
    }
    for process in alive(&family) {
        signal(process.pid, Signal::KILL);
    }
    if matches!(child.try_wait(), Ok(None)) {
        signal(child.id(), Signal::KILL);
    }
    let left = still_running(child, &family, PATIENCE);
    if !left.is_empty() {
        // Another message may be on the terminal's line. A closed standard error is not a failure.
        let clear = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{}", describe_left(&left));
    }
}

/// The processes that have not exited at the end of this time. A process that is killed ends when the kernel comes to it; one that waits for
/// a file system that hangs does not.
fn still_running(child: &mut Child, family: &[Process], patience: Duration) -> Vec<u32> {
    let deadline = Instant::now() + patience;
    loop {
        // A zombie whose other threads still run cannot be waited for.
        let is_child_left = matches!(child.try_wait(), Ok(None));
        let mut left: Vec<_> = alive(family).iter().map(|process| process.pid).collect();
        if is_child_left && !left.contains(&child.id()) {
            left.push(child.id());
        }
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(POLL);
    }
}

fn describe_left(pids: &[u32]) -> String {
    let all: Vec<_> = pids.iter().map(ToString::to_string).collect();
    let subject = if pids.len() == 1 { "process" } else { "processes" };
    let verb = if pids.len() == 1 { "was killed and has" } else { "were killed and have" };
    format!(
        "{subject} {} {verb} not exited within {} s, which happens when a file system hangs; the lab goes on without waiting",
        all.join(", "),
        PATIENCE.as_secs()
    )
}

fn wait_for_end_of(family: &[Process], deadline: Instant) {
    while !alive(family).is_empty() && Instant::now() < deadline {
        std::thread::sleep(POLL);
    }
}

/// Runs `f` while this thread is on these cores, which its children inherit.
fn on_cores<T>(cores: &[u32], f: impl FnOnce() -> T) -> Result<T, String> {
    if cores.is_empty() {
        return Ok(f());
    }
    let before = sched_getaffinity(None).map_err(|error| format!("cores: {error}"))?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core as usize));
    sched_setaffinity(None, &set).map_err(|error| format!("the cores {cores:?} cannot be used: {error}"))?;
    let result = f();
    let _ = sched_setaffinity(None, &before);
    Ok(result)
}

fn log_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended.
        let _ = kill_process(pid, signal);
    }
}

/// The processes of the family that still run. A reused pid has another start time; a zombie has ended.
fn alive(family: &[Process]) -> Vec<Process> {
    let is_alive = |process: &&Process| {
        process_tree::process(process.pid).is_some_and(|now| now.started == process.started && !now.is_zombie)
    };
    family.iter().filter(is_alive).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch<'a>(
        command: &'a [String],
        environment: &'a BTreeMap<String, String>,
        folder: &'a Path,
        log: &'a Path,
    ) -> Launch<'a> {
        Launch { command, environment, folder, log, user: None, cores: &[] }
    }

    #[test]
    fn a_stopped_process_leaves_no_child_behind() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let environment = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
        // SIGTERM ends the shell; its child would live on.
        let command = ["sh", "-c", "sleep 600 & echo \"$A-$HOME\"; echo ready; wait"].map(str::to_owned);
        let mut child = start(&launch(&command, &environment, folder.path(), &log)).unwrap();
        while !std::fs::read_to_string(&log).unwrap().contains("ready") {
            std::thread::sleep(POLL);
        }
        let family = process_tree::tree(&[child.id()]);
        assert!(family.len() >= 2, "{family:?}");
        stop(&mut child);
        assert!(alive(&family).is_empty());
        assert!(std::fs::read_to_string(&log).unwrap().starts_with("b-\n"), "a clean environment");
    }

    #[test]
    fn a_child_that_was_forked_during_the_stop_is_stopped_too() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let environment = BTreeMap::new();
        let script = "trap 'sleep 600 & exit' TERM; echo ready; while :; do sleep 0.05; done";
        let command = ["sh", "-c", script].map(str::to_owned);
        let mut child = start(&launch(&command, &environment, folder.path(), &log)).unwrap();
        while !std::fs::read_to_string(&log).unwrap().contains("ready") {
            std::thread::sleep(POLL);
        }
        stop(&mut child);
        assert_eq!(alive(&process_tree::group(child.id())), []);
    }

    #[test]
    fn a_process_that_does_not_exit_is_left_with_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let (environment, log) = (BTreeMap::new(), folder.path().join("log"));
        let command = ["sleep", "600"].map(str::to_owned);
        let mut child = start(&launch(&command, &environment, folder.path(), &log)).unwrap();
        let (pid, family) = (child.id(), process_tree::tree(&[child.id()]));
        // It stands for a process that waits in the kernel.
        assert_eq!(still_running(&mut child, &family, Duration::from_millis(50)), [pid]);
        assert_eq!(still_running(&mut child, &[], Duration::from_millis(50)), [pid]);
        let message = describe_left(&[pid]);
        assert!(message.starts_with(&format!("process {pid} was killed and has not exited within 10 s")), "{message}");
        stop(&mut child);
        assert!(still_running(&mut child, &family, PATIENCE).is_empty());
    }

    #[test]
    fn a_process_leads_a_session_without_a_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let (environment, log) = (BTreeMap::new(), folder.path().join("log"));
        let command = [
            "sh",
            "-c",
            "read -r pid _ _ _ group session terminal _ < /proc/$$/stat; echo $pid $group $session $terminal",
        ];
        let mut child = start(&launch(&command.map(str::to_owned), &environment, folder.path(), &log)).unwrap();
        assert!(child.wait().unwrap().success());
        let pid = child.id();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{pid} {pid} {pid} 0\n"));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_or_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (environment, log) = (BTreeMap::new(), folder.path().join("log"));
        match start(&launch(&["/no/such/program".to_owned()], &environment, folder.path(), &log)) {
            Ok(mut child) => {
                assert!(!child.wait().unwrap().success());
                assert!(std::fs::read_to_string(&log).unwrap().contains("/no/such/program"));
            }
            Err(reason) => assert!(reason.contains("/no/such/program"), "{reason}"),
        }
    }
}
