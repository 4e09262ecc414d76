//! The process that obtains certificates (ACME, RFC 8555): `howdah: acme`.
//!
//! It exists while certificates are obtained or renewed. It has an unprivileged user, no files and no listening socket:
//! the supervisor sends orders, and stores the results; the router answers the challenges.
//!
//! - `process`: its messages
//! - `order`: one certificate, from the order to the chain
//! - `accounts`: the accounts at the authorities
//! - `https_client`: HTTPS to the authorities and to the operator's program
//! - `dns_hook`: the command that changes the DNS
//! - `records`: the records in the DNS, of which none stays
//! - `permission`: whether the operator's program allows a name that a client asks for
//! - `renewal_window`: when the authority wants a certificate to be renewed
//! - `reports`: the results, on their way to the supervisor
//! - `problem`: the authorities' errors, and their remedies

#![forbid(unsafe_code)]

mod accounts;
mod dns_hook;
mod https_client;
mod order;
mod permission;
mod problem;
mod process;
mod records;
mod renewal_window;
mod reports;

use std::process::ExitCode;

/// Runs until the supervisor closes the socket.
pub fn main() -> ExitCode {
    match process::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the process that obtains certificates ends");
            ExitCode::FAILURE
        }
    }
}
