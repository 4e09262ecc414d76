//! The data plane: an unprivileged process that speaks HTTP, routes requests, serves files and runs scripts through PHP
//! workers.
//!
//! The executable calls [`main`] when the supervisor starts it as `howdah: router`. The process has one control thread and a
//! few event-loop threads. Each event loop has its own connections, and answers their requests itself.
//!
//! The folders, from the outside in; each imports only folders below it in this list:
//!
//! - `process`: the process, its threads, and the commands of the supervisor
//! - `access`: rate limits and passwords
//! - `dispatch`: from a request to its response: routes, actions, the active configuration
//! - `php`, `proxy`, `static_files`: the actions that produce a response
//! - `response`: bodies, compression, failures, the access log
//! - `request`: a request as routes see it: host, path, client, body
//! - `http1`: connections and their clocks, and the strict reading of requests
//! - `net`: listening sockets, TLS, the bytes of a connection
//! - `file_access`: look-ups and reads in file systems that may hang
//! - `once_per_minute`: log lines that could come with each request
//! - `supervisor_link`: messages to the supervisor; `product`: name and version; `panics`: bugs of howdah are contained
//!
//! The router never runs PHP and never forks. If it dies, the supervisor starts another with the same listening sockets.

#![forbid(unsafe_code)]

mod access;
mod dispatch;
mod file_access;
mod http1;
mod net;
mod once_per_minute;
mod panics;
mod php;
mod process;
mod product;
mod proxy;
mod request;
mod response;
mod static_files;
mod supervisor_link;

pub use process::main;
pub use request::log_context::current_request_fields;
