//! The data plane: an unprivileged process that speaks HTTP, routes, serves files and hands requests to PHP.
//!
//! [`main`] is what the executable runs when the supervisor starts it as `howdah: router`. A process has one control
//! thread (`process`) and a few event-loop threads (`thread`), each with connections of its own (`connection`, `socket`):
//!
//! - `tls`: encrypted connections, and their certificates
//! - `strictness`, `authority`, `unsafe_fields`: what never gets as far as a request, or into it
//! - `service`: one request → the route's action → a response; `subject`, `forwarded`: the request as routes see it
//! - `application`: an action that runs PHP
//! - `warm_up`: the first requests of a generation that nobody else's requests reach yet
//! - `static_files`: files; `pins`: from the same release as the scripts
//! - `script`, `cgi`, `request_body`, `slots`, `php`, `spool`: a request's way to PHP and back, over the channel
//! - `proxy`: requests that other HTTP servers answer, and WebSockets through them
//! - `compression`: of any response
//! - `failure`: the answers that are ours
//! - `access_log`, `log_line`: one line for each answer
//!
//! It never runs PHP and never forks. If it dies, the supervisor starts another with the same listening sockets.

#![forbid(unsafe_code)]

mod dispatch;
mod http1;
mod net;
mod php;
mod process;
mod product;
mod proxy;
mod request;
mod response;
mod static_files;
mod supervisor_link;

pub use process::main;
