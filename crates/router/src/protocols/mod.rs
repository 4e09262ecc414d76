//! The protocols that clients speak: each has connections, their clocks, and the strict reading of requests.
//!
//! - `http1`, `http2`, `http3`: those of browsers
//! - `fastcgi_listener`: that of a web server in front
//! - `connection`: parts that they share

pub mod connection;
pub mod fastcgi_listener;
pub mod http1;
pub mod http2;
pub mod http3;
