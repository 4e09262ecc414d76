//! Which release of an application a generation runs, and how it is warmed.

use super::{Generation, Prototype};
use crate::boot::start::memory_file;
use howdah_protocol::generation_paths::{GenerationPaths, PinnedLink};
use howdah_protocol::warm_up::WarmUpRequest;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A release.
#[derive(Clone, Debug, Default)]
pub struct Deploy {
    /// Where its scripts are.
    pub paths: GenerationPaths,
    /// Each path of the configuration, and where it led.
    pub led_to: Vec<PinnedLink>,
    /// What it answers before others turn to it.
    pub warm_up: Vec<WarmUpRequest>,
}

// === impl Generation ===

impl Generation {
    /// Which release it runs.
    pub fn deploy(&self) -> &Deploy {
        &self.plan.deploy
    }

    /// When it was made: what was written before, it has read.
    pub fn born(&self) -> Instant {
        self.born
    }

    /// What it said until now does not concern its warm-up.
    pub fn begin_warm_up(&mut self) {
        if let Prototype::Up { said, .. } = &mut self.prototype {
            said.forget();
        }
    }

    /// The last lines that it wrote to standard error while it was warmed; empty for none.
    pub fn said_in_warm_up(&mut self) -> String {
        match &mut self.prototype {
            Prototype::Up { said, .. } => said.last_lines(),
            _ => String::new(),
        }
    }

    /// For the router, which reads it as text: paths may be many.
    pub(super) fn paths(&self) -> io::Result<OwnedFd> {
        memory_file(&serde_json::to_vec(&self.plan.deploy.paths)?)
    }

    /// The requests of its warm-up, likewise.
    pub fn warm_up(&self) -> io::Result<OwnedFd> {
        memory_file(&serde_json::to_vec(&self.plan.deploy.warm_up)?)
    }
}
