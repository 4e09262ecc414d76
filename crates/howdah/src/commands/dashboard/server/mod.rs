//! The HTTP server of the dashboard: HTTP/1.1, for few browsers of one operator.
//!
//! - [`routes`]: the requests that are answered
//! - [`page`]: the files of the page
//! - [`service`]: a request becomes an answer: who asks, what is allowed, who answers
//! - [`listening`]: sockets, connections and their limits
//!
//! A connection that fails is closed; nothing ends the server but a signal.

pub mod listening;
mod page;
mod routes;
pub mod service;
