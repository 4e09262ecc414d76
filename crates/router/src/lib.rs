//! The data plane: an unprivileged process that speaks HTTP, routes, serves files and hands requests to PHP.
//!
//! [`main`] is what the executable runs when the supervisor starts it as `howdah: router`. A process has one control
//! thread (`process`) and a few event-loop threads (`thread`), each with connections of its own (`connection`, `socket`):
//!
//! - `service`: one request → the route's action → a response
//! - `strictness`, `authority`, `unsafe_fields`: what never gets as far as a request, or into it
//! - `static_files`: files
//! - `script`, `cgi`, `request_body`, `php`, `spool`: a request's way to PHP and back, over the channel
//! - `compression`: of any response
//! - `failure`: the answers that are ours
//! - `access_log`: one line for each answer
//!
//! It never runs PHP and never forks. If it dies, the supervisor starts another with the same listening sockets.

#![forbid(unsafe_code)]

mod accept;
mod access_log;
mod authority;
mod cgi;
mod compression;
mod connection;
mod control;
mod failure;
mod load;
mod php;
mod process;
mod request_body;
mod response_body;
mod script;
mod service;
mod snapshot;
mod socket;
mod spool;
mod static_files;
mod strictness;
mod subject;
mod thread;
mod unsafe_fields;

pub use process::main;
