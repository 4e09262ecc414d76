//! `howdah lab serve`: starts one stack of a lab and keeps it, until Ctrl-C.
//!
//! Fails if the stack does not start or ends by itself.

use super::interrupt;
use crate::terminal::output;
use clap::Args;
use howdah_lab::plan::Plan;
use howdah_lab::run::serve::{Served, serve};
use howdah_lab::stacks::Library;
use std::path::PathBuf;

/// The options of `howdah lab serve`.
#[derive(Debug, Args)]
pub struct LabServeOptions {
    /// The lab.
    #[arg(value_name = "LAB.JSON")]
    lab: PathBuf,
    /// The stack's name in the lab.
    #[arg(value_name = "STACK")]
    stack: String,
    /// The number of PHP processes, instead of the lab's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    /// The cores of the stack, instead of the lab's: 0,1.
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    stack_cores: Vec<u32>,
    /// A folder with stacks of your own.
    #[arg(long, value_name = "DIR")]
    stacks_dir: Option<PathBuf>,
    /// Print one line of JSON when it is ready.
    #[arg(long)]
    json: bool,
}

// === impl LabServeOptions ===

impl LabServeOptions {
    /// Serves until Ctrl-C.
    ///
    /// # Errors
    /// The lab is wrong, or the stack does not run.
    pub fn run(&self) -> Result<(), String> {
        let library = Library::load(self.stacks_dir.as_deref())?;
        let mut plan = Plan::read(&self.lab, &library, false)?;
        if let Some(workers) = self.workers {
            plan.set_workers(workers);
        }
        if !self.stack_cores.is_empty() {
            plan.stack_cores.clone_from(&self.stack_cores);
        }
        let interrupted = interrupt::flag()?;
        serve(&plan, &self.stack, &interrupted, &mut |served| self.print(served))
    }

    fn print(&self, served: &Served) {
        match self.json {
            true => output::print_json(&format!("{}\n", serde_json::json!(served))),
            false => output::print(&text(served)),
        }
    }
}

fn text(served: &Served) -> String {
    let roles = served.processes.iter().map(|(role, pids)| {
        let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
        format!("{role}: {}\n", pids.join(" "))
    });
    let roles: String = roles.collect();
    format!("{}: {}\n{roles}folder: {}\nCtrl-C stops it\n", served.stack, served.url, served.folder.display())
}
