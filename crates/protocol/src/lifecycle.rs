//! What the supervisor and its children tell each other.
//!
//! A child finds its control socket at [`CONTROL_FD`]. The supervisor's first message is the boot message, with the
//! descriptors that it names, in their order.

use crate::build_id::BUILD_ID;
use crate::confinement::Confinement;
use crate::control::ControlSocket;
use howdah_channel::Geometry;
use howdah_channel::WorkerId;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, initgroups, setgid, setgroups, setuid};
use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

/// Where a child finds its control socket.
pub const CONTROL_FD: RawFd = 3;

/// The exit code of a worker that the router does not hear, as a script has closed its descriptors: EX_IOERR of sysexits.h.
pub const CUT_OFF: i32 = 74;

/// Who a child becomes, before it does anything else. Nothing changes for `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User and group id.
    pub ids: Option<(u32, u32)>,
}

impl Identity {
    /// Becomes this user, for good: groups first, while that is still allowed. Only while the process has one thread. Clears
    /// the death signal: see [`die_with_supervisor`].
    ///
    /// # Errors
    /// When the process may not.
    pub fn assume(self, user: Option<&str>) -> io::Result<()> {
        let Some((uid, gid)) = self.ids else { return Ok(()) };
        let gid = Gid::from_raw(gid);
        match user.and_then(|name| CString::new(name).ok()) {
            Some(name) => initgroups(&name, gid)?,
            None => setgroups(&[gid])?,
        }
        setgid(gid)?;
        setuid(Uid::from_raw(uid))?;
        Ok(())
    }

    /// The same with these supplementary groups, for a process that sees no /etc/group, or another one.
    ///
    /// # Errors
    /// When the process may not.
    pub fn assume_with(self, groups: &[u32]) -> io::Result<()> {
        let Some((uid, gid)) = self.ids else { return Ok(()) };
        let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        setgid(Gid::from_raw(gid))?;
        setuid(Uid::from_raw(uid))?;
        Ok(())
    }
}

/// From now on this process is killed when the supervisor at the other end of its control socket dies. To be asked for
/// at the start, and again after [`Identity::assume`]: a change of user clears it.
///
/// # Errors
/// When the supervisor is dead already: no signal will come for that.
pub fn die_with_supervisor(control: &ControlSocket) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // Of a socket pair, this is who made it.
    let supervisor = rustix::net::sockopt::socket_peercred(control)?.pid;
    if rustix::process::getppid() != Some(supervisor) {
        return Err(io::Error::other("the supervisor is gone"));
    }
    Ok(())
}

/// Supervisor to prototype.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToPrototype {
    /// Load PHP. Descriptors: the channel's memory, standard error for what comes after, the file of profiles, the slow
    /// log if there is one, then one eventfd for each router thread.
    Boot(Box<PrototypeBoot>),
    /// Fork this worker.
    Start(WorkerId),
    /// Say that you are there.
    Answer,
}

/// What a prototype needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub struct PrototypeBoot {
    /// [`BUILD_ID`] of the supervisor.
    pub build: String,
    /// The application's name, for process titles and errors.
    pub application: String,
    /// The size of its channel.
    pub geometry: Geometry,
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
    /// What it does not share with the machine; before it becomes the user, who is meant as seen inside then.
    pub confinement: Option<Confinement>,
    /// The php.ini to read instead of the distribution's.
    pub php_ini: Option<PathBuf>,
    /// Settings that scripts can't change.
    pub admin_values: BTreeMap<String, String>,
    /// Settings that scripts may change.
    pub user_values: BTreeMap<String, String>,
    /// What it must be able to read once it is the user, before it loads PHP.
    pub needs: Vec<Need>,
    /// Where scripts that ask for relative paths begin.
    pub working_directory: Option<PathBuf>,
    /// After how many requests a worker ends; another one takes its place.
    pub requests_per_worker: Option<u32>,
    /// When it has grown by more than this since its birth, in bytes, a worker ends; another one takes its place.
    pub memory_per_worker: Option<u64>,
    /// What is written to the slow log.
    pub slow_log: Option<SlowRequests>,
    /// Whether a request may be ended for its time.
    pub has_timeout: bool,
    /// How many descriptors its processes may have, if not as many as the supervisor.
    pub descriptors: Option<u64>,
    /// Value of `SERVER_SOFTWARE`, shown by phpinfo().
    pub server_software: String,
}

/// Which requests are slow, and what is written of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRequests {
    /// Those that take longer, in milliseconds.
    pub threshold_ms: u64,
    /// How many times PHP's stack is looked at, at most.
    pub samples: u32,
}

