//! The limits that the kernel sets: descriptors, and the length of a listener's backlog. They are read once, at the
//! start.
//!
//! Low limits do not prevent the start. They are logged with the command that raises them, because they only matter
//! under load.

use howdah_protocol::sockets::backlog::longest_backlog;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// The most descriptors that a process may have; `None` is no limit.
    descriptors: Option<u64>,
    /// The longest backlog of a listening socket; `None` if it cannot be read.
    backlog: Option<u64>,
}

/// This number of descriptors is enough for some thousand connections.
const ENOUGH_DESCRIPTORS: u64 = 4096;
/// The default of Linux since 5.4: a burst of this number of connections is not refused.
const ENOUGH_BACKLOG: u64 = 4096;

/// The limit of descriptors with which the supervisor was started.
static INITIAL_DESCRIPTORS: OnceLock<u64> = OnceLock::new();

/// Raises our own limit of descriptors as far as permitted. Called once, at the start.
pub fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        current.map(|former| INITIAL_DESCRIPTORS.set(former));
    }
}

/// The limit of descriptors for child processes that cannot use more: PHP's select() accepts none beyond 1023. `None`
/// leaves the limit as it is.
pub fn initial_descriptors() -> Option<u64> {
    INITIAL_DESCRIPTORS.get().copied()
}

/// Reads the limits.
pub fn kernel_limits() -> KernelLimits {
    KernelLimits { descriptors: getrlimit(Resource::Nofile).current, backlog: longest_backlog().map(u64::from) }
}

// === impl KernelLimits ===

impl KernelLimits {
    /// Warnings for the operator, a sentence each.
    pub fn warnings(self) -> Vec<String> {
        let descriptors = self.descriptors.filter(|most| *most < ENOUGH_DESCRIPTORS).map(|most| {
            format!(
                "at most {most} descriptors may be open, and each connection needs one: further connections wait; raise \
                 the limit with `ulimit -Hn 65536` before howdah starts, or LimitNOFILE=65536 in the unit of systemd"
            )
        });
        let backlog = self.backlog.filter(|most| *most < ENOUGH_BACKLOG).map(|most| {
            format!(
                "at most {most} connections may wait in a listener's backlog: the kernel refuses the rest of a larger \
                 burst; raise the limit with `sysctl -w net.core.somaxconn=4096`, and start howdah again"
            )
        });
        descriptors.into_iter().chain(backlog).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_reported_with_the_command_that_raises_it() {
        let cases = [
            ((Some(1_048_576), Some(4096)), vec![]),
            ((None, None), vec![]),
            ((Some(1024), Some(4096)), vec!["ulimit -Hn 65536"]),
            ((Some(4095), Some(128)), vec!["at most 4095 descriptors", "net.core.somaxconn=4096"]),
        ];
        for ((descriptors, backlog), expected) in cases {
            let warnings = KernelLimits { descriptors, backlog }.warnings();
            assert_eq!(warnings.len(), expected.len());
            for (warning, words) in warnings.iter().zip(expected) {
                assert!(warning.contains(words), "{warning}");
            }
        }
    }
}
