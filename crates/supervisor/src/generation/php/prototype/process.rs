//! One prototype process: its start, its boot message, and which of its claims about processes are believed.
//!
//! A prototype in a PID namespace is two processes, one after the other. The second one is the first process of its
//! namespace. It becomes a child of the supervisor when the first one exits, and takes all workers with it when it dies.
//!
//! A process that cannot be started is an error with the reason. Code of the application may run in a prototype, so a
//! prototype may send anything: a pid that it claims is looked up before it is used.

use crate::generation::own_streams;
use crate::generation::process_output::ProcessOutput;
use crate::os::processes::link::ChildLink;
use crate::os::processes::process::{self, PidClaim, Process};
use crate::os::processes::{reap, spawn};
use crate::os::resources;
use crate::plan::php::application::{PhpPlan, PoolPlan};
use crate::policy::pace::BootTimeout;
use howdah_channel::Geometry;
use howdah_protocol::BUILD_ID;
use howdah_protocol::log_format::LogFormat;
use howdah_protocol::messages::prototype::{
    BootDescriptors, FromPrototype, PoolBoot, PrototypeBoot, SlowRequests, ToPrototype,
};
use rustix::process::Pid;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A process.
#[derive(Debug)]
pub struct PrototypeProcess {
    /// Its process id.
    pub pid: Pid,
    /// Its process group, which its workers share.
    group: Pid,
    /// The process that replaces this one, when this one has exited.
    successor: Option<Pid>,
    /// When it started.
    pub since: Instant,
    /// Whether it has loaded PHP.
    pub is_booted: bool,
    /// Whether it has forked a worker.
    pub has_forked: bool,
    /// The limit of its start.
    pub boot_timeout: BootTimeout,
    /// Its standard error while it starts.
    pub output: ProcessOutput,
    /// It has closed its socket, and must have exited by then.
    pub kill_at: Option<Instant>,
    /// `None` when it has been asked to exit.
    pub link: Option<ChildLink<ToPrototype, FromPrototype>>,
}

/// The resources that a prototype gets when it starts.
#[derive(Debug)]
pub struct BootResources {
    /// The shape of each pool's channel, and its memory.
    pub channels: Vec<(Geometry, OwnedFd)>,
    /// The eventfds of the router's threads.
    pub bells: Vec<OwnedFd>,
    /// The file for samples.
    pub samples: OwnedFd,
    /// Whether to check that the application's user can read what the configuration names.
    pub checks_paths: bool,
}

// === impl PrototypeProcess ===

impl PrototypeProcess {
    /// Starts a prototype of this application.
    ///
    /// # Errors
    /// With the reason. No process is left then.
    pub fn start(plan: &PhpPlan, resources: BootResources, now: Instant) -> io::Result<PrototypeProcess> {
        let [stdout, stderr] = plan.outputs.files()?;
        let stdout = stdout.map_or_else(|| own_streams::output(&plan.name), |file| Ok(file.into()))?;
        let later_stderr = stderr.map_or_else(|| own_streams::error(&plan.name), |file| Ok(file.into()))?;
        let (output, stderr) = ProcessOutput::pipe(plan.outputs.stderr_writer())?;
        let (pid, socket) = spawn::prototype(&plan.php.executable, &plan.name, &plan.environment, stdout, stderr)
            .map_err(|error| io::Error::other(format!("{} cannot be run: {error}", plan.php.executable.display())))?;
        let mut link = ChildLink::new(socket)?;
        if let Some(cgroup) = &plan.confined.cgroup
            && let Err(problem) = cgroup.admit(pid)
        {
            reap::kill(pid);
            return Err(io::Error::other(format!("applications/{}/isolation/cgroup/path: {problem}", plan.name)));
        }
        let BootResources { channels, bells, samples, checks_paths } = resources;
        let slow_log = plan.slow_log.as_ref().and_then(|log| Some((log.file()?, log.requests)));
        let slow_requests = slow_log.map(|(_, requests)| requests);
        let slow_log = slow_log.map(|(file, _)| file.try_clone()).transpose()?.map(OwnedFd::from);
        let (geometries, memories): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
        let descriptors =
            BootDescriptors { stderr: later_stderr, profile: samples, slow_log, channels: memories, bells };
        let boot = boot_message(plan, geometries, checks_paths, slow_requests);
        link.send(ToPrototype::Boot(Box::new(boot)), descriptors.into_list());
        if let Err(error) = link.check() {
            reap::kill(pid);
            return Err(io::Error::other(format!("its boot message cannot be sent: {error}")));
        }
        Ok(PrototypeProcess {
            pid,
            group: pid,
            successor: None,
            since: now,
            is_booted: false,
            has_forked: false,
            boot_timeout: BootTimeout::new(now),
            output,
            kill_at: None,
            link: Some(link),
        })
    }

