//! `howdah lab run`: races the stacks of a lab.json.
//!
//! Fails if lab.json is wrong, the machine is unfit or no stack can run, and with --check if a bar is missed. A stack that fails
//! is a result.

use super::interrupt;
use crate::terminal::output;
use crate::terminal::plain::plain_output;
use clap::Args;
use howdah_lab::load::duration;
use howdah_lab::plan::Plan;
use howdah_lab::report::html;
use howdah_lab::result_file::ResultFolder;
use howdah_lab::results::Outcome;
use howdah_lab::run::lab::{self, Options};
use howdah_lab::run::output::{table, write};
use howdah_lab::run::progress::Messages;
use howdah_lab::stacks::Library;
use std::path::PathBuf;
use std::time::Duration;

/// The options of `howdah lab run`.
#[derive(Debug, Args)]
pub struct LabRunOptions {
    /// The lab.
    #[arg(value_name = "LAB.JSON", default_value = "lab.json")]
    lab: PathBuf,
    /// The folder of the report; by default one beside LAB.JSON, named for it and the time.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only these stacks of the lab.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    stacks: Vec<String>,
    /// Only these loads of the lab.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    loads: Vec<String>,
    /// Shorter loads and fewer rounds: a first impression.
    #[arg(long)]
    quick: bool,
    /// The time of each load, instead of the lab's; not of loads that end with a number of requests.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// The number of PHP processes of each stack, instead of the lab's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    /// Run each load a second time, in which perf counts system calls and instructions.
    #[arg(long)]
    counts: bool,
    /// Fail unless all bars of the lab are met.
    #[arg(long)]
    check: bool,
    /// The number of rounds, instead of the lab's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// The cores of the load generator, instead of the lab's: 0,1. With --stack-cores, they do not share cores.
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    generator_cores: Vec<u32>,
    /// The cores of the stacks, instead of the lab's.
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    stack_cores: Vec<u32>,
    /// A folder with stacks of your own.
    #[arg(long, value_name = "DIR")]
    stacks_dir: Option<PathBuf>,
    /// Send load to other machines, if the lab names some.
    #[arg(long)]
    allow_remote: bool,
}

const REPORT: &str = "report.html";
/// A shorter load measures nothing.
const SHORTEST: Duration = Duration::from_millis(100);

// === impl LabRunOptions ===

impl LabRunOptions {
    /// Runs the lab, writes its results and prints a table.
    ///
    /// # Errors
    /// The lab cannot be run, or its results cannot be written.
    pub fn run(&self) -> Result<(), String> {
        let library = Library::load(self.stacks_dir.as_deref())?;
        let mut plan = Plan::read(&self.lab, &library, self.quick)?;
        if !self.stacks.is_empty() {
            plan.select(&self.stacks)?;
        }
        if !self.loads.is_empty() {
            plan.select_loads(&self.loads)?;
        }
        if let Some(length) = self.duration {
            if length < SHORTEST {
                return Err("--duration: at least 100ms".to_owned());
            }
            plan.set_duration(length);
        }
        if let Some(workers) = self.workers {
            plan.set_workers(workers);
        }
        if self.check && plan.bars.is_empty() {
            return Err("--check: the lab has no bars for these stacks and loads: docs/lab.md#bars".to_owned());
        }
        plan.counts_events |= self.counts;
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        for (chosen, planned) in
            [(&self.generator_cores, &mut plan.generator_cores), (&self.stack_cores, &mut plan.stack_cores)]
        {
            if !chosen.is_empty() {
                planned.clone_from(chosen);
            }
        }
        let folder = self.out.clone().unwrap_or_else(|| self.default_folder());
        // Before the race: an hour of measurements must not be lost because of a folder.
        let folder = ResultFolder::create(&folder).map_err(|reason| format!("--out {reason}"))?;
        let interrupted = interrupt::flag()?;
        let options = Options {
            command: std::env::args().collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            allows_remote: self.allow_remote,
        };
        let results = lab::run(&plan, &options, &interrupted, &mut Messages::new())?;
        write(&results, &folder)?;
        folder.write(REPORT, html(&results)?)?;
        output::print(&plain_output(&table(&results)));
        output::print(&format!("\n{}\n", folder.path().join(REPORT).display()));
        let missed = results.bars.iter().filter(|bar| bar.is_failure()).count();
        match results.outcome {
            Outcome::Interrupted => Err("interrupted; the runs until then were written".to_owned()),
            Outcome::Complete if self.check && missed > 0 => {
                Err(format!("--check: {missed} of {} bars are not met", results.bars.len()))
            }
            Outcome::Complete => Ok(()),
        }
    }

    fn default_folder(&self) -> PathBuf {
        let name = self.lab.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let time = howdah_lab::run::lab::time_for_a_name();
        self.lab.with_file_name(format!("{name}-results-{time}"))
    }
}
