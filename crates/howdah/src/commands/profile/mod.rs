//! `howdah profile`: samples PHP's stacks for some seconds, and writes a flame graph and a speedscope file.
//!
//! - [`samples`]: reads the response of the control API
//! - [`flame_graph`], [`speedscope`]: the two files
//! - [`result_file`]: writes one of them
//!
//! Fails if no request ran meanwhile, or if a file cannot be written; that is checked before the sampling starts.

mod flame_graph;
mod result_file;
pub mod samples;
mod speedscope;

use crate::control_client::{ApiOptions, ControlApi, name_segment};
use crate::terminal::output;
use clap::Args;
use result_file::ResultFile;
use samples::Samples;
use serde_json::json;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The options of `howdah profile`.
#[derive(Debug, Args)]
pub struct ProfileOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// The application's name.
    #[arg(value_name = "APP")]
    application: String,
    /// The duration in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, allow_negative_numbers = true, value_parser = parse_seconds)]
    seconds: f64,
    /// Samples of each worker per second.
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(RATES))]
    rate: u32,
    /// The file of the flame graph. Default: APP-profile.svg. The speedscope file has the same name with another suffix.
    #[arg(long, value_name = "FILE.svg", value_parser = parse_svg)]
    output: Option<PathBuf>,
}

/// The durations that the supervisor accepts, in seconds.
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;
/// The rates that the supervisor accepts, in samples per second.
const RATES: RangeInclusive<i64> = 1..=1000;
/// The size at which the samplers stop.
pub const FULL_BYTES: usize = 16 << 20;

// === impl ProfileOptions ===

impl ProfileOptions {
    /// Profiles an application and writes both files.
    ///
    /// # Errors
    /// The control API rejects it, no request ran, or a file cannot be written.
    pub fn run(&self) -> Result<(), String> {
        let application = &self.application;
        let svg = self.output.clone().unwrap_or_else(|| PathBuf::from(default_file_name(application)));
        let speedscope = ResultFile::create(&svg.with_extension("speedscope.json"))?;
        let svg = ResultFile::create(&svg)?;
        let (svg_path, speedscope_path) = (svg.path().to_owned(), speedscope.path().to_owned());
        let path = format!("/control/applications/{}/profile", name_segment(application)?);
        let body = json!({ "seconds": self.seconds, "rate": self.rate }).to_string();
        let api = ControlApi::new(&self.api)?;
        let bytes = api.request("POST", &path, None, body.into_bytes())?.accepted(None)?.bytes;
        let samples = Samples::read(&bytes);
        let count = samples.count();
        if count == 0 {
            return Err(format!(
                "no request of {application:?} ran within {} s; profile it while it answers requests",
                self.seconds
            ));
        }
        let title = format!("{application}: {} s, {} samples/s", self.seconds, self.rate);
        let graph = flame_graph::draw(&samples, &title)?;
        svg.write(&graph.svg)?;
        speedscope.write(speedscope::write(&samples, application, self.rate)?.as_ref())?;
        let truncated = match bytes.len() >= FULL_BYTES {
            true => {
                "The samples exceeded the size limit, and the last ones are missing; use a shorter time or a lower rate.\n"
            }
            false => "",
        };
        let workers = match samples.worker_count() {
            1 => "1 worker".to_owned(),
            count => format!("{count} workers"),
        };
        output::print(&format!(
            "{count} samples of {workers}, {}/s each.\n{truncated}{}{}{}\nFlame graph: {}\nFor https://speedscope.app: {}\n",
            self.rate,
            samples.shortage(),
            graph.shortage(),
            samples.busiest_functions(),
            svg_path.display(),
            speedscope_path.display(),
        ));
        Ok(())
    }
}

fn default_file_name(application: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    format!("{}-profile.svg", application.chars().map(safe).collect::<String>())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let (min, max) = SECONDS.into_inner();
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds.ok_or_else(|| format!("write {min} to {max}"))
}

fn parse_svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_svg { Ok(path) } else { Err("a flame graph is an SVG file; write FILE.svg".to_owned()) }
}
