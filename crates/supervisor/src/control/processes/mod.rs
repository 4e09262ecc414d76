//! The processes beside the generations: their starts, deaths and messages. Each keeps its own state:
//!
//! - [`router`]: the data plane, and what it [is sent](hand_over) of the generations and the listening sockets
//! - [`acme`]: certificates that howdah obtains by itself
//! - [`exporter`]: the metrics listener, which also exports to OpenTelemetry; [`telemetry_files`]: its files
//!
//! A process that dies is replaced, with a growing pause.

pub mod acme;
pub mod exporter;
pub mod hand_over;
pub mod router;
pub mod telemetry_files;
