//! `howdah lab`: races servers of PHP applications on the user's own application.
//!
//! - [`run`]: a lab from lab.json to its report
//! - [`init`]: writes a lab.json
//! - [`stacks`]: which stacks this machine can run
//! - [`serve`]: one stack, until Ctrl-C
//! - [`load`]: one load on a server that runs already
//! - [`find_limit`]: the highest rate that a stack holds
//! - [`k6`]: the same load for k6
//! - [`interrupt`]: Ctrl-C ends a lab in order
//! - [`compare`]: what changed between two results
//! - [`report`]: the report of a result, again

mod compare;
mod find_limit;
mod init;
mod interrupt;
mod k6;
mod load;
mod report;
mod run;
mod serve;
mod stacks;

use clap::{Args, Subcommand};

/// The commands of the lab.
#[derive(Debug, Args)]
pub struct LabCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Race the stacks of a lab.json, and write a report.
    Run(run::LabRunOptions),
    /// Write a lab.json for an application: the stacks of this machine, and URLs to load.
    Init(init::LabInitOptions),
    /// Print which stacks this machine can run, which it cannot, and what to install.
    Stacks(stacks::LabStacksOptions),
    /// Compare two results: what changed, and with which confidence.
    Compare(compare::LabCompareOptions),
    /// Write the report of a result again, and print its verdict.
    Report(report::LabReportOptions),
    /// Search the highest constant rate that each stack holds under an objective.
    FindLimit(find_limit::LabFindLimitOptions),
    /// Start one stack of a lab and keep it until Ctrl-C, to look at it or to measure it with other tools.
    Serve(serve::LabServeOptions),
    /// Send one load to a server that runs already, and print its outcomes and times.
    Load(load::LabLoadOptions),
    /// Write the loads as a k6 script and a TestRun of k6-operator, for load from many machines.
    K6(k6::LabK6Options),
}

// === impl LabCommand ===

impl LabCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// As the command.
    pub fn run(&self) -> Result<(), String> {
        match &self.command {
            Command::Run(options) => options.run(),
            Command::Init(options) => options.run(),
            Command::Stacks(options) => options.run(),
            Command::Compare(options) => options.run(),
            Command::Report(options) => options.run(),
            Command::FindLimit(options) => options.run(),
            Command::Serve(options) => options.run(),
            Command::Load(options) => options.run(),
            Command::K6(options) => options.run(),
        }
    }
}
