//! The prototype: loads PHP once, then only forks workers and reaps them.
//!
//! It is single-threaded: nothing but forks of it runs requests, with opcache's memory and preloaded code shared. It
//! ends when the supervisor closes the control socket (after its workers have ended) or dies (at once, by signal). What
//! fails before PHP is up is answered [`FromPrototype::Failed`], with a reason for the operator.

use crate::sampler::{self, Sampling};
use crate::stderr::Stderr;
use crate::{confine, ini, readable, sapi, worker};
use howdah_channel::request::NAMES;
use howdah_channel::{WorkerChannel, WorkerId};
use howdah_protocol::control_socket::ControlSocket;
use howdah_protocol::inherited::CONTROL_FD;
use howdah_protocol::inherited::take_inherited;
use howdah_protocol::parent_death::die_with_supervisor;
use howdah_protocol::process_end::ProcessEnd;
use howdah_protocol::prototype_messages::{FromPrototype, PrototypeBoot, ToPrototype};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use rustix::process::WaitOptions;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Prototype {
    pid: Pid,
    control: ControlSocket,
    channel: WorkerChannel,
    bounds: worker::Bounds,
    sampling: Sampling,
    supervisor: Supervisor,
    stderr: Stderr,
    workers: HashMap<Pid, WorkerId>,
    /// When it was last said that no worker can be forked.
    told_scarcity: Option<Instant>,
}

/// That no worker can be forked is said this far apart.
const SCARCITY_PAUSE: Duration = Duration::from_secs(1);

/// Who must not be outlived.
struct Supervisor {
    /// Readable once the last of its threads is gone.
    pidfd: OwnedFd,
    /// As seen from here: zero from within a namespace of processes.
    pid: c_int,
}

/// What a boot leaves for the prototype.
struct Loaded {
    channel: WorkerChannel,
    sampling: Sampling,
    supervisor: Supervisor,
    stderr: Stderr,
    opcache: bool,
}

