//! The router's process: takes its boot message, drops its privileges, starts its threads, and then only passes on what
//! the supervisor says.
//!
//! The control socket's end of file is the supervisor's death: the process ends with it. A boot that fails is one line
//! in the log and exit code 1; the supervisor tells the operator.

use crate::php::{Generation, Port};
use crate::slots::Slots;
use crate::thread::{self, Command, Listening, Setup};
use howdah_channel::control::{ControlSocket, inherited};
use howdah_channel::lifecycle::{CONTROL_FD, FromRouter, RouterBoot, ToRouter};
use howdah_channel::{RouterEnd, Violation};
use howdah_config::{Address, Configuration};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Bytes that wait in a socket beyond what the network takes: more would only be copied early and fall out of the
/// processor's cache. (The window of a fast, distant client is not limited by it: tcp(7), TCP_NOTSENT_LOWAT.)
const UNSENT_BYTES: u32 = 32 * 1024;

struct Threads {
    handles: Vec<JoinHandle<io::Result<()>>>,
    commands: Vec<mpsc::UnboundedSender<Command>>,
    generations: Vec<Arc<Generation>>,
}

/// Runs as a router until the supervisor says otherwise.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the router ends");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let control = Arc::new(ControlSocket::from(inherited(CONTROL_FD)?));
    let Some((ToRouter::Boot(boot), descriptors)) = receive(&control)? else {
        return Err(io::Error::other("the supervisor sent no boot message"));
    };
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    boot.identity.assume(boot.user.as_deref())?;
    let threads = Threads::start(&control, boot, descriptors)?;
    control.send(&FromRouter::Ready, &[])?;
    while let Some((message, mut descriptors)) = receive(&control)? {
        match message {
            ToRouter::WorkerDied { generation, worker } => {
                threads.tell(|| Command::WorkerDied(generation, worker));
            }
            ToRouter::WorkersReplaced { generation } => {
                for known in threads.generations.iter().filter(|known| known.id == generation) {
                    known.channel.release_quarantined();
                }
            }
            ToRouter::ReopenLog => {
                if let Some(file) = descriptors.pop() {
                    let file = Arc::new(File::from(file));
                    threads.tell(|| Command::ReopenLog(Arc::clone(&file)));
                }
            }
            ToRouter::Drain => {
                threads.tell(|| Command::Drain);
                return threads.drain(&control);
            }
            ToRouter::Boot(_) => return Err(io::Error::other("a second boot message")),
        }
    }
    Ok(())
}

fn receive(control: &ControlSocket) -> io::Result<Option<(ToRouter, Vec<OwnedFd>)>> {
    loop {
        match control.receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(control.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

// === impl Threads ===

impl Threads {
    fn start(control: &Arc<ControlSocket>, boot: RouterBoot, descriptors: Vec<OwnedFd>) -> io::Result<Threads> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(|| io::Error::other("the boot message lacks descriptors"));
        let mut text = String::new();
        let mut file = File::from(next()?);
        file.rewind()?;
        file.read_to_string(&mut text)?;
        let configuration = Arc::new(Configuration::parse(&text).map_err(io::Error::other)?);
        let access_log = if boot.access_log { Some(Arc::new(File::from(next()?))) } else { None };

        let count = usize::from(boot.threads.max(1));
        let mut listening = Vec::new();
        for (place, listener) in configuration.listeners.iter().enumerate() {
            let socket = next()?;
            let listener = match &listener.address {
                Address::Tcp(_) => {
                    // Accepted sockets inherit both.
                    let socket = socket2::Socket::from(socket);
                    socket.set_tcp_nodelay(true)?;
                    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
                    Listening::Tcp(socket.into())
                }
                Address::Unix(path) => Listening::Unix(socket.into(), path.display().to_string()),
            };
            listening.push((place, listener));
        }
        let mut bells: Vec<Vec<OwnedFd>> = (0..count).map(|_| Vec::new()).collect();
        let mut generations = Vec::new();
        for generation in boot.generations {
            let channel = RouterEnd::attach(next()?, generation.geometry)?;
            for bells in bells.iter_mut().take(generation.geometry.threads.into()) {
                bells.push(next()?);
            }
            generations.push(Arc::new(Generation {
                id: generation.id,
                application: generation.application,
                slots: Slots::new(Arc::clone(&channel)),
                channel,
            }));
        }
        let (commands, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let loads: Arc<[AtomicUsize]> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        let mut handles = Vec::new();
        for (index, (bells, receiver)) in bells.into_iter().zip(receivers).enumerate() {
            let listeners = listening
                .iter()
                .map(|(place, listener)| Ok((*place, listener.try_clone()?)))
                .collect::<io::Result<_>>()?;
            let setup = Setup {
                index: index as u16,
                configuration: Arc::clone(&configuration),
                listeners,
                ports: ports(control, &generations, index as u16, &configuration),
                bells,
                access_log: access_log.clone(),
                everyone: commands.clone(),
                loads: Arc::clone(&loads),
                commands: receiver,
            };
            handles.push(std::thread::Builder::new().name(format!("event loop {index}")).spawn(|| thread::run(setup))?);
        }
        Ok(Threads { handles, commands, generations })
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for commands in &self.commands {
            // A thread that has drained hears nothing.
            let _ = commands.send(command());
        }
    }

    /// Goes on passing deaths of workers on until all threads have finished.
    fn drain(self, control: &ControlSocket) -> io::Result<()> {
        while self.handles.iter().any(|handle| !handle.is_finished()) {
            poll(&mut [PollFd::new(control.as_fd(), PollFlags::POLLIN)], PollTimeout::from(20u8))?;
            match control.receive() {
                Ok(Some((ToRouter::WorkerDied { generation, worker }, _))) => {
                    self.tell(|| Command::WorkerDied(generation, worker));
                }
                Ok(None) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn ports(
    control: &Arc<ControlSocket>,
    generations: &[Arc<Generation>],
    thread: u16,
    configuration: &Arc<Configuration>,
) -> Box<dyn FnOnce() -> HashMap<String, Rc<Port>> + Send> {
    let (control, generations, configuration) = (Arc::clone(control), generations.to_vec(), Arc::clone(configuration));
    // Each broken rule once: the workers are replaced anyway.
    let reported = Arc::new(Mutex::new(None::<std::time::Instant>));
    Box::new(move || {
        let port = |generation: Arc<Generation>| {
            let (control, reported) = (Arc::clone(&control), Arc::clone(&reported));
            let report = move |generation: u64, violation: Violation| {
                let mut last = reported.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if last.is_none_or(|at| at.elapsed().as_secs() >= 1) {
                    *last = Some(std::time::Instant::now());
                    tracing::error!(%violation, "the workers of this application are replaced");
                    let _ = control.send(&FromRouter::Violation { generation, rule: violation.0.into() }, &[]);
                }
            };
            let folder = configuration.settings.http.body_temp_path.as_deref();
            (generation.application.clone(), Rc::new(Port::new(generation, thread, folder, Box::new(report))))
        };
        generations.into_iter().map(port).collect()
    })
}
