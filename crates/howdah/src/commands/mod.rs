//! The commands, one module for each: its options, as clap reads them, and what it does.
//!
//! `serve` and `run` start a howdah, `lab` any servers, to compare them. All others are clients of the control API of one that runs.
//!
//! A command fails with a message for the user; it has several lines if it shows a position in a text.

mod certificate;
mod config;
mod dashboard;
mod drain;
mod lab;
mod leaks;
mod profile;
mod restart;
mod run;
mod serve;
mod slow;
mod status;
mod supervisor;
mod top;

pub use certificate::CertificateCommand;
pub use config::ConfigCommand;
pub use dashboard::DashboardOptions;
pub use drain::DrainOptions;
pub use lab::LabCommand;
pub use leaks::LeaksOptions;
pub use profile::ProfileOptions;
pub use restart::RestartOptions;
pub use run::RunOptions;
pub use serve::ServeOptions;
pub use slow::SlowOptions;
pub use status::StatusOptions;
pub use top::TopOptions;
