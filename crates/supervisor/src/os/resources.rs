//! What the kernel grants: descriptors, and how long a backlog may be. It is looked at once, at the start.
//!
//! Too little of either is no reason not to start. It is told, with the command that raises it, as it shows only when
//! much is to be done.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The most descriptors of a process; `None` is as many as it likes.
    descriptors: Option<u64>,
    /// The longest backlog of a listening socket, if the kernel tells.
    backlog: Option<u64>,
}

/// So many descriptors are enough for some thousand connections.
const ENOUGH_DESCRIPTORS: u64 = 4096;
/// What Linux has as its default since 5.4: a burst of so many connections is not refused.
const ENOUGH_BACKLOG: u64 = 4096;

/// The limit of descriptors that we were started with.
static FORMER: OnceLock<u64> = OnceLock::new();

/// Raises our own limit of descriptors as far as we may. Once, at the start.
pub fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        current.map(|former| FORMER.set(former));
    }
}

/// The limit of descriptors for who did not ask for more: PHP's select() knows none beyond 1023. `None` is the one that
/// holds.
pub fn former_descriptors() -> Option<u64> {
    FORMER.get().copied()
}

/// Looks at what is granted.
pub fn granted() -> Granted {
    Granted { descriptors: getrlimit(Resource::Nofile).current, backlog: longest_backlog().map(u64::from) }
}

/// The longest queue of connections that the kernel allows a listening socket: net.core.somaxconn.
pub fn longest_backlog() -> Option<u32> {
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?;
    somaxconn.trim().parse().ok()
}

// === impl Granted ===

impl Granted {
    /// What an operator should know, a sentence each.
    pub fn warnings(self) -> Vec<String> {
        let descriptors = self.descriptors.filter(|most| *most < ENOUGH_DESCRIPTORS).map(|most| {
            format!(
                "no more than {most} descriptors may be open, and each connection needs one: others wait; raise it with \
                 `ulimit -Hn 65536` before howdah starts, or LimitNOFILE=65536 in the unit of systemd"
            )
        });
        let backlog = self.backlog.filter(|most| *most < ENOUGH_BACKLOG).map(|most| {
            format!(
                "no more than {most} connections may wait in a listener's backlog: the kernel refuses those of a larger \
                 burst; raise it with `sysctl -w net.core.somaxconn=4096`, and start howdah again"
            )
        });
        descriptors.into_iter().chain(backlog).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_low_is_told_with_the_command_that_raises_it() {
        let cases = [
            ((Some(1_048_576), Some(4096)), vec![]),
            ((None, None), vec![]),
            ((Some(1024), Some(4096)), vec!["ulimit -Hn 65536"]),
            ((Some(4095), Some(128)), vec!["no more than 4095 descriptors", "net.core.somaxconn=4096"]),
        ];
        for ((descriptors, backlog), expected) in cases {
            let warnings = Granted { descriptors, backlog }.warnings();
            assert_eq!(warnings.len(), expected.len());
            for (warning, words) in warnings.iter().zip(expected) {
                assert!(warning.contains(words), "{warning}");
            }
        }
    }
}
