//! The messages between the supervisor and a prototype.

use crate::build_id::BUILD_ID;
use crate::confinement::Confinement;
use crate::control_socket::ControlSocket;
use crate::identity::Identity;
use crate::process_end::ProcessEnd;
use howdah_channel::{Geometry, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Supervisor to prototype.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToPrototype {
    /// Load PHP. Descriptors: the channel's memory, standard error for what comes after, the file of profiles, the slow
    /// log if there is one, then one eventfd for each router thread.
    Boot(Box<PrototypeBoot>),
    /// Fork this worker.
    StartWorker(WorkerId),
    /// Say that you are there.
    Ping,
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
    pub required_paths: Vec<RequiredPath>,
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
pub struct RequiredPath {
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
    WorkerStarted {
        /// Its name.
        worker: WorkerId,
        /// Its process id, as the prototype sees it.
        pid: i32,
    },
    /// A worker cannot be forked now: there is no process, or no memory, for it.
    WorkerNotForked {
        /// Its name.
        worker: WorkerId,
    },
    /// Still there.
    Pong,
    /// A worker ended, and was reaped.
    WorkerExited {
        /// Its name.
        worker: WorkerId,
        /// Its process id.
        pid: i32,
        /// How it ended.
        end: ProcessEnd,
    },
}

// === impl PrototypeBoot ===

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
            ToPrototype::StartWorker(_) | ToPrototype::Ping => {
                Err(io::Error::other("the supervisor sent no boot message"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
