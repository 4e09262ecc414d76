//! Which release of an application a generation runs, and how it is warmed.

use super::{Generation, Prototype};
use crate::os::memory_file::memory_file;
use crate::plan::application::Release;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

// === impl Generation ===

impl Generation {
    /// Which release it runs.
    pub fn release(&self) -> &Release {
        &self.plan.release
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
        memory_file(&serde_json::to_vec(&self.plan.release.paths)?)
    }

    /// The requests of its warm-up, likewise.
    pub fn warm_up(&self) -> io::Result<OwnedFd> {
        memory_file(&serde_json::to_vec(&self.plan.release.warm_up)?)
    }
}
