//! `howdah serve`: serves a folder without a configuration of the user.
//!
//! - [`options`]: the command's options
//! - [`layout`]: the public folder and the front controller of a folder
//! - [`configuration`]: the configuration that follows from both
//!
//! From there on it is a configuration like any other: `--print-config` prints it for `howdah run`.

mod configuration;
pub mod layout;
mod options;

use crate::commands::dashboard::companion;
use crate::commands::supervisor::become_supervisor;
use crate::paths::{ServeFolders, StatePaths, absolute};
use crate::terminal::output;
use howdah_config::Configuration;
use howdah_supervisor::Start;
use howdah_supervisor::identity::UserAccount;
use std::path::PathBuf;

pub use options::ServeOptions;

// === impl ServeOptions ===

impl ServeOptions {
    /// Writes the folder's configuration, and becomes the supervisor with it.
    ///
    /// # Errors
    /// The option, what is wrong with its value, and what to do.
    pub fn run(&self) -> Result<(), String> {
        let folder = configuration::folder(self)?;
        let account = match &self.user {
            Some(user) => UserAccount::named(user, None).map_err(|problem| format!("--user: {problem}"))?,
            None => UserAccount::for_folder(&folder)?,
        };
        let served = configuration::plan(self, folder, &account)?;
        let configuration = format!("{:#}\n", served.configuration);
        Configuration::parse(&configuration).map_err(|error| self.name_option(error.to_string()))?;
        if self.print_config {
            output::print_json(&configuration);
            return Ok(());
        }
        let runtime_dir = match ServeFolders::of_this_user().create(&served.folder) {
            Ok(folder) => Some(folder),
            Err(problem) => {
                tracing::warn!("{problem}; without --control, this howdah has no control API");
                None
            }
        };
        let in_runtime_dir = || runtime_dir.as_deref().map(ServeFolders::control_address);
        let control = self.control.clone().or_else(in_runtime_dir);
        let certificate_dir = self.certificate_folder()?;
        let companion = match (self.dashboard, &control) {
            (Some(address), Some(control)) => Some(companion::start(address, control, runtime_dir.as_deref())?),
            (Some(_), None) => {
                return Err("--dashboard needs the control API: choose an address for it with --control".to_owned());
            }
            (None, _) => None,
        };
        become_supervisor(&Start {
            configuration: Some(configuration),
            companion,
            // The configuration has it.
            account: None,
            // The folder may be readable for its owner only.
            router_account: Some(account),
            recognised: Some(served.description),
            log_format: self.log_format,
            check: None,
            state_dir: None,
            certificate_dir,
            control,
            runtime_dir,
            pid_file: None,
            log_daemon: None,
            log_file: None,
            tmp_dir: None,
        })
    }

    /// The folder of the certificates of `--domain`, which must outlive this howdah: authorities limit their number.
    fn certificate_folder(&self) -> Result<Option<PathBuf>, String> {
        match &self.certificate_dir {
            _ if self.domain.is_empty() => Ok(None),
            Some(folder) => absolute(folder).map(Some),
            None => Ok(Some(StatePaths::of_this_user().state_dir)),
        }
    }

    /// An error in the written configuration, with the option that it comes from.
    fn name_option(&self, error: String) -> String {
        let Some((path, problem)) = error.split_once(": ").filter(|(path, _)| path.contains("/tls/acme/")) else {
            return error;
        };
        let option = match path.split("/tls/acme/").nth(1).unwrap_or_default() {
            place if place.starts_with("domains") => "--domain",
            "contact" => "--email",
            _ => "--acme-directory",
        };
        format!("{option}: {problem}")
    }
}
