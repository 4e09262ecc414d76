//! How a prototype comes into being, and whose word about processes is believed.
//!
//! A prototype with a namespace of processes is two processes, one after the other: the second is the first one of its
//! namespace, becomes our child when the first exits, and takes all workers with it when it dies.

use super::silence::Silence;
use super::{Generation, Prototype};
use crate::generation::boot_output::BootOutput;
use crate::os::link::ChildLink;
use crate::os::process::{self, PidClaim};
use crate::os::resources;
use crate::os::spawn;
use crate::policy::pace::BootTimeout;
use howdah_protocol::BUILD_ID;
use howdah_protocol::prototype_messages::{PrototypeBoot, SlowRequests, ToPrototype};
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

// === impl Generation ===

impl Generation {
    pub(super) fn start_prototype(&mut self, now: Instant) -> io::Result<()> {
        self.failure = None;
        let plan = &self.plan;
        let [stdout, stderr] = plan.outputs.files()?;
        let later = match &stderr {
            Some(file) => OwnedFd::from(file.try_clone()?),
            None => io::stderr().as_fd().try_clone_to_owned()?,
        };
        let (said, stderr) = BootOutput::pipe(stderr)?;
        let (pid, socket) = spawn::prototype(&plan.php.executable, &plan.name, &plan.environment, stdout, stderr)
            .map_err(|error| io::Error::other(format!("{} cannot be run: {error}", plan.php.executable.display())))?;
        let mut link = ChildLink::new(socket)?;
        if let Some(cgroup) = &plan.confined.cgroup
            && let Err(problem) = cgroup.admit(pid)
        {
            crate::os::reap::kill(pid);
            return Err(io::Error::other(format!("applications/{}/isolation/cgroup/path: {problem}", plan.name)));
        }
        let mut descriptors = self.descriptors()?;
        let mut files = vec![later, self.profiler.samples()?];
        let slow_log = plan.slow_log.as_ref().and_then(|log| Some((log.file()?, log.requests)));
        let slow_requests = slow_log.map(|(_, requests)| requests);
        if let Some((file, _)) = slow_log {
            files.push(file.try_clone()?.into());
        }
        descriptors.splice(1..1, files);
        if plan.limits.timeout.is_some() {
            self.overdue.begin(now);
        }
        link.send(ToPrototype::Boot(Box::new(self.boot_message(slow_requests))), descriptors);
        if let Err(error) = link.check() {
            crate::os::reap::kill(pid);
            return Err(io::Error::other(format!("it cannot be told what to do: {error}")));
        }
        self.prototype = Prototype::Up {
            pid,
            group: pid,
            successor: None,
            since: now,
            booted: false,
            has_forked: false,
            boot_timeout: BootTimeout::new(now),
            said,
            kill_at: None,
            link: Some(link),
        };
        self.silence = Silence::begin(now);
        Ok(())
    }

    fn boot_message(&self, slow_log: Option<SlowRequests>) -> PrototypeBoot {
        let plan = &self.plan;
        PrototypeBoot {
            build: BUILD_ID.to_owned(),
            application: plan.name.clone(),
            geometry: self.control.geometry(),
            identity: plan.confined.identity.unwrap_or(plan.account.identity()),
            user: plan.account.name.clone(),
            confinement: plan.confined.confinement.clone(),
            php_ini: plan.options.file.clone(),
            admin_values: plan.options.admin.clone(),
            user_values: plan.options.user.clone(),
            // One that has run is not kept from running by a script that is missing for a moment.
            required_paths: if self.proven { Vec::new() } else { plan.needs.clone() },
            working_directory: plan.working_directory.clone(),
            requests_per_worker: plan.limits.requests,
            memory_per_worker: plan.limits.memory,
            slow_log,
            has_timeout: plan.limits.timeout.is_some(),
            descriptors: resources::initial_descriptors(),
            server_software: concat!("howdah/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// The prototype says that another process goes on in its place. Code of the application has not run in it, but may
    /// say the same later.
    pub(super) fn prototype_moved(&mut self, pid: i32) {
        let told = self.check_outer_claim(pid);
        let moves = self.plan.confined.confinement.as_ref().is_some_and(|confinement| confinement.pid);
        match (&mut self.prototype, told) {
            (
                Prototype::Up { pid, group, successor: successor @ None, booted: false, .. },
                PidClaim::Valid(process),
            ) if moves && pid == group => {
                *successor = Some(process.pid);
            }
            (Prototype::Up { successor: None, booted: false, .. }, PidClaim::Gone) if moves => {}
            _ => self.breach("it moved to a process that is none of its own"),
        }
    }

    /// Whether a prototype that is dead has left its place to another process, as it does with a namespace of processes.
    pub(super) fn has_succeeded(&mut self) -> bool {
        let Prototype::Up { pid, successor, .. } = &mut self.prototype else { return false };
        match successor.take() {
            Some(next) => {
                *pid = next;
                true
            }
            None => false,
        }
    }

    /// What a process is whose number the prototype told, as it sees it.
    pub(super) fn check_claim(&self, pid: i32) -> PidClaim {
        let Prototype::Up { pid: prototype, group, successor, .. } = self.prototype else { return PidClaim::Gone };
        let current = successor.unwrap_or(prototype);
        if current == group {
            return self.check_outer_claim(pid);
        }
        process::outer_pid(pid, current).map_or(PidClaim::Gone, |process| process::check_claim(process, current, group))
    }

    fn check_outer_claim(&self, pid: i32) -> PidClaim {
        let Prototype::Up { pid: prototype, group, .. } = self.prototype else { return PidClaim::Gone };
        let named = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        named.map_or(PidClaim::Invalid, |pid| process::check_claim(pid, prototype, group))
    }
}
