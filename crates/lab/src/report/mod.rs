//! The report of a lab: one HTML file that a browser shows without any other file, offline, on a phone and on paper.
//!
//! - [`verdict`]: the verdict in words; pure
//! - [`tables`]: the tables' texts
//! - [`chart_data`]: the data of the charts, which the script in `assets/` draws as SVG
//! - [`contents`]: all texts of the page
//! - [`page`]: the HTML of a page
//! - [`words`]: figures and differences in words
//! - [`pairs`]: looks up comparisons of two stacks

mod chart_data;
mod contents;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod page;
mod pairs;
pub(crate) mod tables;
pub mod verdict;
pub(crate) mod words;

pub use verdict::{Confidence, ConfidenceLevel, LoadFindings, VerdictText, verdict};

use crate::result_file;
use crate::results::Results;
use std::path::Path;

/// Writes the report into a file.
///
/// # Errors
/// The file cannot be written. The message names it.
pub fn write_html(results: &Results, path: &Path) -> Result<(), String> {
    result_file::write(path, html(results)?)
}

/// The report.
///
/// # Errors
/// A bug in the template.
pub fn html(results: &Results) -> Result<String, String> {
    page::page("report.html", &contents::contents(results), Some(&chart_data::chart_data(results)))
}

#[cfg(test)]
mod tests;
