//! Processes that the supervisor did not start itself: which prototype forked them, and how to kill one of them safely.
//!
//! A prototype reports the pid of each worker that it forks. Code of the application runs in the prototype, so each
//! claim is checked in /proc before the supervisor acts on it. A pid alone names the process that has it now: a
//! [`Process`] is identified by its start time too, and signals go through a pidfd that is known to mean that process.
//! A process that is gone is no error.

use procfs_core::FromRead;
use procfs_core::process::{Schedstat, SmapsRollup, Stat, StatM};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, waitid};
use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// One process, and no later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: Pid,
    /// When it was started, in clock ticks since the machine started.
    pub started: u64,
}

/// A child of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// The process.
    pub process: Process,
    /// Its process group.
    pub group: i32,
    /// Dead, and not yet reaped.
    pub dead: bool,
}

/// The result of the check of a prototype's claim that a pid is its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidClaim {
    /// This prototype forked the process.
    Valid(Process),
    /// There is no such process any more.
    Gone,
    /// The process is not the prototype's.
    Invalid,
}

/// How a process used the processors.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimes {
    /// How long it ran.
    pub ran: Duration,
    /// How long it waited for a processor.
    pub waited: Duration,
}

/// More than the kernel writes: some 50 numbers, and a short name.
const STAT_BYTES: usize = 2048;

/// How many children of a prototype are looked at for one claim: code of the application may keep thousands that are dead.
const MAX_CHILDREN_OF_CLAIM: usize = 1024;

/// Checks that this prototype, a child of ours in this group, has forked the process with this pid.
pub fn check_claim(pid: Pid, prototype: Pid, group: Pid) -> PidClaim {
    let Some(stat) = stat(pid) else {
        return PidClaim::Gone;
    };
    let is_adopted = stat.ppid == own_pid() && stat.pgrp == group.as_raw_pid();
    if stat.ppid == prototype.as_raw_pid() || is_adopted {
        return PidClaim::Valid(Process { pid, started: stat.starttime });
    }
    PidClaim::Invalid
}

/// The child of this prototype, the first process of a pid namespace, that has this pid inside the namespace. It is one of the newest.
pub fn outer_pid(inner_pid: i32, prototype: Pid) -> Option<Pid> {
    let prototype = prototype.as_raw_pid();
    let children = std::fs::read_to_string(format!("/proc/{prototype}/task/{prototype}/children")).ok()?;
    // The newest child is the last one, and mostly the wanted one.
    let newest = children.split_ascii_whitespace().rev().take(MAX_CHILDREN_OF_CLAIM);
    let mut pids = newest.filter_map(|pid| pid.parse::<i32>().ok());
    pids.find(|pid| innermost_pid(*pid) == Some(inner_pid)).and_then(Pid::from_raw)
}

/// Only this line is parsed: the whole file differs between kernels, and the name in it need not be UTF-8.
fn innermost_pid(pid: i32) -> Option<i32> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    pids.split_ascii_whitespace().next_back()?.parse().ok()
}

/// All children of the supervisor: those that it started, and those that it adopted. Without any, it costs one system call;
/// otherwise all processes of the machine are looked at.
pub fn children() -> Vec<Child> {
    if !has_child(WaitId::All) {
        return Vec::new();
    }
    let own = own_pid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse::<u32>().ok()? as i32));
    pids.filter(|pid| parent(*pid) == Some(own))
        .filter_map(|pid| {
            let stat = stat(pid).filter(|stat| stat.ppid == own)?;
            let process = Process { pid, started: stat.starttime };
            Some(Child { process, group: stat.pgrp, dead: is_dead(&stat) })
        })
        .collect()
}

/// Whether the supervisor has a child in this group, alive or not yet reaped. Unlike [`children`], it does not look at all processes
/// of the machine.
pub fn has_child_in(group: Pid) -> bool {
    has_child(WaitId::Pgid(Some(group)))
}

fn has_child(among: WaitId<'_>) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(among, options), Err(Errno::CHILD))
}