/// Runs as a prototype until the supervisor lets go, or until it has told it why PHP can't be loaded.
///
/// # Errors
/// When there is no supervisor to talk to.
pub fn run() -> Result<ExitCode, String> {
    let control = ControlSocket::from(
        take_inherited(CONTROL_FD)
            .map_err(|_| "this program is started by howdah; to serve a folder run: howdah serve DIR".to_owned())?,
    );
    let watched = die_with_supervisor(&control);
    watched.map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    let _ = poll(&mut [PollFd::new(control.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
    let booted = match PrototypeBoot::receive(&control) {
        Ok(Some((boot, descriptors))) => boot_php(&boot, &control, descriptors).map(|loaded| (boot, loaded)),
        Ok(None) => return Err("the supervisor is gone".to_owned()),
        Err(reason) => Err(reason.to_string()),
    };
    match booted {
        Ok((boot, Loaded { channel, sampling, supervisor, stderr, opcache })) => {
            send(&control, &FromPrototype::Booted { php_version: php_version(), opcache });
            // The only descriptor of the socket goes in, so that a worker that drops it has none.
            let (pid, workers) = (getpid(), HashMap::new());
            let (requests, memory) = (boot.requests_per_worker, boot.memory_per_worker);
            let bounds = worker::Bounds { application: boot.application, requests, memory };
            let told_scarcity = None;
            Prototype { pid, control, channel, bounds, sampling, supervisor, stderr, workers, told_scarcity }
                .serve()?;
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => {
            send(&control, &FromPrototype::Failed { reason });
            Ok(ExitCode::FAILURE)
        }
    }
}

// === impl Prototype ===

impl Prototype {
    fn serve(mut self) -> Result<(), String> {
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
            // It began to die while no death signal was asked for, between the steps of the boot.
            if sources[1].any() == Some(true) {
                return Err("the supervisor is gone".to_owned());
            }
            while let Ok(Some(_)) = children.read_signal() {}
            self.reap();
            while !stopping {
                match self.control.receive_long::<ToPrototype>() {
                    Ok(Some((ToPrototype::StartWorker(worker), _))) => {
                        if self.start(worker) {
                            drop(children);
                            self.become_worker(worker, &watched);
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
        // SAFETY: the last use of PHP in this process.
        unsafe { sapi::howdah_php_shutdown() };
        Ok(())
    }

    /// Forks; `true` in the child.
    fn start(&mut self, worker: WorkerId) -> bool {
        // SAFETY: this process has one thread, so the child may do anything.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { child }) => {
                self.workers.insert(child, worker);
                send(&self.control, &FromPrototype::WorkerStarted { worker, pid: child.as_raw() });
                false
            }
            Ok(ForkResult::Child) => true,
            // The supervisor tries again later.
            Err(error) => {
                if self.told_scarcity.is_none_or(|told| told.elapsed() >= SCARCITY_PAUSE) {
                    self.told_scarcity = Some(Instant::now());
                    crate::warn(&format!("cannot fork a worker of \"{}\": {error}", self.bounds.application));
                }
                send(&self.control, &FromPrototype::WorkerNotForked { worker });
                false
            }
        }
    }

    fn become_worker(self, worker: WorkerId, blocked: &SigSet) -> ! {
        // PHP code must not be able to speak to the supervisor in the prototype's name.
        drop(self.control);
        let _ = blocked.thread_unblock();
        // SAFETY: the default action is no function that could be unsound.
        let _ = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
        let title = c_string(&format!("howdah: \"{}\" worker", self.bounds.application));
        // SAFETY: the title is a C string; PHP was started before the fork.
        unsafe {
            sapi::howdah_set_title(title.as_ptr());
            let Supervisor { pidfd, pid } = &self.supervisor;
            sapi::howdah_die_with_prototype(self.pid.as_raw(), pidfd.as_raw_fd(), *pid);
            sapi::howdah_php_after_fork();
        }
        let names: Vec<CString> = NAMES.iter().map(|name| c_string(name)).collect();
        let end = Box::leak(Box::new(self.channel.worker(worker)));
        let application = Box::leak(c_string(&self.bounds.application).into_boxed_c_str());
        sampler::start(application, end, Box::leak(Box::new(self.sampling)));
        worker::serve(end, &names, &self.bounds, &self.stderr);
        sapi::end(0)
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

/// Does what the boot message says; after that PHP is up.
fn boot_php(boot: &PrototypeBoot, control: &ControlSocket, mut descriptors: Vec<OwnedFd>) -> Result<Loaded, String> {
    let few = || "the boot message came without the channel's memory, standard error and the files of samples";
    let others = if boot.slow_log.is_some() { 4 } else { 3 };
    if descriptors.len() < others {
        return Err(few().into());
    }
    let bells = descriptors.split_off(others);
    let slow_log = boot.slow_log.and_then(|slow| Some((descriptors.pop()?, slow)));
    let profile = descriptors.pop().ok_or_else(few)?;
    let sampling = Sampling { profile, slow_log, has_limit: boot.has_timeout };
    let channel = WorkerChannel::attach(&descriptors[0], boot.geometry, bells)
        .map_err(|error| format!("cannot map the channel: {error}"))?;
    // The pidfd before the identity: a parent of another user may be watched, too.
    let parent = rustix::process::getppid().ok_or("the supervisor is gone")?;
    let pidfd = rustix::process::pidfd_open(parent, rustix::process::PidfdFlags::empty())
        .map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    // Also says that it was the supervisor's pidfd that was opened, and nobody's who inherited this process.
    die_with_supervisor(control).map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    confine::enter(boot, control)?;
    match &boot.confinement {
        Some(confinement) => boot.identity.assume_with(&confinement.groups),
        None => boot.identity.assume(boot.user.as_deref()),
    }
    .map_err(|error| format!("cannot become the application's user: {error}"))?;
    confine::finish(boot)?;
    // A change of user has cleared it, and a fork.
    confine::die_with(&pidfd).map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    let supervisor = Supervisor { pidfd, pid: getppid().as_raw() };
    if let Some(folder) = &boot.working_directory {
        std::env::set_current_dir(folder).map_err(|error| {
            format!("applications/{}/working_directory: cannot enter {}: {error}", boot.application, folder.display())
        })?;
    }
    if let Some(most) = boot.descriptors {
        getrlimit(Resource::RLIMIT_NOFILE)
            .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, most.min(hard), hard))
            .map_err(|error| format!("cannot set the limit of descriptors: {error}"))?;
    }
    let rootfs = boot.confinement.as_ref().and_then(|confinement| confinement.rootfs.as_ref());
    readable::prove(&boot.required_paths, rootfs.map(|rootfs| rootfs.path.as_path()))?;
    let opcache = start_php(boot)?;
    // What it said until now the supervisor has read, for the answer to who wanted it to start.
    let stderr = Stderr::begin(descriptors.swap_remove(1));
    let stderr = stderr.map_err(|error| format!("cannot set standard error: {error}"))?;
    Ok(Loaded { channel, sampling, supervisor, stderr, opcache })
}

/// Whether opcache is on.
fn start_php(boot: &PrototypeBoot) -> Result<bool, String> {
    let ini_file = boot.php_ini.as_ref().map(|path| {
        std::fs::metadata(path)
            .map_err(|error| format!("applications/{}/options/file: {}: {error}", boot.application, path.display()))?;
        Ok::<_, String>(c_string(&path.to_string_lossy()))
    });
    let ini_file = ini_file.transpose()?;
    let settings = || boot.user_values.iter().chain(&boot.admin_values);
    let entries = c_string(&ini::entries(settings()));
    let software = c_string(&boot.server_software);
    // PHP keeps the pointers.
    let entries: &'static CStr = Box::leak(entries.into_boxed_c_str());
    // SAFETY: PHP is started once, on the only thread; the strings are leaked.
    let started = unsafe {
        sapi::howdah_php_startup(
            ini_file.map_or(std::ptr::null(), |path| path.into_raw().cast_const()),
            entries.as_ptr(),
            software.into_raw(),
        )
    };
    if started == 0 {
        return Err("PHP does not start; its messages on stderr say why".into());
    }
    // SAFETY: PHP is started; the text is a C string.
    if unsafe { sapi::howdah_php_count_settings(entries.as_ptr()) } != settings().count() as c_int {
        return Err(format!(
            "applications/{}/options: PHP does not understand all of \"admin\" and \"user\"; correct their names and values",
            boot.application
        ));
    }
    for name in boot.admin_values.keys() {
        // SAFETY: PHP is started; the name is a C string.
        unsafe { sapi::howdah_php_lock_setting(c_string(name).as_ptr()) };
    }
    // SAFETY: PHP is started, no request runs.
    Ok(unsafe { sapi::howdah_php_opcache_is_on() != 0 })
}

/// PHP's full version, such as `8.2.35`: of the headers that this was compiled against.
pub fn php_version() -> String {
    // SAFETY: a string literal.
    unsafe { CStr::from_ptr(sapi::howdah_php_version()) }.to_string_lossy().into_owned()
}

/// Waits for room: the supervisor always reads. If it is gone, so are we.
pub fn send(control: &ControlSocket, message: &FromPrototype) {
    while let Err(error) = control.send(message, &[]) {
        if error.kind() != io::ErrorKind::WouldBlock {
            return;
        }
        let _ = poll(&mut [PollFd::new(control.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("the NULs were just removed")
}
