//! howdah's PHP processes: one executable for each PHP version.
//!
//! The supervisor starts it as a prototype, which forks the workers. By hand: `--version`, and `--floor` for bench/.
//!
//! - [`prototype`]: confines itself if configured, loads PHP, forks and reaps workers
//! - [`worker`]: runs requests
//! - [`sapi`]: declarations of the SAPI in C (`sapi/`), which PHP is behind
//! - [`floor`]: measures PHP alone, for benchmarks
//! - [`log`]: lines on standard error

#![deny(unsafe_code)]

mod floor;
mod log;
mod prototype;
mod sapi;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    abort_on_panic();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("--version") => {
            println!("howdah-php {}, PHP {}", env!("CARGO_PKG_VERSION"), sapi::php_version());
            Ok(ExitCode::SUCCESS)
        }
        Some("--floor") => floor::run(&arguments[1..]).map(|()| ExitCode::SUCCESS),
        _ => prototype::run(),
    };
    result.unwrap_or_else(|reason| {
        log::write(&reason);
        ExitCode::FAILURE
    })
}

/// A panic must not unwind: PHP's frames lie between Rust's. It is logged, and the process dies of SIGABRT, which the
/// supervisor reports as the death of a worker.
fn abort_on_panic() {
    let log_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        log_panic(panic);
        std::process::abort();
    }));
}
