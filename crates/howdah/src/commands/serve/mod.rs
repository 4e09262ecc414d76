//! `howdah serve`: serves a folder without a configuration of the user.
//!
//! - [`options`]: the command's options
//! - [`layout`]: the public folder and the front controller of a folder
//! - [`configuration`]: the configuration that follows from both
//!
//! From there on it is a configuration like any other: `--print-config` prints it for `howdah run`.

mod configuration;
mod layout;
mod options;

use crate::commands::supervisor::become_supervisor;
use crate::terminal::output;
use howdah_config::Configuration;
use howdah_supervisor::Start;
use howdah_supervisor::identity::UserAccount;

pub use options::ServeOptions;

// === impl ServeOptions ===

impl ServeOptions {
    /// Writes the folder's configuration, and becomes the supervisor with it.
    ///
    /// # Errors
    /// The option, what is wrong with its value, and what to do.
    pub fn run(&self) -> Result<(), String> {
        let served = configuration::plan(self)?;
        let configuration = format!("{:#}\n", served.configuration);
        Configuration::parse(&configuration).map_err(|error| error.to_string())?;
        if self.print_config {
            output::print(&configuration);
            return Ok(());
        }
        let account = match &self.user {
            Some(user) => UserAccount::named(user, None).map_err(|problem| format!("--user: {problem}"))?,
            None => UserAccount::for_folder(&served.folder)?,
        };
        become_supervisor(&Start {
            configuration: Some(configuration),
            router_account: account.clone(),
            account,
            recognised: Some(served.description),
            state_dir: None,
            control: None,
            pid_file: None,
            log_file: None,
            tmp_dir: None,
        })
    }
}
