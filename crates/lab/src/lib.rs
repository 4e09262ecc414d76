//! The lab: races servers of PHP applications against each other. It knows howdah only as one of these servers.
//!
//! - [`plan`] reads lab.json
//! - [`stacks`]: servers of PHP applications, as data: manifests, start, stop
//! - [`run`]: checks, rounds, results
//! - [`load`]: sends requests, by a schedule or by a number of clients, and measures the responses
//! - [`measure`]: CPU, memory, threads and context switches of a process tree
//! - [`statistics`]: intervals, comparisons, the verdict's inputs
//! - [`results`]: all that a lab measured, as results.json holds it
//! - [`report`]: the report of a lab, one HTML file
//! - [`reason`]: errors of the system, for people
//! - [`result_file`]: files with results
//! - [`comparison`]: two results, and what changed

#![forbid(unsafe_code)]

pub mod comparison;
pub mod load;
pub mod measure;
pub mod plan;
pub mod reason;
pub mod report;
pub mod result_file;
pub mod results;
pub mod run;
pub mod stacks;
pub mod statistics;
