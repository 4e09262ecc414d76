//! The client of howdah's control API: HTTP over its control socket, nothing that curl could not do.
//!
//! - [`connection`]: a request and its response
//! - [`response`]: a response: success, or the reason of the rejection
//! - [`path`]: paths of the API
//! - [`applications`]: the names of all applications
//! - [`traffic`]: rates, errors and times from the metrics
//!
//! Fails with a message for the user.

mod applications;
pub mod connection;
mod path;
mod response;
pub mod traffic;

pub use applications::{application_names, reason_of_503};
pub use connection::{ApiOptions, ControlApi};
pub use path::{config_url, name_segment, parse_config_path};
pub use response::ApiResponse;
