//! Numbers that the kernel has to look for: of each process, and of its pages. They are kept for ten seconds.

use crate::control::Control;
use crate::os::processes::process::Process;
use howdah_metrics::exposition::Exposition;
use howdah_metrics::families as family;
use rustix::process::{Pid, getpid};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The numbers, and when they were read.
#[derive(Debug, Default)]
pub struct CostlyNumbers {
    read_at: Option<Instant>,
    /// Of the supervisor, and of the router if there is one.
    processes: BTreeMap<&'static str, ProcessNumbers>,
    /// The router whose processor time was read last, and that time.
    router: Option<(Pid, Duration)>,
    /// The processor time of the routers before it.
    former_routers: Duration,
    /// The memory of each application's processes.
    applications: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug)]
struct ProcessNumbers {
    cpu: Duration,
    memory: Option<u64>,
    descriptors: Option<usize>,
}

/// How long the numbers are kept.
const KEPT: Duration = Duration::from_secs(10);
const SUPERVISOR: &str = "supervisor";
const ROUTER: &str = "router";

// === impl CostlyNumbers ===

impl CostlyNumbers {
    /// Reads the numbers, if they are old.
    pub fn update(&mut self, control: &Control, now: Instant) {
        if self.read_at.is_some_and(|at| now.saturating_duration_since(at) < KEPT) {
            return;
        }
        self.read_at = Some(now);
        self.processes.clear();
        if let Some(numbers) = ProcessNumbers::of(getpid()) {
            self.processes.insert(SUPERVISOR, numbers);
        }
        let router = control.runtime.router.pid();
        if let Some((pid, cpu)) = self.router
            && router != Some(pid)
        {
            // Its processor time after the last look is not known.
            self.former_routers += cpu;
            self.router = None;
        }
        let numbers = router.and_then(|pid| Some((pid, ProcessNumbers::of(pid)?)));
        if let Some((pid, numbers)) = numbers {
            self.router = Some((pid, numbers.cpu));
            let cpu = numbers.cpu + self.former_routers;
            self.processes.insert(ROUTER, ProcessNumbers { cpu, ..numbers });
        }
        self.applications.clear();
        for generation in control.runtime.generations.iter() {
            *self.applications.entry(generation.name().to_owned()).or_default() += generation.private_bytes();
        }
    }

    /// Adds the memory of the applications.
    pub fn add_applications(&self, out: &mut Exposition) {
        out.family(&family::APPLICATION_MEMORY);
        self.applications.iter().for_each(|(name, bytes)| out.sample(&[("application", name)], bytes));
    }

    /// Adds the numbers of howdah's own processes.
    pub fn add_processes(&self, out: &mut Exposition) {
        out.family(&family::PROCESS_CPU);
        self.processes.iter().for_each(|(name, numbers)| out.sample(&[("process", name)], numbers.cpu.as_secs_f64()));
        out.family(&family::PROCESS_MEMORY);
        for (name, bytes) in self.processes.iter().filter_map(|(name, numbers)| Some((name, numbers.memory?))) {
            out.sample(&[("process", name)], bytes);
        }
        out.family(&family::PROCESS_DESCRIPTORS);
        for (name, count) in self.processes.iter().filter_map(|(name, numbers)| Some((name, numbers.descriptors?))) {
            out.sample(&[("process", name)], count);
        }
    }
}

// === impl ProcessNumbers ===

impl ProcessNumbers {
    fn of(pid: Pid) -> Option<ProcessNumbers> {
        let process = Process::find(pid)?;
        let cpu = process.total_cpu()?;
        Some(ProcessNumbers { cpu, memory: process.proportional_bytes(), descriptors: process.descriptors() })
    }
}
