//! A process and all its descendants, from /proc.
//!
//! A process that exits while it is read counts as nothing: its CPU time is in its parent's account by then. Nothing fails;
//! a value that cannot be read is missing.

use std::collections::BTreeMap;
use std::fs;

/// A process of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// User and system time, its own and that of its ended children, in clock ticks.
    pub cpu_ticks: u64,
    /// Its threads.
    pub threads: u32,
    /// Its start, in clock ticks since boot: a reused pid has another one.
    pub started: u64,
    /// Whether it has ended and waits for its parent.
    pub is_zombie: bool,
}

/// The kernel's counters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounters {
    /// Its CPU time, finer than clock ticks.
    pub cpu_nanoseconds: u64,
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches because another thread had its turn.
    pub involuntary: u64,
}

/// `roots` and all their descendants.
pub fn tree(roots: &[u32]) -> Vec<Process> {
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    let mut found = Vec::new();
    if roots.is_empty() {
        return found;
    }
    for process in all() {
        if roots.contains(&process.pid) {
            found.push(process);
        } else {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut next = 0;
    while let Some(process) = found.get(next).copied() {
        found.extend(children.remove(&process.pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// The processes of a process group.
pub fn group(number: u32) -> Vec<Process> {
    all().filter(|process| process.group == number).collect()
}

/// The process with this number.
pub fn process(pid: u32) -> Option<Process> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The proportional set size of a process in bytes; `None` if it is gone or may not be read.
pub fn pss_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The counters of each thread of a process, by the thread's number.
pub fn threads(pid: u32) -> Vec<(u32, ThreadCounters)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| {
        let (voluntary, involuntary) = parse_switches(&fs::read_to_string(thread.path().join("status")).ok()?)?;
        // Without CONFIG_SCHED_INFO, the file is missing.
        let schedstat = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let cpu_nanoseconds = schedstat.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let counters = ThreadCounters { cpu_nanoseconds, voluntary, involuntary };
        Some((thread.file_name().to_str()?.parse().ok()?, counters))
    };
    threads.filter_map(of_thread).collect()
}

fn all() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| process(entry.file_name().to_str()?.parse().ok()?))
}

/// /proc/PID/stat. The name in parentheses may contain anything.
fn parse_stat(text: &str) -> Option<Process> {
    let (pid, _) = text.split_once(' ')?;
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        pid: pid.parse().ok()?,
        parent: number(1)? as u32,
        group: number(2)? as u32,
        cpu_ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        threads: number(17)? as u32,
        started: number(19)?,
        is_zombie: matches!(fields.first(), Some(&"Z" | &"X")),
    })
}

fn parse_switches(text: &str) -> Option<(u64, u64)> {
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
    Some((of("voluntary_ctxt_switches:")?, of("nonvoluntary_ctxt_switches:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_skipped() {
        let fields = "S 7 1 1 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 5 0 12345 1 2";
        let process = parse_stat(&format!("42 (a) R 9 (b) {fields}\n")).unwrap();
        let expected =
            Process { pid: 42, parent: 7, group: 1, cpu_ticks: 100, threads: 5, started: 12_345, is_zombie: false };
        assert_eq!(process, expected);
        assert_eq!(parse_stat("42 (a"), None);
    }

    #[test]
    fn a_tree_has_the_root_its_children_and_no_others() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let me = std::process::id();
        let pids: Vec<_> = tree(&[me]).iter().map(|process| process.pid).collect();
        let of_child: Vec<_> = tree(&[child.id()]).iter().map(|process| process.pid).collect();
        let memory = pss_bytes(child.id());
        let threads = threads(me);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pids.contains(&me) && pids.contains(&child.id()), "{pids:?}");
        assert_eq!(of_child, [child.id()]);
        assert!(memory.is_some_and(|bytes| bytes > 0));
        assert!(!threads.is_empty());
        assert_eq!(tree(&[child.id()]), []);
    }
}
