//! `howdah leaks`: which routes of an application in worker mode keep memory with each request.
//!
//! - [`records`]: reads the response of the control API
//! - [`carried`]: the part that a route leaves until the next request only
//! - [`growth`]: the growth of a number with each request, and how certain it is
//! - [`report`]: what the user reads
//!
//! Fails if no request ran meanwhile. A leak is no failure: the report names it.

mod carried;
mod growth;
mod records;
mod report;

use crate::control_client::{ApiOptions, ControlApi, name_segment};
use crate::terminal::output;
use clap::Args;
use records::Records;
use serde_json::{Value, json};
use std::ops::RangeInclusive;

/// The options of `howdah leaks`.
#[derive(Debug, Args)]
pub struct LeaksOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// The application's name. It runs in worker mode, and answers requests meanwhile.
    #[arg(value_name = "APP")]
    application: String,
    /// The duration in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, allow_negative_numbers = true, value_parser = parse_seconds)]
    seconds: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The durations that the supervisor accepts, in seconds.
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;
/// The size at which the workers stop.
const FULL_BYTES: usize = 16 << 20;

// === impl LeaksOptions ===

impl LeaksOptions {
    /// Records the memory of an application, and prints what it keeps.
    ///
    /// # Errors
    /// The control API rejects it, or too few requests ran.
    pub fn run(&self) -> Result<(), String> {
        let application = &self.application;
        let path = format!("/control/applications/{}/memory", name_segment(application)?);
        let body = json!({ "seconds": self.seconds }).to_string();
        let api = ControlApi::new(&self.api)?;
        let bytes = api.request("POST", &path, None, body.into_bytes())?.accepted(None)?.bytes;
        let records = Records::read(&bytes);
        if records.routes.is_empty() {
            return Err(format!(
                "no worker of {application:?} ran two requests within {} s; measure it while it answers requests",
                self.seconds
            ));
        }
        let is_full = bytes.len() >= FULL_BYTES;
        match self.json {
            true => output::print_json(&format!("{:#}\n", report::json(&records, is_full))),
            false => output::print(&report::text(&records, is_full)),
        }
        Ok(())
    }
}

/// The report of the response of the control API; `None` if too few requests ran.
pub fn report_of(bytes: &[u8]) -> Option<Value> {
    let records = Records::read(bytes);
    (!records.routes.is_empty()).then(|| report::json(&records, bytes.len() >= FULL_BYTES))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let (min, max) = SECONDS.into_inner();
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds.ok_or_else(|| format!("write {min} to {max}"))
}
