//! The messages between the supervisor and a prototype.

use crate::build_id::BUILD_ID;
use crate::child::identity::Identity;
use crate::log_format::LogFormat;
use crate::messages::confinement::Confinement;
use crate::messages::process_end::ProcessEnd;
use crate::sockets::control_socket::ControlSocket;
use howdah_channel::{Geometry, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// From the supervisor to a prototype.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToPrototype {
    /// Load PHP. With [`BootDescriptors`].
    Boot(Box<PrototypeBoot>),
    /// Fork this worker.
    StartWorker(PoolWorker),
    /// Answer [`FromPrototype::Pong`].
    Ping,
}

/// The boot message of a prototype.
#[derive(Debug, Serialize, Deserialize)]
pub struct PrototypeBoot {
    /// [`BUILD_ID`] of the supervisor.
    pub build: String,
    /// The application's name, for process titles and errors.
    pub application: String,
    /// Its pools of workers. At least one.
    pub pools: Vec<PoolBoot>,
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
    /// The form of its log lines.
    pub log_format: LogFormat,
    /// Its namespaces and root directory, which it enters before it becomes the user. `identity` is as seen inside.
    pub confinement: Option<Confinement>,
    /// The php.ini to read instead of the distribution's.
    pub php_ini: Option<PathBuf>,
    /// Settings that scripts can't change.
    pub admin_values: BTreeMap<String, String>,
    /// Settings that scripts may change.
    pub user_values: BTreeMap<String, String>,
    /// The paths that it must be able to read as the user, before it loads PHP.
    pub required_paths: Vec<RequiredPath>,
    /// Scripts that PHP must be able to compile.
    pub written: Vec<PathBuf>,
    /// The working directory of scripts.
    pub working_directory: Option<PathBuf>,
    /// The number of requests after which a worker exits for a replacement.
    pub requests_per_worker: Option<u32>,
    /// The growth since its start, in bytes, beyond which a worker exits for a replacement.
    pub memory_per_worker: Option<u64>,
    /// The requests that are written to the slow log.
    pub slow_log: Option<SlowRequests>,
    /// `limits/timeout`, in milliseconds: a request that takes longer is ended.
    pub timeout_ms: Option<u64>,
    /// The limit of descriptors of its processes; `None` keeps the supervisor's.
    pub descriptors: Option<u64>,
    /// Value of `SERVER_SOFTWARE`, shown by phpinfo().
    pub server_software: String,
    /// Environment variables that only the dynamic loader needed: PHP does not see them.
    pub loader_variables: Vec<String>,
}

/// The descriptors of a boot message.
#[derive(Debug)]
pub struct BootDescriptors {
    /// Standard error after the boot.
    pub stderr: OwnedFd,
    /// The file of profiles.
    pub profile: OwnedFd,
    /// The slow log, if the message names slow requests.
    pub slow_log: Option<OwnedFd>,
    /// The memory of each pool's channel.
    pub channels: Vec<OwnedFd>,
    /// An eventfd for each thread of the router.
    pub bells: Vec<OwnedFd>,
}

/// Workers that run the same script, and share a channel. An application with several worker scripts has a pool for each, and
/// one for classic mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolBoot {
    /// The size of its channel.
    pub geometry: Geometry,
    /// In worker mode, the script that each worker runs; `None` is classic mode.
    pub worker_script: Option<WorkerScript>,
}

/// A worker of a prototype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolWorker {
    /// The index of its pool.
    pub pool: u16,
    /// Its name in the pool's channel.
    pub worker: WorkerId,
}

/// The script of an application in worker mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerScript {
    /// DOCUMENT_ROOT.
    pub root: PathBuf,
    /// Its path below the root, without a slash in front.
    pub name: String,
    /// SCRIPT_FILENAME.
    pub filename: PathBuf,
    /// Whether the prototype boots it, and forks workers that have booted.
    pub preboot: bool,
    /// Async mode: the most requests that each worker runs at a time. `None`: one.
    pub concurrency: Option<u16>,
}

