//! How a worker ended: whether that was in order, the cause that is counted, and the line in the log. Pure.

use crate::generation::tally::Death;
use howdah_protocol::messages::process_end::{EXIT_BOOT_FAILED, EXIT_ROUTER_UNREACHABLE, ProcessEnd};

/// The circumstances of a worker's exit.
#[derive(Clone, Copy, Debug)]
pub struct WorkerExit {
    /// How it ended.
    pub end: ProcessEnd,
    /// Its generation has been asked to exit.
    pub is_stopping: bool,
    /// It had been asked to end its request, because that was overdue.
    pub was_overdue: bool,
    /// A worker may exit by itself between two requests: the configuration limits its requests or its memory, or it
    /// runs a worker script.
    pub may_exit: bool,
}

// === impl WorkerExit ===

impl WorkerExit {
    /// Whether it exited by itself where it may. Between two requests, only the end of its allowance or of its worker
    /// script ends a worker like that.
    pub fn is_in_order(self, in_request: bool) -> bool {
        self.end == ProcessEnd::Code(0) && (self.may_exit || self.was_overdue) && !in_request
    }

    /// The cause that is counted. `was_asked` is whether howdah wanted the worker to exit.
    pub fn death(self, in_request: bool, was_asked: bool) -> Death {
        let is_success = self.end == ProcessEnd::Code(0);
        match self.end {
            _ if self.was_overdue => Death::Timeout,
            _ if self.is_in_order(in_request) || self.is_stopping || (was_asked && is_success) => Death::InOrder,
            end => Death::by(end),
        }
    }

    /// How it ended, and what follows, for the log. A worker that was asked to exit is not replaced, and neither is the
    /// first one of a generation whose worker script does not boot.
    pub fn describe(self, is_replaced: bool) -> String {
        let cause = match self.end {
            ProcessEnd::Code(EXIT_ROUTER_UNREACHABLE) => " because a script closed its descriptors",
            ProcessEnd::Code(EXIT_BOOT_FAILED) => " because its worker script did not boot",
            _ => "",
        };
        let next = if is_replaced { "; another worker is started" } else { "" };
        format!("{}{cause}{next}", self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_the_cause_and_what_follows() {
        let exit = |end| WorkerExit { end, is_stopping: false, was_overdue: false, may_exit: false };
        let (segfault, unreachable) = (exit(ProcessEnd::Signal(11)), exit(ProcessEnd::Code(EXIT_ROUTER_UNREACHABLE)));
        assert_eq!(segfault.describe(true), "was killed by signal 11 (SIGSEGV); another worker is started");
        assert_eq!(segfault.describe(false), "was killed by signal 11 (SIGSEGV)");
        assert_eq!(
            unreachable.describe(true),
            "exited with code 74 because a script closed its descriptors; another worker is started"
        );
    }

    #[test]
    fn each_exit_has_one_cause() {
        let (success, segfault) = (ProcessEnd::Code(0), ProcessEnd::Signal(11));
        let exit = |end| WorkerExit { end, is_stopping: false, was_overdue: false, may_exit: false };
        let limited = WorkerExit { may_exit: true, ..exit(success) };
        let overdue = WorkerExit { was_overdue: true, ..exit(segfault) };
        let stopping = WorkerExit { is_stopping: true, ..exit(segfault) };
        // The exit, whether it was in a request, whether it was asked to exit, and the cause.
        let table = [
            (limited, false, false, Death::InOrder),
            (limited, true, false, Death::by(success)),
            (exit(success), false, true, Death::InOrder),
            (exit(success), false, false, Death::by(success)),
            (overdue, true, false, Death::Timeout),
            (stopping, true, false, Death::InOrder),
            (exit(segfault), true, true, Death::by(segfault)),
        ];
        for (exit, in_request, was_asked, cause) in table {
            assert_eq!(exit.death(in_request, was_asked), cause, "{exit:?}, {in_request}, {was_asked}");
        }
        assert_ne!(Death::by(success), Death::InOrder);
    }
}
