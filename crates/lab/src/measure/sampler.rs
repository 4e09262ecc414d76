//! Reads a process tree at the start of a run, every second, and at its end, in a thread of its own.

use super::process_tree::{Switches, pss_bytes, switches, tree};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A process tree at one moment. Counters begin at 0 with the first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
}

/// A thread that samples.
#[derive(Debug)]
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

struct Counters {
    roots: Vec<u32>,
    start: Instant,
    tick: Duration,
    first_ticks: Option<u64>,
    last_ticks: u64,
    threads: BTreeMap<(u32, u64, u32), Switches>,
    switches: Switches,
}

const INTERVAL: Duration = Duration::from_secs(1);

// === impl Sampler ===

impl Sampler {
    /// Begins to sample the trees of these processes.
    pub fn start(roots: Vec<u32>) -> Sampler {
        let (stop, stopped) = channel();
        let mut counters = Counters {
            roots,
            start: Instant::now(),
            tick: Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1),
            first_ticks: None,
            last_ticks: 0,
            threads: BTreeMap::new(),
            switches: (0, 0),
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
        for process in &processes {
            for (thread, now) in switches(process.pid) {
                let before = self.threads.insert((process.pid, process.started, thread), now);
                let before = before.unwrap_or(if is_first { now } else { (0, 0) });
                self.switches.0 += now.0.saturating_sub(before.0);
                self.switches.1 += now.1.saturating_sub(before.1);
            }
        }
        let sizes: Vec<_> = processes.iter().filter_map(|process| pss_bytes(process.pid)).collect();
        Sample {
            at,
            cpu: self.tick * u32::try_from(self.last_ticks - first_ticks).unwrap_or(u32::MAX),
            pss_bytes: (!sizes.is_empty()).then(|| sizes.iter().sum()),
            threads: processes.iter().map(|process| process.threads).sum(),
            processes: processes.len() as u32,
            voluntary: self.switches.0,
            involuntary: self.switches.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_uses_cpu_and_memory() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let sampler = Sampler::start(vec![child.id()]);
        // Until it has used CPU time: how long that takes depends on the machine.
        let ticks = || tree(&[child.id()]).iter().map(|process| process.cpu_ticks).sum::<u64>();
        while ticks() < 10 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let samples = sampler.finish();
        child.kill().unwrap();
        child.wait().unwrap();
        let (first, last) = (samples[0], samples[samples.len() - 1]);
        assert_eq!(first.cpu, Duration::ZERO);
        assert!(last.cpu >= Duration::from_millis(50), "{last:?}");
        assert!(last.pss_bytes.is_some_and(|bytes| bytes > 10_000), "{last:?}");
        assert_eq!((last.threads, last.processes), (1, 1));
        assert!(samples.is_sorted_by_key(|sample| (sample.cpu, sample.voluntary, sample.involuntary)));
    }
}
