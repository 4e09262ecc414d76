//! OpenTelemetry: what the router, the supervisor and the process that exports agree on.
//!
//! - [`context`]: the trace that a request belongs to (W3C Trace Context), and whether it is recorded
//! - [`messages`]: the messages of OTLP, as far as howdah writes them
//! - [`frames`], [`pipe`]: how spans travel from the router to the process that exports them
//! - [`logs`]: lines of howdah's logs
//! - [`signal`]: spans, numbers or lines
//! - [`export`]: the body of a request to a collector
//! - [`metrics`]: the metrics, made from an exposition
//!
//! The supervisor keeps both ends of the pipe. The router writes, and never waits: spans that do not fit are dropped and
//! counted. The death of either process loses nothing that is in the pipe.

#![forbid(unsafe_code)]

pub mod context;
pub mod export;
pub mod frames;

pub mod logs;
pub mod messages;
pub mod metrics;
pub mod pipe;
pub mod signal;
