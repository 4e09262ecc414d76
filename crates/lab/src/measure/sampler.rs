//! Reads a process tree at the start of a run, every second, and at its end, in a thread of its own.

use super::process_tree::{ThreadCounters, pss_bytes, threads, tree};
use super::role::{self, Role};
use rustix::process::setpriority_process;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A process tree at one moment. Counters begin at 0 with the first sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time since the sampler's start.
    pub at: Duration,
    /// User and system time since the start.
    pub cpu: Duration,
    /// Proportional set size; `None` if no process may be read.
    pub pss_bytes: Option<u64>,
    /// Threads.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
    /// Voluntary context switches since the start.
    pub voluntary: u64,
    /// Involuntary context switches since the start.
    pub involuntary: u64,
    /// The processes of each role.
    pub roles: BTreeMap<String, RoleSample>,
}

/// The processes of a role at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoleSample {
    /// CPU time since the start, by the scheduler's clock.
    pub cpu: Duration,
    /// Context switches since the start.
    pub switches: u64,
    /// Processes.
    pub processes: u32,
    /// Proportional set size.
    pub pss_bytes: u64,
}

/// A thread that samples.
#[derive(Debug)]
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

struct Counters {
    roots: Vec<u32>,
    roles: Vec<Role>,
    start: Instant,
    tick: Duration,
    first_ticks: Option<u64>,
    last_ticks: u64,
    threads: BTreeMap<(u32, u64, u32), ThreadCounters>,
    voluntary: u64,
    involuntary: u64,
    /// CPU time and context switches by role.
    by_role: BTreeMap<String, (Duration, u64)>,
}

const INTERVAL: Duration = Duration::from_secs(1);
/// The nice value of the thread. A sample takes milliseconds, in which requests of the load generator would be sent late.
const NICE: i32 = 10;

// === impl Sampler ===

impl Sampler {
    /// Begins to sample the trees of these processes, as a whole and by role.
    pub fn start(roots: Vec<u32>, roles: Vec<Role>) -> Sampler {
        let (stop, stopped) = channel();
        let mut counters = Counters {
            roots,
            roles,
            start: Instant::now(),
            tick: Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1),
            first_ticks: None,
            last_ticks: 0,
            threads: BTreeMap::new(),
            voluntary: 0,
            involuntary: 0,
            by_role: BTreeMap::new(),
        };
        let first = counters.sample();
        let thread = std::thread::spawn(move || counters.run(first, &stopped));
        Sampler { stop, thread }
    }

    /// Takes a last sample, and returns all.
    pub fn finish(self) -> Vec<Sample> {
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

// === impl Counters ===

impl Counters {
    fn run(mut self, first: Sample, stopped: &Receiver<()>) -> Vec<Sample> {
        // On Linux, of this thread only. Each thread may lower its own.
        let _ = setpriority_process(None, NICE);
        let mut samples = vec![first];
        loop {
            let next = INTERVAL * samples.len() as u32;
            let is_over = !matches!(
                stopped.recv_timeout(next.saturating_sub(self.start.elapsed())),
                Err(RecvTimeoutError::Timeout)
            );
            samples.push(self.sample());
            if is_over {
                return samples;
            }
        }
    }

    fn sample(&mut self) -> Sample {
        let at = self.start.elapsed();
        let processes = tree(&self.roots);
        let ticks = processes.iter().map(|process| process.cpu_ticks).sum();
        // A process whose parent ignores its end takes its time with it: the sum must not fall.
        self.last_ticks = self.last_ticks.max(ticks);
        let first_ticks = *self.first_ticks.get_or_insert(ticks);
        let is_first = self.threads.is_empty();
        let mut roles: BTreeMap<String, RoleSample> = BTreeMap::new();
        let mut sizes = Vec::new();
        for process in &processes {
            let size = pss_bytes(process.pid);
            sizes.extend(size);
            let spent = self.spent(process.pid, process.started, is_first);
            if let Some(role) = role::of(&self.roles, &self.roots, process) {
                let sum = self.by_role.entry(role.name.clone()).or_default();
                *sum =
                    (sum.0 + Duration::from_nanos(spent.cpu_nanoseconds), sum.1 + spent.voluntary + spent.involuntary);
                let sample = roles.entry(role.name.clone()).or_default();
                sample.processes += 1;
                sample.pss_bytes += size.unwrap_or(0);
            }
        }
        for (name, (cpu, switches)) in &self.by_role {
            // A role whose processes are all gone keeps what it has spent.
            let sample = roles.entry(name.clone()).or_default();
            (sample.cpu, sample.switches) = (*cpu, *switches);
        }
        Sample {
            at,
            cpu: self.tick * u32::try_from(self.last_ticks - first_ticks).unwrap_or(u32::MAX),
            pss_bytes: (!sizes.is_empty()).then(|| sizes.iter().sum()),
            threads: processes.iter().map(|process| process.threads).sum(),
            processes: processes.len() as u32,
            voluntary: self.voluntary,
            involuntary: self.involuntary,
            roles,
        }
    }

    /// The counters of the threads of a process since the last sample.
    fn spent(&mut self, pid: u32, started: u64, is_first: bool) -> ThreadCounters {
        let mut spent = ThreadCounters::default();
        for (thread, now) in threads(pid) {
            let before = self.threads.insert((pid, started, thread), now);
            let before = before.unwrap_or(if is_first { now } else { ThreadCounters::default() });
            spent.cpu_nanoseconds += now.cpu_nanoseconds.saturating_sub(before.cpu_nanoseconds);
            spent.voluntary += now.voluntary.saturating_sub(before.voluntary);
            spent.involuntary += now.involuntary.saturating_sub(before.involuntary);
        }
        self.voluntary += spent.voluntary;
        self.involuntary += spent.involuntary;
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_uses_cpu_and_memory() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let role = Role { name: "php".to_owned(), processes: "^sh -c".parse().unwrap() };
        let sampler = Sampler::start(vec![child.id()], vec![role]);
        // Until it has used CPU time: how long that takes depends on the machine.
        let ticks = || tree(&[child.id()]).iter().map(|process| process.cpu_ticks).sum::<u64>();
        while ticks() < 10 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let samples = sampler.finish();
        child.kill().unwrap();
        child.wait().unwrap();
        let (first, last) = (&samples[0], &samples[samples.len() - 1]);
        assert_eq!(first.cpu, Duration::ZERO);
        assert!(last.cpu >= Duration::from_millis(50), "{last:?}");
        assert!(last.pss_bytes.is_some_and(|bytes| bytes > 10_000), "{last:?}");
        assert_eq!((last.threads, last.processes), (1, 1));
        let role = last.roles["php"];
        assert!(role.cpu >= Duration::from_millis(50) && role.pss_bytes > 10_000, "{role:?}");
        assert_eq!(role.processes, 1);
        assert!(samples.is_sorted_by_key(|sample| (sample.cpu, sample.voluntary, sample.involuntary)));
    }
}