/// Which requests are slow, and how they are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRequests {
    /// Slow requests take longer than this, in milliseconds.
    pub threshold_ms: u64,
    /// The most samples of PHP's stack for one request.
    pub samples: u32,
}

/// A folder or a file of an application, at a path as the application sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredPath {
    /// The option that names it, as a path in the configuration, for errors.
    pub option: String,
    /// Its path.
    pub path: PathBuf,
    /// Whether it is a folder, which the user must be able to enter. Otherwise it is a regular file, which the user must be
    /// able to read.
    pub is_folder: bool,
}

/// From a prototype to the supervisor.
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
        /// The reason, as a sentence.
        reason: String,
    },
    /// Its only child continues as the prototype, as the first process of a pid namespace, and this process exits. At most
    /// once, before PHP is loaded.
    Moved {
        /// The child's process id.
        pid: i32,
    },
    /// A worker was forked.
    WorkerStarted {
        /// Its name.
        worker: PoolWorker,
        /// Its process id, as the prototype sees it.
        pid: i32,
    },
    /// A worker can't be forked now, because there is no process or no memory for it.
    WorkerNotForked {
        /// Its name.
        worker: PoolWorker,
    },
    /// The answer to [`ToPrototype::Ping`].
    Pong,
    /// A worker ended and was reaped.
    WorkerExited {
        /// Its name.
        worker: PoolWorker,
        /// Its process id.
        pid: i32,
        /// How it ended.
        end: ProcessEnd,
    },
}

// === impl PrototypeBoot ===

impl PrototypeBoot {
    /// Receives a prototype's first message and its descriptors; `None` when the supervisor is dead.
    ///
    /// # Errors
    /// When it is another message, lacks descriptors, or no message has arrived yet. When the supervisor is of another build, whose messages may have
    /// another format: then the error names what to do.
    pub fn receive(control: &ControlSocket) -> io::Result<Option<(PrototypeBoot, BootDescriptors)>> {
        let Some((message, descriptors)) = control.receive_long::<serde_json::Value>()? else { return Ok(None) };
        let build = message.pointer("/Boot/build").and_then(|build| build.as_str()).unwrap_or("of an older version");
        if build != BUILD_ID {
            return Err(io::Error::other(format!(
                "howdah and its PHP executable are not of the same build (howdah is {build}, howdah-php {BUILD_ID}); \
                 restart howdah if it was updated, or else build both with `make`"
            )));
        }
        match serde_json::from_value(message)? {
            ToPrototype::Boot(boot) => {
                let descriptors = BootDescriptors::of(descriptors, &boot).ok_or_else(|| {
                    io::Error::other("the boot message came without its descriptors: standard error, the files of samples, the channels' memory")
                })?;
                Ok(Some((*boot, descriptors)))
            }
            ToPrototype::StartWorker(_) | ToPrototype::Ping => {
                Err(io::Error::other("the supervisor sent no boot message"))
            }
        }
    }
}

// === impl BootDescriptors ===

impl BootDescriptors {
    /// The descriptors as they are sent.
    pub fn into_list(self) -> Vec<OwnedFd> {
        let BootDescriptors { stderr, profile, slow_log, channels, bells } = self;
        [stderr, profile].into_iter().chain(slow_log).chain(channels).chain(bells).collect()
    }

    /// The descriptors that came with this message; `None` if some are missing.
    fn of(list: Vec<OwnedFd>, boot: &PrototypeBoot) -> Option<BootDescriptors> {
        let mut list = list.into_iter();
        let (stderr, profile) = (list.next()?, list.next()?);
        let slow_log = if boot.slow_log.is_some() { Some(list.next()?) } else { None };
        let channels: Vec<_> = list.by_ref().take(boot.pools.len()).collect();
        (channels.len() == boot.pools.len()).then(|| BootDescriptors {
            stderr,
            profile,
            slow_log,
            channels,
            bells: list.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_of_another_build_is_rejected_with_advice_for_any_format_of_its_messages() {
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
