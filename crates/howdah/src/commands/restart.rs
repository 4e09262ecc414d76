//! `howdah restart`: a new generation of an application, with new code and no lost request.

use crate::control_client::{ApiOptions, ControlApi, name_segment};
use crate::terminal::output;
use clap::Args;

/// The options of `howdah restart`.
#[derive(Debug, Args)]
pub struct RestartOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// The application's name.
    #[arg(value_name = "APP")]
    application: String,
}

// === impl RestartOptions ===

impl RestartOptions {
    /// Restarts the application, and waits until the new generation answers requests.
    ///
    /// # Errors
    /// The reason of the control API; the old generation stays active.
    pub fn run(&self) -> Result<(), String> {
        let name = &self.application;
        let path = format!("/control/applications/{}/restart", name_segment(name)?);
        ControlApi::new(&self.api)?.request("POST", &path, None, Vec::new())?.accepted(None)?;
        output::print(&format!("The application {name:?} has restarted.\n"));
        Ok(())
    }
}
