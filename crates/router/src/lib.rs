//! The data plane: an unprivileged process that speaks HTTP, routes requests, serves files and runs scripts through PHP
//! workers.
//!
//! The executable calls [`main`] when the supervisor starts it as `howdah: router`. The process has one control thread and a
//! few event-loop threads. Each event loop has its own connections, and answers their requests itself.
//!
//! The folders, from the outside in; each imports only folders below it in this list:
//!
//! - `process`: the process, its threads, and the commands of the supervisor
//! - `dispatch`: from a request to its response: routes, actions, the active configuration
//! - `access`: limits by client, and passwords
//! - `backends`: `php`, `roadrunner`, `proxy`; `static_files`: the actions that produce a response
//! - `response`: bodies, compression, failures, the access log
//! - `request`: a request as routes see it: host, path, client, body
//! - `protocols`: HTTP/1, HTTP/2, HTTP/3 and the FastCGI of web servers: connections and their clocks, and the strict reading
//!   of requests
//! - `net`: listening sockets, TLS, the bytes of a connection
//! - `resources`: memory and processors, of which clients could take all
//! - `file_access`: look-ups and reads in file systems that may hang
//! - `report`: the log lines and messages about trouble; bugs of howdah are contained; `product`: its name and version
//!
//! The router never runs PHP and never forks. If it dies, the supervisor starts another with the same listening sockets.

#![forbid(unsafe_code)]

mod access;
mod backends;
mod dispatch;
mod file_access;
mod net;
mod process;
mod product;
mod protocols;
mod report;
mod request;
mod resources;
mod response;
mod static_files;

pub use access::{WRONG_PASSWORDS, client_network};
pub use dispatch::LOG_ROUTE;
pub use process::main;
pub use report::send_log_line;
pub use request::record::application_log::ApplicationLog;
pub use request::record::log_context::{current_application_log, current_request_fields};
