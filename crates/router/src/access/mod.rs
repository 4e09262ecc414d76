//! Access control: which clients and users may use an action, and how often.
//!
//! - `rate_limits` counts requests by client, for all threads
//! - `connection_limits` counts the requests of clients that are being answered
//! - `authentication` asks for a user and a password: `credentials` reads them from a request, `user_file` reads the
//!   users of a file, `password` verifies (`apr1` is a hash that no library has), and `verified` remembers the result
//! - `withdrawals` refuses connections that were accepted before their listener's access changed
//!
//! A request that is refused is a [`Failure`](crate::response::failure::Failure), or a question for a password.

mod apr1;
mod authentication;
mod client;
mod connection_limits;
mod credentials;
mod password;
mod rate_limits;
mod user_file;
mod verified;
mod withdrawals;

pub use authentication::{Authentication, WRONG_PASSWORDS};
pub use client::client_network;
pub use connection_limits::ConnectionLimits;
pub use rate_limits::RateLimits;
pub use user_file::UserFiles;
pub use withdrawals::Withdrawals;
