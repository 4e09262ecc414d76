//! `howdah`: the command line, and the supervisor, the router, the process that obtains certificates, the process of the metrics
//! listener, and the launcher of HTTP applications, which run the same executable under other titles.
//!
//! - [`command_line`]: assembles the commands and reads the arguments
//! - [`commands`]: one module for each command: its options and what it does
//! - [`control_client`]: the client of the control API
//! - [`rejection`]: shows an error at its position in a text
//! - [`terminal`]: output for the user: tables, reports, escaped text
//! - [`diagnostics`], [`log_limit`]: the log messages of a process, and how many of one kind are written
//! - [`paths`], [`php_versions`]: the default state directories and control sockets; the installed PHP versions
//!
//! A process knows its role by its title (`argv[0]`), which only howdah itself sets.

#![forbid(unsafe_code)]

mod argument;
mod command_line;
mod commands;
mod control_client;
mod diagnostics;
mod log_limit;
mod paths;
mod php_versions;
mod rejection;
mod terminal;

use diagnostics::Writing;
use howdah_background_writer::standard_error;
use std::ffi::OsStr;
use std::process::ExitCode;

/// For the router: it keeps allocations of different sizes apart, and returns memory to the kernel after a burst.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let title = std::env::args_os().next().unwrap_or_default();
    let is_router = title == OsStr::new(howdah_supervisor::ROUTER_TITLE);
    if title == OsStr::new(howdah_supervisor::LAUNCHER_TITLE) {
        return howdah_supervisor::launcher::main();
    }
    let is_acme = title == OsStr::new(howdah_supervisor::ACME_TITLE);
    let is_exporter = title == OsStr::new(howdah_supervisor::EXPORTER_TITLE);
    let is_supervisor = title == OsStr::new(howdah_supervisor::SUPERVISOR_TITLE);
    let _diagnostics = diagnostics::start(if is_router || is_supervisor || is_exporter || is_acme {
        Writing::Background
    } else {
        Writing::Direct
    });
    if is_exporter || is_acme {
        // They do not follow the mounts, as the other two do.
        standard_error().set_may_hang(true);
    }
    if is_supervisor {
        // `ps -o comm` and `top` show this name. The default is "exe", as the process was started from /proc/self/exe.
        let _ = rustix::thread::set_name(c"howdah");
        howdah_supervisor::main()
    } else if is_router {
        let _ = rustix::thread::set_name(c"howdah-router");
        howdah_router::main()
    } else if is_acme {
        let _ = rustix::thread::set_name(c"howdah-acme");
        howdah_acme::main()
    } else if is_exporter {
        let _ = rustix::thread::set_name(c"howdah-metrics");
        howdah_exporter::main()
    } else {
        command_line::main()
    }
}
