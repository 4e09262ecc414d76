//! The processors and the memory that an application may use: those of the machine, or of its control group if that has
//! less.
//!
//! Only control groups of version 2 are considered: `cpu.max` and `memory.max`, of the group and of all groups around
//! it (Documentation/admin-guide/cgroup-v2.rst of Linux). A limit that cannot be read does not apply.
//!
//! /proc/meminfo and /proc/stat are parsed here: procfs-core refuses files that lack other fields, as those of gVisor and
//! lxcfs do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limits of an application's processes.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The folders of its control group and of the groups around it, and whether other applications are in them too.
    groups: Vec<(PathBuf, bool)>,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// All memory.
    pub total: u64,
    /// The memory that can be used without taking it from other processes: file caches are given up.
    pub available: u64,
}

// === impl Machine ===

impl Machine {
    /// The machine within these control groups, from the inside out. Applications without a group of their own are in
    /// the groups `ours`.
    pub fn within(groups: Vec<PathBuf>, ours: &[PathBuf]) -> Machine {
        let groups = groups.into_iter().map(|group| {
            let is_shared = ours.contains(&group);
            (group, is_shared)
        });
        Machine { groups: groups.collect() }
    }

    /// How many processors there are, at least a hundredth of one.
    pub fn cores(&self) -> f64 {
        let allowed = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()).max(1);
        let quotas = self.groups.iter().filter_map(|(group, _)| quota(&read(group, "cpu.max")?));
        quotas.fold(f64::from(allowed), f64::min).max(0.01)
    }

    /// How long a processor of the machine has been idle since the machine started, on average; `None` without /proc.
    pub fn idle(&self) -> Option<Duration> {
        let (ticks, processors) = idle_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        let seconds = ticks as f64 / processors as f64 / rustix::param::clock_ticks_per_second() as f64;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// How much memory there is; `None` without /proc. `promised` bytes of the memory that is shared with other
    /// applications will be used by these.
    pub fn memory(&self, promised: u64) -> Option<Available> {
        let Available { total, available } = of_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let machine = Available { total, available: available.saturating_sub(promised) };
        let groups = self.groups.iter().filter_map(|(group, is_shared)| {
            let limit = read(group, "memory.max")?.trim().parse().ok()?;
            let used: u64 = read(group, "memory.current")?.trim().parse().ok()?;
            let caches = file_caches(&read(group, "memory.stat")?);
            let promised = if *is_shared { promised } else { 0 };
            Some(Available { total: limit, available: limit.saturating_sub(used.saturating_sub(caches) + promised) })
        });
        Some(groups.fold(machine, |least, group| Available {
            total: least.total.min(group.total),
            available: least.available.min(group.available),
        }))
    }
}

fn read(group: &Path, file: &str) -> Option<String> {
    fs::read_to_string(group.join(file)).ok()
}

/// The idle time of all processors, in clock ticks, and how many there are.
fn idle_ticks(text: &str) -> Option<(u64, usize)> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().skip(3);
    let (idle, waiting_for_disks): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let is_processor = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    let processors = text.lines().filter(is_processor).count();
    (processors > 0).then_some((idle + waiting_for_disks, processors))
}

/// `150000 100000` is 150 ms in each 100 ms; `max 100000` is no limit.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn of_meminfo(text: &str) -> Option<Available> {
    let kilobytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(Available { total: kilobytes("MemTotal")? << 10, available: kilobytes("MemAvailable")? << 10 })
}

/// The memory of a group that caches files. The kernel takes it back before a process gets none.
fn file_caches(stat: &str) -> u64 {
    let pages = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        ["inactive_file", "active_file"].contains(&name).then(|| bytes.parse::<u64>().unwrap_or(0))
    });
    pages.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_the_groups_applies() {
        let folder = tempfile::tempdir().unwrap();
        let group = |name: &str, files: &[(&str, &str)]| {
            let group = folder.path().join(name);
            fs::create_dir(&group).unwrap();
            files.iter().for_each(|(file, text)| fs::write(group.join(file), text).unwrap());
            group
        };
        let mib = |count: u64| (count << 20).to_string();
        let stat = format!("anon 5\ninactive_file {}\nactive_file {}\nfile 9\n", mib(20), mib(10));
        let inner = group(
            "inner",
            &[
                ("cpu.max", "max 100000\n"),
                ("memory.max", &mib(100)),
                ("memory.current", &mib(60)),
                ("memory.stat", &stat),
            ],
        );
        let outer =
            group("outer", &[("cpu.max", "50000 100000\n"), ("memory.max", "max\n"), ("memory.current", "7\n")]);
        let nothing = folder.path().join("nothing");
        let machine = Machine::within(vec![inner, outer.clone(), nothing], &[outer]);
        assert_eq!(machine.cores(), 0.5);
        let memory = machine.memory(0).unwrap();
        assert_eq!((memory.total >> 20, memory.available >> 20), (100, 70));
        assert!(Machine::within(Vec::new(), &[]).memory(0).unwrap().total > memory.total);
    }

    #[test]
    fn quotas_and_files_of_proc_are_parsed() {
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!(quota("max 100000\n"), None);
        let text = "MemTotal:       2048 kB\nMemFree:  7 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(of_meminfo(text), Some(Available { total: 2 << 20, available: 1 << 20 }));
        assert_eq!(of_meminfo(""), None);
        let text =
            "cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 5 10 15 200 25 3 3 4 0 0\ncpu1 5 10 15 200 25 3 4 4 0 0\nintr 9\n";
        assert_eq!(idle_ticks(text), Some((450, 2)));
        assert_eq!(idle_ticks("intr 9\n"), None);
    }
}
