//! `howdah lab find-limit`: the highest constant rate that each stack holds under an objective.
//!
//! Fails as `howdah lab run`. A stack that holds no rate is a result.

use super::interrupt;
use crate::terminal::output;
use crate::terminal::plain::plain_output;
use clap::Args;
use howdah_lab::load::duration;
use howdah_lab::plan::Plan;
use howdah_lab::plan::load::parse_objective;
use howdah_lab::result_file::ResultFolder;
use howdah_lab::results::Objective;
use howdah_lab::run::lab::{self, Options};
use howdah_lab::run::limit::Search;
use howdah_lab::run::output::{table, write};
use howdah_lab::run::progress::Messages;
use howdah_lab::stacks::Library;
use std::path::PathBuf;
use std::time::Duration;

/// The options of `howdah lab find-limit`.
#[derive(Debug, Args)]
pub struct LabFindLimitOptions {
    /// The lab.
    #[arg(value_name = "LAB.JSON", default_value = "lab.json")]
    lab: PathBuf,
    /// Only these stacks of the lab.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    stacks: Vec<String>,
    /// The load whose requests are sent; by default the first one.
    #[arg(long, value_name = "NAME")]
    load: Option<String>,
    /// The objective.
    #[arg(long, value_name = "OBJECTIVE", default_value = "p99 < 200ms, errors < 0.1%", value_parser = parse_objective)]
    objective: Objective,
    /// The first rate, in requests per second.
    #[arg(long, value_name = "RATE", default_value_t = 100.0)]
    from: f64,
    /// The highest rate.
    #[arg(long, value_name = "RATE", default_value_t = 100_000.0)]
    to: f64,
    /// The time of each rate.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    probe: Duration,
    /// The folder of the results; without it, they are only printed.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A folder with stacks of your own.
    #[arg(long, value_name = "DIR")]
    stacks_dir: Option<PathBuf>,
    /// Send load to other machines, if the lab names some.
    #[arg(long)]
    allow_remote: bool,
}

/// The search ends when the missed rate is 5 % above the held one.
const PRECISION: f64 = 0.05;

// === impl LabFindLimitOptions ===

impl LabFindLimitOptions {
    /// Searches, and prints what each stack holds.
    ///
    /// # Errors
    /// The lab cannot be run.
    pub fn run(&self) -> Result<(), String> {
        if !(self.from >= 1.0 && self.from <= self.to && self.to <= 1e6) {
            return Err("--from, --to: rates from 1 to 1000000, the lower one first".to_owned());
        }
        if self.probe < Duration::from_millis(100) {
            return Err("--probe: at least 100ms".to_owned());
        }
        let library = Library::load(self.stacks_dir.as_deref())?;
        let mut plan = Plan::read(&self.lab, &library, false)?;
        if !self.stacks.is_empty() {
            plan.select(&self.stacks)?;
        }
        let names: Vec<_> = plan.loads.iter().map(|load| load.name.clone()).collect();
        let load = match &self.load {
            Some(name) => plan.loads.iter().find(|load| &load.name == name),
            None => plan.loads.first(),
        };
        let load = load.cloned().ok_or_else(|| format!("--load: the lab has {}", names.join(", ")))?;
        let options = Options {
            command: std::env::args().collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            allows_remote: self.allow_remote,
        };
        let (objective, from, to, length) = (self.objective, self.from, self.to, self.probe);
        let search = Search { objective, from, to, length, precision: PRECISION };
        let out = self.out.as_deref().map(ResultFolder::create).transpose();
        let out = out.map_err(|reason| format!("--out {reason}"))?;
        let interrupted = interrupt::flag()?;
        let results = lab::find_limit(&plan, &options, &load, search, &interrupted, &mut Messages::new())?;
        if let Some(folder) = &out {
            write(&results, folder)?;
        }
        output::print(&plain_output(&table(&results)));
        Ok(())
    }
}
