//! Which servers of upstreams get requests. All threads share this.
//!
//! - `server_health`: the state of one server, which failed requests and failed checks change
//! - `states`: the states of all servers, kept while configurations change
//! - `check`: a check of one server; `checks`: the checks of a configuration, on one thread of the router

mod check;
pub mod checks;
pub mod server_health;
pub mod states;
