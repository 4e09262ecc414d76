//! Kills the background processes that PHP code has started and left running: when howdah exits, after all workers have
//! finished.
//!
//! Whatever its process group and session, such a process is a child of the supervisor by then, because the supervisor
//! adopts all orphans below it; when the process dies, its own children are adopted too. Children that the process had
//! before it became a supervisor were not started by PHP, and are left alone.

use super::process::{self, Process};

/// The background processes, and the children that are not among them.
#[derive(Debug)]
pub struct Sweep {
    spared: Vec<Process>,
    killed: Vec<Process>,
}

// === impl Sweep ===

impl Sweep {
    /// Spares all children that exist already.
    pub fn new() -> Sweep {
        Sweep { spared: process::children().into_iter().map(|child| child.process).collect(), killed: Vec::new() }
    }

    /// Kills all other children. `true` if none is left. Otherwise, call it again after the next death of a child.
    pub fn finish(&mut self) -> bool {
        let mut left = process::children();
        left.retain(|child| !self.spared.contains(&child.process));
        let fresh: Vec<_> = left.iter().filter(|child| !child.dead && !self.killed.contains(&child.process)).collect();
        if !fresh.is_empty() {
            tracing::info!("killing {} background processes of PHP", fresh.len());
        }
        for child in fresh {
            child.process.kill();
            self.killed.push(child.process);
        }
        left.is_empty()
    }
}
