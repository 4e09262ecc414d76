//! `howdah run`: starts a howdah with a configuration of the user, or with the last active one of its state directory.

use crate::argument::{Log, parse_address, parse_log, parse_log_format};
use crate::commands::supervisor::become_supervisor;
use crate::paths::StatePaths;
use crate::rejection::SourceText;
use clap::Args;
use howdah_config::{Address, Configuration, Document, DocumentPath};
use howdah_supervisor::identity::UserAccount;
use howdah_supervisor::{LogFormat, Start, hanging, logs};
use std::path::{Path, PathBuf};

/// The options of `howdah run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The JSON file of the configuration to start with; - is standard input. Default: the last active configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of the configuration and the certificates. Default: /var/lib/howdah for root, else
    /// ~/.local/state/howdah.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The address of the control API: unix:/path or 127.0.0.1:PORT. Default: unix:/run/howdah/control.sock for root,
    /// else control.sock in the state directory.
    #[arg(long, value_name = "ADDR", value_parser = parse_address::<Address>)]
    control: Option<String>,
    /// Write log messages to this file, or to a daemon: journald, syslog, syslog:udp://HOST:PORT or syslog:tcp://HOST:PORT.
    /// Default: standard error.
    #[arg(long, value_name = "FILE", value_parser = parse_log)]
    log: Option<Log>,
    /// The form of log lines, PHP's among them: text or json.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = parse_log_format)]
    log_format: LogFormat,
    /// Write howdah's process id to this file.
    #[arg(long, value_name = "FILE")]
    pid: Option<PathBuf>,
    /// The folder of temporary files.
    #[arg(long, value_name = "DIR")]
    tmp_dir: Option<PathBuf>,
    /// If howdah starts as root: the user of applications without a user. Default: settings/user of the configuration,
    /// or else www-data.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// If howdah starts as root: their group. Default: the user's group.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// If howdah starts as root: the user of the router. Default: howdah, with the group of --user besides its own, if
    /// there is such a user; else as --user.
    #[arg(long, value_name = "USER")]
    router_user: Option<String>,
}

// === impl RunOptions ===

impl RunOptions {
    /// Checks the options and becomes the supervisor.
    ///
    /// # Errors
    /// The option, what is wrong with its value, and what to do.
    pub fn run(self) -> Result<(), String> {
        let configuration = self.config.as_deref().map(read_configuration).transpose()?;
        let account = match (&self.user, &self.group) {
            (Some(user), group) => {
                let account = UserAccount::named(user, group.as_deref());
                Some(account.map_err(|problem| format!("--user, --group: {problem}"))?)
            }
            (None, Some(group)) => {
                let account = UserAccount::unprivileged()?.in_group(group);
                Some(account.map_err(|problem| format!("--group: {problem}"))?)
            }
            (None, None) => None,
        };
        let router_account = self.router_user.as_deref().map(|user| UserAccount::named(user, None)).transpose();
        let router_account = router_account.map_err(|problem| format!("--router-user: {problem}"))?;
        if let Some(folder) = self.tmp_dir.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(format!("--tmp-dir: the folder {} does not exist; create it", folder.display()));
        }
        let paths = StatePaths::of_this_user();
        let state_dir = absolute(&self.state_dir.unwrap_or_else(|| paths.state_dir.clone()))?;
        let control = match self.control {
            Some(address) => address,
            None => {
                paths.create_control_folder(&state_dir)?;
                paths.control_address(&state_dir)
            }
        };
        let (log_file, log_daemon) = match self.log {
            Some(Log::File(file)) => (Some(file), None),
            Some(Log::Daemon(daemon)) => (None, Some(daemon)),
            None => (None, None),
        };
        if let Some(log) = &log_file {
            logs::write_errors_to(log, hanging::TIMEOUT_AT_START)?;
        }
        become_supervisor(&Start {
            configuration,
            account,
            router_account,
            recognised: None,
            log_format: self.log_format,
            check: None,
            state_dir: Some(state_dir),
            certificate_dir: None,
            control: Some(control),
            runtime_dir: None,
            pid_file: self.pid.as_deref().map(absolute).transpose()?,
            companion: None,
            log_file: log_file.as_deref().map(absolute).transpose()?,
            log_daemon,
            tmp_dir: self.tmp_dir.as_deref().map(absolute).transpose()?,
        })
    }
}

fn read_configuration(path: &Path) -> Result<String, String> {
    let source = SourceText::read(path, DocumentPath::default()).map_err(|problem| format!("--config: {problem}"))?;
    Document::parse_bytes(&source.content)
        .and_then(|document| Configuration::of(&document))
        .map_err(|error| format!("{}: {error}", source.name))?;
    // Only comments may have bytes that are not UTF-8.
    Ok(source.text())
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}