/// A folder or a file of an application, at a path as the application sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The option that names it, with its path in the configuration: for errors.
    pub option: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is a folder, which must let the user pass, or else a regular file, which the user must be able to read.
    pub is_folder: bool,
}

/// Prototype to supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromPrototype {
    /// PHP is loaded: workers can be forked.
    Booted {
        /// PHP's full version.
        php_version: String,
        /// Whether opcache is on for requests.
        opcache: bool,
    },
    /// PHP can't be loaded. The prototype exits.
    Failed {
        /// Why, in a sentence.
        reason: String,
    },
    /// Another process, its only child, goes on in its place, as the first one of a namespace of processes. This one
    /// exits. Once at most, before PHP is loaded.
    Moved {
        /// The other one's process id.
        pid: i32,
    },
    /// A worker was forked.
    Started {
        /// Its name.
        worker: WorkerId,
        /// Its process id, as the prototype sees it.
        pid: i32,
    },
    /// A worker cannot be forked now: there is no process, or no memory, for it.
    NotForked {
        /// Its name.
        worker: WorkerId,
    },
    /// Still there.
    IsThere,
    /// A worker ended, and was reaped.
    Exited {
        /// Its name.
        worker: WorkerId,
        /// Its process id.
        pid: i32,
        /// How it ended.
        end: ProcessEnd,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessEnd {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Supervisor to router.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToRouter {
    /// Become a user, and start the threads. The first message.
    Boot(RouterBoot),
    /// A generation that a configuration will name. Descriptors: its channel's memory, the text of its
    /// [`Places`](crate::places::Places), then one eventfd for each thread.
    Generation(GenerationBoot),
    /// Have a generation that no configuration names yet answer these requests: [`FromRouter::Warmed`]. Descriptors: the
    /// text of them, an array of [`WarmUpRequest`](crate::warm_up::WarmUpRequest)s.
    WarmUp {
        /// The generation.
        generation: u64,
    },
    /// No configuration will name this generation.
    Forget {
        /// The generation.
        generation: u64,
    },
    /// A listening socket that a configuration will name. Descriptors: the socket.
    Listener {
        /// Its number, unique for the life of the supervisor.
        id: u64,
    },
    /// Serve by this configuration from now on. Descriptors: its text; the certificates, a JSON object of names and PEM
    /// bundles; the access log, if there is one.
    Configure(RouterConfiguration),
    /// A worker is started: it may claim requests. Of each that lives, after the boot message and from then on.
    WorkerStarted {
        /// The generation it belongs to.
        generation: u64,
        /// Its name.
        worker: WorkerId,
    },
    /// A worker is dead: its request is lost.
    WorkerDied {
        /// The generation it belonged to.
        generation: u64,
        /// Its name.
        worker: WorkerId,
        /// What it ran, by its own word, if it died of that as far as the supervisor knows: slot and sequence number.
        killer: Option<(u16, u32)>,
    },
    /// All workers of a generation that broke the channel's rules are dead.
    WorkersReplaced {
        /// The generation.
        generation: u64,
    },
    /// Write the access log to this descriptor from now on.
    ReopenLog,
    /// Say how much there is to do: see [`FromRouter::Load`].
    TellLoad,
    /// Accept no more connections, finish the requests under way, then exit.
    Drain,
}

/// What a router needs to know first.
#[derive(Debug, Serialize, Deserialize)]
pub struct RouterBoot {
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
    /// How many event-loop threads to run.
    pub threads: u16,
}

/// A generation that a router submits requests to.
#[derive(Debug, Serialize, Deserialize)]
pub struct GenerationBoot {
    /// Its number, unique for the life of the supervisor.
    pub id: u64,
    /// Its application's name.
    pub application: String,
    /// The size of its channel.
    pub geometry: Geometry,
    /// If more workers are started when fewer than this are idle: [`FromRouter::Wanting`].
    pub spare_workers: Option<u32>,
    /// How long a worker may take for a request, in milliseconds: [`FromRouter::Overdue`].
    pub timeout_ms: Option<u64>,
    /// How long a request may wait for a worker, in milliseconds.
    pub queue_timeout_ms: u64,
}

/// What a configuration is about, besides its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterConfiguration {
    /// Its number: later ones are larger.
    pub version: u64,
    /// The numbers of its listening sockets, in the order of its text. What is not named here is closed.
    pub listeners: Vec<u64>,
    /// The generation of each application. What is not named here is released.
    pub generations: BTreeMap<String, u64>,
    /// Whether an access log is among the descriptors.
    pub access_log: bool,
}

/// Router to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromRouter {
    /// All threads serve by this configuration.
    Configured {
        /// Its number.
        version: u64,
    },
    /// This configuration can't be served; the one before it goes on.
    Refused {
        /// Its number.
        version: u64,
        /// Why, in a sentence.
        reason: String,
    },
    /// A generation has answered its warm-up.
    Warmed {
        /// The generation.
        generation: u64,
        /// Why it is not fit to be put in force, in a sentence.
        refusal: Option<String>,
    },
    /// No request uses this generation any more, nor will one.
    Released {
        /// The generation.
        generation: u64,
    },
    /// A worker of this generation broke the channel's rules: all its workers must be replaced.
    Violation {
        /// The generation.
        generation: u64,
        /// Which rule.
        rule: String,
    },
    /// Fewer workers are idle than should be.
    Wanting {
        /// The generation.
        generation: u64,
        /// How many requests wait for a worker.
        waiting: u64,
    },
    /// A worker takes longer for its request than it may: the request must be ended. Again after a while, if it goes on.
    Overdue {
        /// The generation.
        generation: u64,
        /// The worker.
        worker: WorkerId,
        /// The request: its slot, and the slot's sequence number.
        request: (u16, u32),
    },
    /// The answer to [`ToRouter::TellLoad`].
    Load(RouterLoad),
}

