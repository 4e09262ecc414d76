//! howdah's PHP processes: one executable for each PHP version.
//!
//! Started by the supervisor as a prototype ([`prototype`]), which keeps away from the rest of the machine if it shall
//! ([`confine`], [`rootfs`]), and forks the workers ([`worker`], [`sampler`]). PHP itself is behind the SAPI in C ([`sapi`],
//! `sapi/`). By hand: `--version`, and `--floor` for bench/.

mod allowance;
mod confine;
mod floor;
mod growth;
mod ini;
mod prototype;
mod readable;
mod rootfs;
mod sampler;
mod sapi;
mod stderr;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("--version") => {
            println!("howdah-php {}, PHP {}", env!("CARGO_PKG_VERSION"), prototype::php_version());
            Ok(ExitCode::SUCCESS)
        }
        Some("--floor") => floor::run(&arguments[1..]).map(|()| ExitCode::SUCCESS),
        _ => prototype::run(),
    };
    result.unwrap_or_else(|reason| {
        log(&reason);
        ExitCode::FAILURE
    })
}

/// A line of ours: with time and level, as the supervisor's have them.
fn warn(message: &str) {
    log(&format!("{}{message}", sapi::beginning_of_warning()));
}

/// One line on stderr, where PHP's own messages go too.
fn log(message: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("{}\n", message.trim_end()).as_bytes());
}
