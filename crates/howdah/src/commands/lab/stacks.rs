//! `howdah lab stacks`: which stacks this machine can run, which it cannot, and what to install.

use crate::terminal::output;
use crate::terminal::table::table;
use clap::Args;
use howdah_lab::plan::application::newest_php;
use howdah_lab::stacks::Library;
use howdah_lab::stacks::detect::detect;
use serde_json::json;
use std::path::PathBuf;

/// The options of `howdah lab stacks`.
#[derive(Debug, Args)]
pub struct LabStacksOptions {
    /// A folder with stacks of your own.
    #[arg(long, value_name = "DIR")]
    stacks_dir: Option<PathBuf>,
    /// PHP's version, such as 8.2; by default the newest one.
    #[arg(long, value_name = "VERSION")]
    php: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl LabStacksOptions ===

impl LabStacksOptions {
    /// Prints the stacks.
    ///
    /// # Errors
    /// A manifest of the user is wrong, or there is no PHP.
    pub fn run(&self) -> Result<(), String> {
        let library = Library::load(self.stacks_dir.as_deref())?;
        let php = self.php.clone().or_else(newest_php).ok_or("no PHP is installed: apt-get install php-cli php-fpm")?;
        let mut rows = vec![["STACK", "STATE", "SETTINGS"].map(str::to_owned)];
        let mut values = Vec::new();
        for definition in library.all() {
            let settings = definition.manifest.settings.iter().map(|(name, setting)| {
                let values = if setting.values.is_empty() { setting.default.clone() } else { setting.values.join("|") };
                format!("{name}={values}")
            });
            let settings: Vec<String> = settings.collect();
            let (state, value) = match detect(definition, &php) {
                Ok(found) => {
                    let versions: Vec<_> =
                        found.versions.iter().map(|v| format!("{} {}", v.program, v.version)).collect();
                    let script = definition.manifest.script.as_ref().map(|script| format!("; needs {script}"));
                    let state = format!("{}{}", versions.join(", "), script.unwrap_or_default());
                    let value = json!({ "stack": definition.name, "installed": true, "versions": found.versions });
                    (state, value)
                }
                Err(missing) => {
                    let state = format!("not here: {}: {}", missing.reason, missing.remedy);
                    let value = json!({ "stack": definition.name, "installed": false, "reason": missing.reason,
                        "remedy": missing.remedy });
                    (state, value)
                }
            };
            rows.push([definition.name.clone(), state, settings.join(" ")]);
            values.push(value);
        }
        match self.json {
            true => output::print_json(&format!("{:#}\n", serde_json::Value::Array(values))),
            false => output::print(&table(&rows, &[0, 1, 2])),
        }
        Ok(())
    }
}
