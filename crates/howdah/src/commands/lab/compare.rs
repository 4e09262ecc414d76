//! `howdah lab compare`: what changed between two results.

use crate::terminal::output;
use crate::terminal::plain::plain_output;
use clap::Args;
use howdah_lab::comparison;
use howdah_lab::results::Results;
use std::path::PathBuf;

/// The options of `howdah lab compare`.
#[derive(Debug, Args)]
pub struct LabCompareOptions {
    /// The first result: results.json, or its folder.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The second result.
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Write the comparison into this file, too, as a page for a browser.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

// === impl LabCompareOptions ===

impl LabCompareOptions {
    /// Prints the differences.
    ///
    /// # Errors
    /// A file is not the result of a lab, or the page cannot be written.
    pub fn run(&self) -> Result<(), String> {
        let (before, after) = (Results::read(&self.before)?, Results::read(&self.after)?);
        let compared = comparison::compare(&before, &after);
        output::print(&plain_output(&comparison::to_text(&compared)));
        let Some(page) = &self.html else { return Ok(()) };
        let (before, after) = (self.before.to_string_lossy(), self.after.to_string_lossy());
        comparison::write_html(&compared, &before, &after, page)?;
        output::print(&format!("\nThe page: {}\n", page.display()));
        Ok(())
    }
}
