//! `howdah`: the command line, and the supervisor and the router, which are the same executable under other titles.
//!
//! A process knows its role by its title (`argv[0]`), which only howdah itself gives.

#![forbid(unsafe_code)]

mod client;
mod command_line;
mod diagnostics;
mod output;
mod php_versions;
mod places;
mod recognition;
mod serve;

use diagnostics::Writing;
use std::ffi::OsStr;
use std::process::ExitCode;

/// For the router: it keeps memory of different sizes apart, and gives it back after a burst.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let title = std::env::args_os().next().unwrap_or_default();
    let is_router = title == OsStr::new(howdah_supervisor::ROUTER_TITLE);
    let is_supervisor = title == OsStr::new(howdah_supervisor::SUPERVISOR_TITLE);
    let _diagnostics =
        diagnostics::start(if is_router || is_supervisor { Writing::NeverWaits } else { Writing::Waits });
    if is_supervisor {
        // What `ps -o comm` and `top` show: /proc/self/exe, from which this was started, would be "exe".
        let _ = rustix::thread::set_name(c"howdah");
        howdah_supervisor::main()
    } else if is_router {
        let _ = rustix::thread::set_name(c"howdah-router");
        howdah_router::main()
    } else {
        command_line::main()
    }
}
