//! The parts that connections of all versions of HTTP have in common.
//!
//! - `account`: bounds what a client may cause that is of no use
//! - `clock`: a connection as its thread sees it: its time is checked, and it can be drained
//! - `limits`: limits that are not configured; `rejection`: log lines about bytes that are not a request
//! - `heads`: the heads of requests and responses
//! - `framing`: the end of a response, in protocols that are not HTTP/1; the options of `Connection`
//! - `boxed`: the future of a request, in a box
//! - `open_requests`: how many requests a connection answers; `task_waker`: wakes its task; `tunnel_server`: the server of a
//!   tunnel; `turn`: how much of a client's heads is treated before others have their turn
//! - `priority`: which of several responses goes first (RFC 9218)

pub mod account;
pub mod boxed;
pub mod clock;
pub mod framing;
pub mod heads;
pub mod limits;
pub mod open_requests;
pub mod priority;
pub mod rejection;
pub mod task_waker;
pub mod tunnel_server;
pub mod turn;
