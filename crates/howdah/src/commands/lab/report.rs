//! `howdah lab report`: writes the report of a result again, with this howdah's words and charts.

use crate::terminal::output;
use crate::terminal::plain::plain_output;
use clap::Args;
use howdah_lab::report::{verdict, write_html};
use howdah_lab::results::Results;
use std::path::PathBuf;

/// The options of `howdah lab report`.
#[derive(Debug, Args)]
pub struct LabReportOptions {
    /// The result: results.json, or its folder.
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// The report's file. Default: report.html beside the result.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

// === impl LabReportOptions ===

impl LabReportOptions {
    /// Prints the verdict and writes the report.
    ///
    /// # Errors
    /// The file is not the result of a lab, or the report cannot be written.
    pub fn run(&self) -> Result<(), String> {
        let results = Results::read(&self.results)?;
        let beside = || match self.results.is_dir() {
            true => self.results.join("report.html"),
            false => self.results.with_file_name("report.html"),
        };
        let page = self.html.clone().unwrap_or_else(beside);
        output::print(&plain_output(&verdict(&results).to_text()));
        write_html(&results, &page)?;
        output::print(&format!("\nThe report: {}\n", page.display()));
        Ok(())
    }
}