/// How much a router has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterLoad {
    /// Connections of clients accepted since it started.
    pub connections_accepted: u64,
    /// Of these, the ones that are closed.
    pub connections_closed: u64,
    /// Connections on which a request is under way.
    pub connections_active: u64,
    /// Requests since it started.
    pub requests_total: u64,
    /// Requests under way or waiting, by generation.
    pub requests_active: BTreeMap<u64, u64>,
    /// Requests that wait for a worker, by generation.
    pub requests_waiting: BTreeMap<u64, u64>,
    /// Requests that were answered 503 since no worker took them in time, by generation.
    pub requests_refused: BTreeMap<u64, u64>,
}

impl PrototypeBoot {
    /// A prototype's first message, and its descriptors. `None` when the supervisor is gone.
    ///
    /// # Errors
    /// When there is another message, or none yet; or when the supervisor is of another build, whose messages may not even
    /// look like ours: then it says what to do.
    pub fn receive(control: &ControlSocket) -> io::Result<Option<(PrototypeBoot, Vec<OwnedFd>)>> {
        let Some((message, descriptors)) = control.receive_long::<serde_json::Value>()? else { return Ok(None) };
        let build = message.pointer("/Boot/build").and_then(|build| build.as_str()).unwrap_or("of an older version");
        if build != BUILD_ID {
            return Err(io::Error::other(format!(
                "howdah and its PHP executable are not of the same build (howdah is {build}, howdah-php {BUILD_ID}); \
                 restart howdah if it was updated, or else build both with `make`"
            )));
        }
        match serde_json::from_value(message)? {
            ToPrototype::Boot(boot) => Ok(Some((*boot, descriptors))),
            ToPrototype::Start(_) | ToPrototype::Answer => Err(io::Error::other("the supervisor sent no boot message")),
        }
    }
}

impl ProcessEnd {
    /// What wait(2) says; `None` if the process lives. Real-time signals have no names, and are signals all the same.
    pub fn of(status: WaitStatus) -> Option<ProcessEnd> {
        status.exit_status().map(ProcessEnd::Code).or_else(|| status.terminating_signal().map(ProcessEnd::Signal))
    }
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProcessEnd::Code(code) => write!(f, "exited with code {code}"),
            ProcessEnd::Signal(signal) => {
                write!(f, "was killed by signal {signal}")?;
                Signal::try_from(*signal).map_or(Ok(()), |named| write!(f, " ({})", named.as_str()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_made_the_socket_must_be_the_parent() {
        let (ours, _theirs) = ControlSocket::pair().unwrap();
        // This process made the pair itself, and is not its own parent.
        assert!(die_with_supervisor(&ours).unwrap_err().to_string().contains("gone"));
        prctl::set_pdeathsig(None).unwrap();
    }

    #[test]
    fn a_supervisor_of_another_build_is_told_what_to_do_whatever_its_messages_look_like() {
        for text in [
            serde_json::json!({"Boot": {"application": "shop"}}),
            serde_json::json!({"Boot": {"build": "0.0.9-0123456789abcdef", "application": "shop"}}),
            serde_json::json!({"Hello": 1}),
        ] {
            let (supervisor, prototype) = ControlSocket::pair().unwrap();
            supervisor.send(&text, &[]).unwrap();
            let error = PrototypeBoot::receive(&prototype).unwrap_err().to_string();
            assert!(error.contains("not of the same build") && error.contains("restart howdah"), "{error}");
        }
    }
}
