//! Processes that we did not start ourselves: whose they are, and how to kill one and no other.
//!
//! A prototype says which process its worker is, and code of the application runs in it: what it says is looked up in
//! /proc before anything is done about it. A process id alone names whoever has it now, so a process is named by its
//! time of birth, too, and signals go through a pidfd that is known to mean that life. A process that is gone is no error.

use rustix::process::{Pid, PidfdFlags, Signal};

/// One life of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: Pid,
    /// When it was born, in clock ticks since the machine started.
    pub born: u64,
}

/// A child of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Itself.
    pub process: Process,
    /// Its process group.
    pub group: i32,
    /// Dead, and not yet reaped.
    pub dead: bool,
}

/// Whose process it is that a prototype told us about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// One that this prototype forked.
    Kin(Process),
    /// Nobody's: it has died since.
    Gone,
    /// Somebody else's.
    Stranger,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    dead: bool,
    /// It uses a processor or waits for one.
    runnable: bool,
    /// Somebody has stopped it: a signal, or a debugger.
    stopped: bool,
    parent: i32,
    group: i32,
    born: u64,
}

/// What a process is that this prototype, a child of ours in this group, says it has forked.
pub fn told(pid: Pid, prototype: Pid, group: Pid) -> Told {
    let Some(stat) = Stat::of(pid) else {
        return Told::Gone;
    };
    let adopted = stat.parent == own_pid() && stat.group == group.as_raw_pid();
    if stat.parent == prototype.as_raw_pid() || adopted {
        return Told::Kin(Process { pid, born: stat.born });
    }
    Told::Stranger
}

/// The child of this prototype, the first process of a namespace, that has this number within it.
pub fn within(number: i32, prototype: Pid) -> Option<Pid> {
    let prototype = prototype.as_raw_pid();
    let children = std::fs::read_to_string(format!("/proc/{prototype}/task/{prototype}/children")).ok()?;
    let innermost = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_ascii_whitespace().next_back()?.parse::<i32>().ok()
    };
    // The newest is the last one, and mostly the one that is meant.
    let mut pids = children.split_ascii_whitespace().rev().filter_map(|pid| pid.parse::<i32>().ok());
    pids.find(|pid| innermost(*pid) == Some(number)).and_then(Pid::from_raw)
}

/// All our children: those that we started, and those that we adopted.
pub fn children() -> Vec<Child> {
    let own = own_pid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse::<u32>().ok()? as i32));
    pids.filter_map(|pid| {
        let Stat { dead, parent, group, born, .. } = Stat::of(pid)?;
        (parent == own).then_some(Child { process: Process { pid, born }, group, dead })
    })
    .collect()
}

// === impl Process ===

impl Process {
    /// Whether it has not been reaped yet.
    pub fn exists(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.born == self.born)
    }

    /// The life that has this number now.
    pub fn find(pid: Pid) -> Option<Process> {
        Stat::of(pid).map(|stat| Process { pid, born: stat.born })
    }

    /// Whether it uses a processor or waits for one.
    pub fn is_runnable(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.born == self.born && stat.runnable)
    }

    /// Whether somebody has stopped it: a signal, or a debugger.
    pub fn is_stopped(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.born == self.born && stat.stopped)
    }

    /// How much memory it takes, in bytes, with its share of what it shares with others; `None` when that may not be
    /// looked at.
    pub fn proportional_bytes(self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid.as_raw_pid())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    }

    /// Whether it is a child of ours, alive or not yet reaped.
    pub fn is_child(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.born == self.born && stat.parent == own_pid())
    }

    /// Whether it is dead, reaped or not.
    pub fn is_dead(self) -> bool {
        Stat::of(self.pid).is_none_or(|stat| stat.born != self.born || stat.dead)
    }

    /// Kills it, if it is still there.
    pub fn kill(self) {
        // First the pidfd, then the look at whom it means: whoever gets the number afterwards is not meant.
        if let Ok(pidfd) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty())
            && self.exists()
        {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
        }
    }
}

// === impl Stat ===

impl Stat {
    fn of(pid: Pid) -> Option<Stat> {
        let text = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        Stat::parse(&String::from_utf8_lossy(&text))
    }

    /// `pid (name) state parent group …`: the name may hold anything, parentheses too.
    fn parse(text: &str) -> Option<Stat> {
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        Some(Stat {
            dead: matches!(*fields.first()?, "Z" | "X"),
            runnable: *fields.first()? == "R",
            stopped: matches!(*fields.first()?, "T" | "t"),
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            born: fields.get(19)?.parse().ok()?,
        })
    }
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
    fn a_name_with_parentheses_does_not_confuse() {
        let text = "77 (a) b (c) S 12 34 5 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 987 1 1\n";
        assert_eq!(
            Stat::parse(text),
            Some(Stat { dead: false, runnable: false, stopped: false, parent: 12, group: 34, born: 987 })
        );
        assert_eq!(Stat::parse("77 (a) S 12"), None);
    }

    #[test]
    fn a_prototypes_child_is_told_from_everybody_else() {
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

        let Told::Kin(process) = told(worker, pid(&prototype), pid(&prototype)) else {
            panic!("not the prototype's child")
        };
        assert_eq!(told(worker, pid(&neighbour), pid(&neighbour)), Told::Stranger);
        assert_eq!(told(pid(&neighbour), pid(&prototype), pid(&prototype)), Told::Stranger);
        assert_eq!(told(rustix::process::getpid(), pid(&prototype), pid(&prototype)), Told::Stranger);
        assert_eq!(told(Pid::INIT, pid(&prototype), pid(&prototype)), Told::Stranger);
        assert!(process.exists() && !process.is_child());

        // Another life of the same number is left alone.
        Process { born: process.born + 1, ..process }.kill();
        assert!(process.exists());
        process.kill();
        assert!(prototype.wait().unwrap().code().is_some(), "it waited for its child's end");
        assert!(!process.exists());
        assert_eq!(told(worker, pid(&prototype), pid(&prototype)), Told::Gone);
        end(neighbour);
    }

    #[test]
    fn our_children_are_found_with_their_groups() {
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
}
