//! The prototype's loop: forks workers on order, reaps them, and reports both.
//!
//! It has one thread, so that a fork may do anything. Workers share opcache's memory and preloaded code with it. It exits
//! when the supervisor closes the control socket and its workers have exited, or immediately, by signal, when the supervisor
//! dies.

#![allow(unsafe_code)] // forks

use super::boot::{Loaded, SupervisorProcess, WorkerPool, c_string};
use super::report::send;
use crate::worker::forked::Worker;
use crate::worker::sampler::{self, Sampling};
use crate::worker::service::WorkerLimits;
use crate::worker::stderr::Stderr;
use crate::{log, sapi};
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::prototype::{FromPrototype, PoolWorker, ToPrototype, WorkerScript};
use howdah_protocol::sockets::control_socket::ControlSocket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, fork, getpid};
use rustix::process::WaitOptions;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// A prototype whose PHP is up.
pub struct Prototype {
    pid: Pid,
    control: ControlSocket,
    pools: Vec<WorkerPool>,
    limits: WorkerLimits,
    sampling: Sampling,
    supervisor: SupervisorProcess,
    stderr: Stderr,
    workers: HashMap<Pid, PoolWorker>,
    /// The last warning that no worker can be forked.
    last_warning: Option<Instant>,
}

/// The end of [`Prototype::serve`].
pub enum Served {
    /// The supervisor has closed the control socket, and no worker is left.
    Stopped,
    /// This process was forked: it is a worker.
    Forked(Worker),
}

/// The shortest time between two such warnings.
const WARNING_PAUSE: Duration = Duration::from_secs(1);

// === impl Prototype ===

impl Prototype {
    pub fn new(control: ControlSocket, loaded: Loaded, limits: WorkerLimits) -> Prototype {
        let Loaded { pools, sampling, supervisor, stderr, .. } = loaded;
        let (pid, workers) = (getpid(), HashMap::new());
        // `control` is the only descriptor of the socket, so that a worker that drops it has none.
        Prototype { pid, control, pools, limits, sampling, supervisor, stderr, workers, last_warning: None }
    }

    /// Sends a message to the supervisor.
    pub fn report(&self, message: &FromPrototype) {
        send(&self.control, message);
    }

    /// Where its standard error goes.
    pub fn stderr(&self) -> &Stderr {
        &self.stderr
    }

    /// The worker script that boots in this process: the only one.
    pub fn prebooted_script(&self) -> Option<WorkerScript> {
        self.pools.iter().find_map(|pool| pool.script.clone()).filter(|script| script.preboot)
    }

    /// The name of its application.
    pub fn application(&self) -> &str {
        &self.limits.application
    }

