//! The messages.
//!
//! - [`prototype`]: between the supervisor and a prototype
//! - [`router`]: between the supervisor and the router
//! - [`router_load`]: a load report of the router that is longer than a message
//! - [`acme`]: between the supervisor and the process that obtains certificates
//! - [`exporter`]: between the supervisor and the process of the metrics listener
//! - [`launch`]: the order to start a program that is not howdah's own
//! - [`confinement`], [`generation_paths`], [`process_end`], [`warm_up`]: what the messages contain

pub mod acme;
pub mod confinement;
pub mod exporter;
pub mod generation_paths;
pub mod launch;
pub mod process_end;
pub mod prototype;
pub mod router;
pub mod router_load;
pub mod warm_up;
