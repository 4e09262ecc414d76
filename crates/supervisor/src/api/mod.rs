//! The control API: NGINX Unit's paths, methods and answers, and ETags.
//!
//! - `/config…`: GET, PUT, POST, DELETE a part of the [configuration](configuration)
//! - `/certificates…`: GET, and PUT and DELETE of one [certificate](certificates)
//! - `/status…`: GET, the [status]; below `/applications/NAME`, `/processes` has [each worker](processes), and `/slow` is
//!   the [slow log](slow_log)
//! - `/metrics`: GET, the [numbers](metrics) for Prometheus
//! - `/control/applications/NAME/restart`: GET, as in Unit, or POST
//! - `/control/applications/NAME/profile` and `/memory`: POST, a [recording]
//! - `/`: GET, all of it
//!
//! The [socket](control_socket) makes a [request] of what a client sends, the [routes] find its [reply], and the
//! socket sends the [answer] when it is complete. Only this module knows HTTP statuses and JSON: the parts below return values.
//!
//! A change waits until the change before it has ended. A client that sends `If-Match` changes only the configuration
//! with this ETag (RFC 9110, 13.1.1), so that no other client's change is overwritten by accident.

pub mod answer;
mod certificates;
mod configuration;
pub mod control_socket;
mod metrics;
mod processes;
mod recording;
pub mod reply;
pub mod request;
pub mod routes;
mod slow_log;
mod status;
