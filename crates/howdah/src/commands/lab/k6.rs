//! `howdah lab k6`: the loads of a lab for k6, which makes load from many machines.

use crate::terminal::output;
use clap::Args;
use howdah_lab::plan::{Plan, k6};
use howdah_lab::stacks::Library;
use std::path::PathBuf;

/// The options of `howdah lab k6`.
#[derive(Debug, Args)]
pub struct LabK6Options {
    /// The lab.
    #[arg(value_name = "LAB.JSON", default_value = "lab.json")]
    lab: PathBuf,
    /// The folder for lab.js and testrun.yaml; by default that of LAB.JSON.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The name of the TestRun and of its ConfigMap.
    #[arg(long, value_name = "NAME", default_value = "howdah-lab")]
    name: String,
    /// The number of machines of the TestRun.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    parallelism: u32,
}

// === impl LabK6Options ===

impl LabK6Options {
    /// Writes both files.
    ///
    /// # Errors
    /// The lab is wrong, or a file cannot be written.
    pub fn run(&self) -> Result<(), String> {
        let plan = Plan::read(&self.lab, &Library::load(None)?, false)?;
        if let Some(load) = plan.loads.iter().find(|load| load.is_relative()) {
            return Err(format!(
                "{}: the rates of the load {} are percents of a capacity that only a race measures; write requests per second",
                self.lab.display(),
                load.name
            ));
        }
        let folder = self.out.clone().unwrap_or_else(|| self.lab.parent().map(PathBuf::from).unwrap_or_default());
        for (name, text) in [
            ("lab.js", k6::script(&plan.title, &plan.loads)),
            ("testrun.yaml", k6::test_run(&self.name, self.parallelism)),
        ] {
            let path = folder.join(name);
            howdah_lab::result_file::write(&path, text)?;
            output::print(&format!("{}\n", path.display()));
        }
        Ok(())
    }
}
