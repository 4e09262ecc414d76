//! The data plane: an unprivileged process that speaks HTTP, routes, serves files and hands requests to PHP.
//!
//! [`main`] is what the executable runs when the supervisor starts it as `howdah: router`. A process has one control
//! thread (`process`) and a few event-loop threads (`thread`), each with connections of its own (`connection`, `socket`):
//!
//! - `service`: one request → the route's action → a response
//! - `static_files`: files
//! - `script`, `cgi`, `request_body`, `slots`, `php`, `spool`: a request's way to PHP and back, over the channel
//! - `failure`: the answers that are ours
//! - `access_log`: one line for each answer; `background_writer`, which never makes a thread wait for who reads it
//!
//! It never runs PHP and never forks. If it dies, the supervisor starts another with the same listening sockets.

#![forbid(unsafe_code)]

mod access_log;
mod background_writer;
mod cgi;
mod connection;
mod failure;
mod php;
mod process;
mod request_body;
mod response_body;
mod script;
mod service;
mod slots;
mod socket;
mod spool;
mod static_files;
mod thread;

pub use background_writer::BackgroundWriter;
pub use process::main;
