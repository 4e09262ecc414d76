//! The last hours: what the dashboard has seen while it ran.
//!
//! - [`record`]: the records: samples and marks
//! - [`store`]: the records, in memory and in two files that are bounded
//! - [`place`]: the folder of the files
//! - [`rates`]: two readings of the control API become a sample
//! - [`routes`]: two readings of the metrics become the answers of applications and routes
//! - [`generations`]: deploys and restarts, from two readings of the status
//! - [`changes`]: the difference of two configurations
//! - [`query`]: the records of a time become the points of a chart
//! - [`poller`]: reads howdah every few seconds
//!
//! A folder that cannot be written is no failure: the history is then in memory only, and the page shows that.

mod changes;
mod generations;
pub mod place;
pub mod poller;
pub mod query;
mod rates;
mod record;
mod routes;
pub mod store;