    /// Forks and reaps workers until the supervisor closes the control socket. Returns in each worker, too.
    ///
    /// # Errors
    /// When the supervisor is dead, or cannot be waited for.
    pub fn serve(mut self) -> Result<Served, String> {
        let actions_of_workers = take_signal_actions();
        let watched = SigSet::from(Signal::SIGCHLD);
        watched.thread_block().map_err(|error| format!("cannot block SIGCHLD: {error}"))?;
        let children = SignalFd::with_flags(&watched, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(|error| format!("cannot watch the workers: {error}"))?;
        let mut stopping = false;
        while !(stopping && self.workers.is_empty()) {
            let control_events = if stopping { PollFlags::empty() } else { PollFlags::POLLIN };
            let mut sources = [
                PollFd::new(children.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.supervisor.pidfd.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.control.as_fd(), control_events),
            ];
            let sources = if stopping { &mut sources[..2] } else { &mut sources[..] };
            match poll(sources, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(format!("cannot wait for the supervisor: {error}")),
            }
            // The supervisor began to die while no death signal was set, between the steps of the boot.
            if sources[1].any() == Some(true) {
                return Err("the supervisor is gone".to_owned());
            }
            while let Ok(Some(_)) = children.read_signal() {}
            self.reap();
            while !stopping {
                match self.control.receive_long::<ToPrototype>() {
                    Ok(Some((ToPrototype::StartWorker(worker), _))) => {
                        if usize::from(worker.pool) < self.pools.len() && self.start(worker) {
                            drop(children);
                            return Ok(Served::Forked(self.become_worker(worker, &watched, &actions_of_workers)));
                        }
                    }
                    Ok(Some((ToPrototype::Ping, _))) => send(&self.control, &FromPrototype::Pong),
                    Ok(Some((ToPrototype::Boot(_), _))) => {}
                    Ok(None) => stopping = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(format!("cannot read from the supervisor: {error}")),
                }
            }
        }
        Ok(Served::Stopped)
    }

    /// Forks; `true` in the child.
    fn start(&mut self, worker: PoolWorker) -> bool {
        // SAFETY: this process has one thread, so the child may do anything.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { child }) => {
                self.workers.insert(child, worker);
                send(&self.control, &FromPrototype::WorkerStarted { worker, pid: child.as_raw() });
                false
            }
            Ok(ForkResult::Child) => true,
            // The supervisor retries later.
            Err(error) => {
                if self.last_warning.is_none_or(|last| last.elapsed() >= WARNING_PAUSE) {
                    self.last_warning = Some(Instant::now());
                    log::warn(&format!("cannot fork a worker of \"{}\": {error}", self.limits.application));
                }
                send(&self.control, &FromPrototype::WorkerNotForked { worker });
                false
            }
        }
    }

    fn become_worker(self, worker: PoolWorker, blocked: &SigSet, actions: &[(Signal, SigAction)]) -> Worker {
        let Prototype { control, mut pools, limits, sampling, supervisor, stderr, .. } = self;
        // PHP code must not be able to send messages in the prototype's name.
        drop(control);
        // All else lives as long as this process: signal handlers and the sampler use its descriptors.
        let has_scripts = pools.iter().any(|pool| pool.script.is_some());
        // The channels of the other pools are closed.
        let WorkerPool { channel, script } = pools.swap_remove(usize::from(worker.pool));
        drop(pools);
        let channel = Box::leak(Box::new(channel));
        let supervisor = Box::leak(Box::new(supervisor));
        let sampling = Box::leak(Box::new(sampling));
        let stderr = Box::leak(Box::new(stderr));
        for (signal, action) in actions {
            // SAFETY: PHP code of this process has set it before the fork.
            let _ = unsafe { sigaction(*signal, action) };
        }
        let _ = blocked.thread_unblock();
        let title = c_string(&format!("howdah: \"{}\" worker", limits.application));
        // SAFETY: the title is a C string; PHP was started before the fork.
        unsafe {
            sapi::howdah_set_title(title.as_ptr());
            let SupervisorProcess { pidfd, pid } = supervisor;
            sapi::howdah_die_with_prototype(self.pid.as_raw(), pidfd.as_raw_fd(), *pid);
            sapi::howdah_php_after_fork();
            if has_scripts && script.is_none() {
                sapi::howdah_php_leave_worker_mode();
            }
        }
        let end = Box::leak(Box::new(channel.worker(worker.worker)));
        let application = Box::leak(c_string(&limits.application).into_boxed_c_str());
        sampler::start(application, end, sampling);
        Worker { end, limits, stderr, script }
    }

    fn reap(&mut self) {
        loop {
            let (pid, status) = match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(dead)) => dead,
                Err(rustix::io::Errno::INTR) => continue,
                Ok(None) | Err(_) => return,
            };
            let pid = pid.as_raw_pid();
            if let Some(end) = ProcessEnd::of(status)
                && let Some(worker) = self.workers.remove(&Pid::from_raw(pid))
            {
                send(&self.control, &FromPrototype::WorkerExited { worker, pid, end });
            }
        }
    }
}

/// Sets the default action of the signals that PHP code has changed. Returns the actions for the workers.
///
/// In the prototype, PHP would only note a signal, and each worker that is forked later would run the script's handler.
fn take_signal_actions() -> Vec<(Signal, SigAction)> {
    let by_default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // Rust's own handlers of the other two report a stack overflow.
    let signals = Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGSEGV | Signal::SIGBUS));
    let mut actions = Vec::new();
    for signal in signals {
        // SAFETY: the default action is no function that could be unsound. It fails for SIGKILL and SIGSTOP.
        let Ok(action) = (unsafe { sigaction(signal, &by_default) }) else { continue };
        match action.handler() {
            SigHandler::SigDfl => {}
            // Such as SIGPIPE. With SIGCHLD ignored, the kernel would reap the workers.
            SigHandler::SigIgn if signal != Signal::SIGCHLD => {
                // SAFETY: it was set until now.
                let _ = unsafe { sigaction(signal, &action) };
            }
            _ => actions.push((signal, action)),
        }
    }
    actions
}
