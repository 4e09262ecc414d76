//! The conditions of a lab: the machine, the method, and the checks before the race.

use serde::{Deserialize, Serialize};

/// The machine, as far as it explains figures. No host name and no address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// Cores that the lab may use.
    pub cores: u32,
    /// The frequency governor of the first core, such as `performance`; `None` if the kernel has none.
    pub governor: Option<String>,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution: `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// The hypervisor's flag of the processor.
    pub is_virtual: bool,
    /// The load average of one minute before the lab.
    pub load_average: f64,
    /// `net.core.somaxconn`: the upper limit of each server's backlog.
    pub somaxconn: u32,
    /// The limit of open files of the lab and of the servers that it starts.
    pub open_files: u64,
    /// `net.ipv4.ip_local_port_range`: the number of ports for new connections.
    pub local_ports: u32,
}

/// How it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Rounds: each stack is measured once under each load in a round.
    pub rounds: u32,
    /// The seed of the random order and of the bootstrap.
    pub seed: u64,
    /// The confidence level of all intervals: 0.95.
    pub confidence: f64,
    /// Resamples of the bootstrap.
    pub resamples: u32,
    /// A smaller difference than this share does not matter, even if it is no noise: 0.01.
    pub smallest_difference: f64,
    /// The cores of the load generator; empty: those of the servers.
    pub generator_cores: Vec<Core>,
    /// The cores of the servers; empty: all.
    pub server_cores: Vec<Core>,
    /// Where the load was made: `this machine`.
    pub generator: String,
    /// Sentences about the method, for the report.
    pub notes: Vec<String>,
}

/// The number of a core, as the kernel counts them.
pub type Core = u32;

/// One check before the race.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The subject: `the same response`, `opcache`, `open files`.
    pub name: String,
    /// Whether it was passed.
    pub state: CheckState,
    /// The finding, in a sentence.
    pub finding: String,
}

/// Whether a check was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// The same for all, or as it should be.
    Passed,
    /// A difference that lab.json states, or one that the reader must know.
    Warning,
    /// A difference that makes the comparison unfair.
    Failed,
}