/// The pid of its parent. Only this field is parsed, and read at once: a machine may have thousands of processes, and few are
/// children.
fn parent(pid: Pid) -> Option<i32> {
    let mut stat = [0; STAT_BYTES];
    let length = File::open(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?.read(&mut stat).ok()?;
    // Its name, in parentheses, may have spaces and parentheses, and need not be UTF-8.
    let after_name = stat[..length].rsplit(|byte| *byte == b')').next()?;
    str::from_utf8(after_name).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

// === impl Process ===

impl Process {
    /// The process that has this pid now.
    pub fn find(pid: Pid) -> Option<Process> {
        stat(pid).map(|stat| Process { pid, started: stat.starttime })
    }

    /// Whether it has not been reaped yet.
    pub fn exists(self) -> bool {
        self.stat().is_some()
    }

    /// Whether it waits for something else than a processor, and nothing has stopped it.
    pub fn is_asleep(self) -> bool {
        self.stat().is_some_and(|stat| matches!(stat.state, 'S' | 'D'))
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(self) -> bool {
        self.stat().is_some_and(|stat| matches!(stat.state, 'T' | 't'))
    }

    /// Whether a signal has stopped it, and not a debugger.
    pub fn is_stopped_by_signal(self) -> bool {
        self.stat().is_some_and(|stat| stat.state == 'T')
    }

    /// Whether it is a child of the supervisor, alive or not yet reaped.
    pub fn is_child(self) -> bool {
        self.stat().is_some_and(|stat| stat.ppid == own_pid())
    }

    /// Whether it is dead, reaped or not.
    pub fn is_dead(self) -> bool {
        self.stat().is_none_or(|stat| is_dead(&stat))
    }

    /// How it used the processors; `None` if the kernel does not count that, or the process is gone.
    pub fn cpu_times(self) -> Option<CpuTimes> {
        let Schedstat { sum_exec_runtime, run_delay, .. } = Schedstat::from_file(self.file("schedstat")).ok()?;
        Some(CpuTimes { ran: Duration::from_nanos(sum_exec_runtime), waited: Duration::from_nanos(run_delay) })
    }

    /// The processor time of all its threads.
    pub fn total_cpu(self) -> Option<Duration> {
        let Stat { utime, stime, .. } = self.stat()?;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Some(Duration::from_secs(1).mul_f64((utime + stime) as f64 / ticks as f64))
    }

    /// How many descriptors it has open; `None` if that may not be read.
    pub fn descriptors(self) -> Option<usize> {
        Some(std::fs::read_dir(self.file("fd")).ok()?.count())
    }

    /// How much memory it uses, in bytes, with its share of what it shares with others; `None` if that may not be read.
    /// The kernel walks through all its pages for that.
    pub fn proportional_bytes(self) -> Option<u64> {
        let rollup = SmapsRollup::from_file(self.file("smaps_rollup")).ok()?;
        rollup.memory_map_rollup.0.first()?.extension.map.get("Pss").copied()
    }

    /// How much memory it uses, in bytes, without files, opcache and the channel. Pages that it got from the prototype,
    /// and that neither has written since, count too.
    pub fn private_bytes(self) -> Option<u64> {
        let StatM { resident, shared, .. } = StatM::from_file(self.file("statm")).ok()?;
        Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
    }

    /// Kills it, if it still exists.
    pub fn kill(self) {
        // The pidfd comes first: a process that gets the pid after the check below is not the one that the pidfd means.
        if let Ok(pidfd) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty())
            && self.exists()
        {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    fn stat(self) -> Option<Stat> {
        stat(self.pid).filter(|stat| stat.starttime == self.started)
    }

    fn file(self, name: &str) -> String {
        format!("/proc/{}/{name}", self.pid.as_raw_pid())
    }
}

fn stat(pid: Pid) -> Option<Stat> {
    Stat::from_file(format!("/proc/{}/stat", pid.as_raw_pid())).ok()
}

fn is_dead(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn pid(child: &std::process::Child) -> Pid {
        Pid::from_child(child)
    }

    fn end(mut child: std::process::Child) {
        let _ = child.kill();
        let _ = child.wait();
    }

    #[test]
    fn a_claim_is_valid_for_a_child_of_the_prototype_only() {
        let mut prototype = Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let neighbour = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(prototype.stdout.take().unwrap()), &mut line).unwrap();
        let worker = Pid::from_raw(line.trim().parse().unwrap()).unwrap();

        let PidClaim::Valid(process) = check_claim(worker, pid(&prototype), pid(&prototype)) else {
            panic!("not the prototype's child")
        };
        assert_eq!(check_claim(worker, pid(&neighbour), pid(&neighbour)), PidClaim::Invalid);
        assert_eq!(check_claim(pid(&neighbour), pid(&prototype), pid(&prototype)), PidClaim::Invalid);
        assert_eq!(check_claim(rustix::process::getpid(), pid(&prototype), pid(&prototype)), PidClaim::Invalid);
        assert_eq!(check_claim(Pid::INIT, pid(&prototype), pid(&prototype)), PidClaim::Invalid);
        assert!(process.exists() && !process.is_child());

        // Another process with the same pid is left alone.
        Process { started: process.started + 1, ..process }.kill();
        assert!(process.exists());
        process.kill();
        assert!(prototype.wait().unwrap().code().is_some(), "it waited until its child exited");
        assert!(!process.exists());
        assert_eq!(check_claim(worker, pid(&prototype), pid(&prototype)), PidClaim::Gone);
        end(neighbour);
    }

    #[test]
    fn children_are_found_with_their_groups() {
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let found = || children().into_iter().find(|found| found.process.pid == pid(&child));
        let Child { process, group, dead } = found().unwrap();
        assert_eq!((group, dead), (pid(&child).as_raw_pid(), false));
        process.kill();
        while !found().unwrap().dead {}
        assert!(process.is_child(), "until it is reaped");
        end(child);
        assert!(!process.exists());
    }

    #[test]
    fn this_test_uses_a_processor_and_memory() {
        let own = Process::find(rustix::process::getpid()).unwrap();
        assert!(own.private_bytes().unwrap() > 4096 && own.proportional_bytes().unwrap() > 1 << 20);
        assert!(own.cpu_times().is_none_or(|times| times.ran > Duration::ZERO));
        assert!(own.exists() && !own.is_dead() && !own.is_stopped());
    }
}
