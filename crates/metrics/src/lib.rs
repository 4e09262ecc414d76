//! The numbers of howdah, for the router, which counts, and the supervisor, which shows them.
//!
//! - [`families`]: every family of metrics: its name, kind, labels and meaning
//! - [`labels`]: the values that a label of a request can have
//! - [`histogram`]: the buckets of times
//! - [`layout`]: where each number is in the memory that the router counts in
//! - [`recorder`]: a thread of the router counts
//! - [`totals`]: the supervisor adds up the numbers of all threads, of this router and of those before it
//! - [`exposition`]: the formats: Prometheus' text and protocol buffers, OpenMetrics
//!
//! The memory belongs to the supervisor, which outlives the routers: a router that is killed loses no number. It has only
//! numbers. A name of the configuration is in it as the hash that both processes compute; text of a client never is.

#![forbid(unsafe_code)]

pub mod exposition;
pub mod families;
pub mod histogram;
pub mod labels;
pub mod layout;
pub mod recorder;
pub mod totals;
