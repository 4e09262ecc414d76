//! What PHP started and left running ends with howdah: at the very end of it, when all workers have finished.
//!
//! Whatever its group and its session, it is our child by then, as we adopt all orphans below us; when it dies, so are
//! its own children. What was our child before we were a supervisor is none of PHP's, and is left alone.

use crate::os::process::{self, Process};

/// Ends what is left.
#[derive(Debug)]
pub struct Sweep {
    spared: Vec<Process>,
    killed: Vec<Process>,
}

// === impl Sweep ===

impl Sweep {
    /// Spares all children that there are already.
    pub fn new() -> Sweep {
        Sweep { spared: process::children().into_iter().map(|child| child.process).collect(), killed: Vec::new() }
    }

    /// Kills all other children. `true` when none is left; otherwise the death of one is the time to ask again.
    pub fn finish(&mut self) -> bool {
        let mut left = process::children();
        left.retain(|child| !self.spared.contains(&child.process));
        let fresh: Vec<_> = left.iter().filter(|child| !child.dead && !self.killed.contains(&child.process)).collect();
        if !fresh.is_empty() {
            tracing::info!("{} background processes of PHP are killed", fresh.len());
        }
        for child in fresh {
            child.process.kill();
            self.killed.push(child.process);
        }
        left.is_empty()
    }
}
