//! Kills the background processes that PHP code has started and left running: when howdah exits, after all workers have
//! finished.
//!
//! Whatever its process group and session, such a process is a child of the supervisor by then, because the supervisor
//! adopts all orphans below it; when the process dies, its own children are adopted too. Children that the process had
//! before it became a supervisor were not started by PHP, and are left alone, but for its companion, which ends with it.

use super::process::{self, Process};

/// The background processes, and the children that are not among them.
#[derive(Debug)]
pub struct Sweep {
    spared: Vec<Process>,
    companion: Option<Process>,
    killed: Vec<Process>,
}

// === impl Sweep ===

impl Sweep {
    /// Spares all children that exist already, except the companion.
    pub fn new(companion: Option<i32>) -> Sweep {
        let children = process::children().into_iter().map(|child| child.process);
        let (companions, spared): (Vec<_>, _) =
            children.partition(|child| companion == Some(child.pid.as_raw_nonzero().get()));
        Sweep { spared, companion: companions.into_iter().next(), killed: Vec::new() }
    }

    /// Kills all other children. `true` if none is left. Otherwise, call it again after the next death of a child.
    pub fn finish(&mut self) -> bool {
        let mut left = process::children();
        left.retain(|child| !self.spared.contains(&child.process));
        let fresh: Vec<_> = left.iter().filter(|child| !child.dead && !self.killed.contains(&child.process)).collect();
        let of_php = fresh.iter().filter(|child| Some(child.process) != self.companion).count();
        if of_php > 0 {
            tracing::info!("killing {of_php} background processes of PHP");
        }
        for child in fresh {
            child.process.kill();
            self.killed.push(child.process);
        }
        left.is_empty()
    }
}