    /// Its process group, which its workers share.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// It claims that another process replaces it. Code of the application has not run in it, but may send the same
    /// later. `moves` is whether it has a PID namespace. Returns whether the claim is believed.
    pub fn on_moved(&mut self, pid: i32, moves: bool) -> bool {
        if !moves || self.is_booted || self.successor.is_some() {
            return false;
        }
        match self.check_outer_claim(pid) {
            PidClaim::Valid(process) if self.pid == self.group => {
                self.successor = Some(process.pid);
                true
            }
            PidClaim::Gone => true,
            PidClaim::Valid(_) | PidClaim::Invalid => false,
        }
    }

    /// It is dead. Returns whether another process replaces it, as with a PID namespace.
    pub fn is_succeeded(&mut self) -> bool {
        match self.successor.take() {
            Some(next) => {
                self.pid = next;
                true
            }
            None => false,
        }
    }

    /// Which process it means by the pid that it sees.
    pub fn check_claim(&self, pid: i32) -> PidClaim {
        let current = self.successor.unwrap_or(self.pid);
        if current == self.group {
            return self.check_outer_claim(pid);
        }
        process::outer_pid(pid, current)
            .map_or(PidClaim::Gone, |process| process::check_claim(process, current, self.group))
    }

    fn check_outer_claim(&self, pid: i32) -> PidClaim {
        let named = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        named.map_or(PidClaim::Invalid, |pid| process::check_claim(pid, self.pid, self.group))
    }

    /// Whether an operator has stopped it, with a signal or a debugger.
    pub fn is_stopped(&self) -> bool {
        Process::find(self.pid).is_some_and(Process::is_stopped)
    }

    /// Kills it. Its workers finish what they do, unless they are in a PID namespace of it.
    pub fn kill(&self) {
        match self.successor {
            Some(_) => reap::kill_group(self.pid, self.group),
            None => reap::kill(self.pid),
        }
    }

    /// Kills it and everything that it forked.
    pub fn kill_group(&self) {
        reap::kill_group(self.pid, self.group);
    }
}

/// The scripts that were written, as the application sees them.
fn written_inside(plan: &PhpPlan) -> Vec<PathBuf> {
    let Some(rootfs) = plan.confined.confinement.as_ref().and_then(|confinement| confinement.rootfs.as_ref()) else {
        return plan.written.clone();
    };
    let inside = plan.written.iter().filter_map(|file| file.strip_prefix(&rootfs.path).ok());
    inside.map(|file| Path::new("/").join(file)).collect()
}

fn boot_message(
    plan: &PhpPlan,
    geometries: Vec<Geometry>,
    checks_paths: bool,
    slow_log: Option<SlowRequests>,
) -> PrototypeBoot {
    PrototypeBoot {
        build: BUILD_ID.to_owned(),
        application: plan.name.clone(),
        pools: geometries.into_iter().zip(&plan.pools).map(pool_boot).collect(),
        identity: plan.confined.identity.unwrap_or(plan.account.identity()),
        user: plan.account.name.clone(),
        log_format: LogFormat::of_environment(),
        confinement: plan.confined.confinement.clone(),
        php_ini: plan.options.file.clone(),
        admin_values: plan.options.admin.clone(),
        user_values: plan.options.user.clone(),
        required_paths: if checks_paths { plan.needs.clone() } else { Vec::new() },
        written: if checks_paths { written_inside(plan) } else { Vec::new() },
        working_directory: plan.working_directory.clone(),
        requests_per_worker: plan.limits.requests,
        memory_per_worker: plan.limits.memory,
        slow_log,
        timeout_ms: plan.limits.timeout.map(|timeout| timeout.as_millis() as u64),
        descriptors: resources::initial_descriptors(),
        server_software: concat!("howdah/", env!("CARGO_PKG_VERSION")).to_owned(),
        loader_variables: plan.environment.loader_variables(),
    }
}

fn pool_boot((geometry, plan): (Geometry, &PoolPlan)) -> PoolBoot {
    PoolBoot { geometry, worker_script: plan.script.clone() }
}
