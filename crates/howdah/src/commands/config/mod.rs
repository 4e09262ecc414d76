//! `howdah config`: reads, changes and checks a configuration, whole or by path.

mod edit;
mod edited_file;
mod host_names;

use crate::commands::supervisor::become_supervisor;
use crate::control_client::{ApiOptions, ControlApi, config_url, parse_config_path};
use crate::rejection::{Rejection, SourceText};
use crate::terminal::output;
use clap::{Args, Subcommand};
use howdah_config::{Configuration, Document, DocumentPath};
use howdah_supervisor::{LogFormat, Start};
use std::path::{Path, PathBuf};

/// The arguments of `howdah config`.
#[derive(Debug, Args)]
pub struct ConfigCommand {
    #[command(flatten)]
    api: ApiOptions,
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Print the configuration, or the part of it at PATH.
    Get {
        /// For example listeners/*:80 or routes/0; write a slash in a name as %2F.
        #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
        path: String,
        /// Print the configuration's ETag instead, for --if-match.
        #[arg(long)]
        etag: bool,
    },
    /// Replace the configuration, or set the part of it at PATH.
    #[command(allow_missing_positional = true)]
    Put {
        /// For example listeners/*:80 or routes/0; write a slash in a name as %2F.
        #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
        path: String,
        /// A JSON file; - is standard input.
        #[arg(value_name = "FILE", required = true)]
        file: PathBuf,
        #[command(flatten)]
        condition: Condition,
    },
    /// Add an element to the end of the array at PATH.
    Post {
        /// For example routes; write a slash in a name as %2F.
        #[arg(value_name = "PATH")]
        path: String,
        /// A JSON file; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        condition: Condition,
    },
    /// Remove the part of the configuration at PATH.
    Delete {
        /// For example listeners/*:80 or routes/0; write a slash in a name as %2F; / is the whole configuration.
        #[arg(value_name = "PATH")]
        path: String,
        #[command(flatten)]
        condition: Condition,
    },
    /// Open the configuration, or the part of it at PATH, in $VISUAL or $EDITOR, and apply the saved text.
    Edit {
        /// For example applications/shop; write a slash in a name as %2F.
        #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Check that a file is a valid configuration. Needs no running howdah.
    Check {
        /// Check this machine, too: paths, users, certificates, PHP versions, and whether PHP starts each application.
        /// Needs the user who runs howdah.
        #[arg(long)]
        full: bool,
        /// A JSON file; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
}

#[derive(Debug, Args)]
struct Condition {
    /// Change nothing unless the configuration still has this ETag; see config get --etag.
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

// === impl ConfigCommand ===

impl ConfigCommand {
    /// Reads, changes or checks.
    ///
    /// # Errors
    /// The reason of the control API or of the check, with its position in the text, or a file that cannot be read.
    pub fn run(&self) -> Result<(), String> {
        let api = || ControlApi::new(&self.api);
        match &self.action {
            ConfigAction::Get { path, etag } => get(&api()?, path, *etag),
            ConfigAction::Put { path, file, condition } => send(&api()?, "PUT", path, file, condition),
            ConfigAction::Post { path, file, condition } => send(&api()?, "POST", path, file, condition),
            ConfigAction::Delete { path, condition } => delete(&api()?, path, condition),
            ConfigAction::Edit { path } => edit::edit(&api()?, path),
            ConfigAction::Check { full, file } => check(file, full.then(|| self.api.state_dir()).transpose()?),
            ConfigAction::Schema => {
                output::print(howdah_config::SCHEMA);
                Ok(())
            }
        }
    }
}

// === impl Condition ===

impl Condition {
    /// The ETag with quotes, which a shell removes.
    fn if_match(&self) -> Option<String> {
        let etag = self.if_match.as_ref()?;
        Some(if etag == "*" || etag.contains('"') { etag.clone() } else { format!("\"{etag}\"") })
    }
}

fn get(api: &ControlApi, path: &str, etag: bool) -> Result<(), String> {
    let response = api.get(&config_url(&parse_config_path(path)?))?.accepted(None)?;
    match response.etag.filter(|_| etag) {
        Some(etag) => output::print(&format!("{etag}\n")),
        None => output::print_json(&response.body),
    }
    Ok(())
}

fn send(api: &ControlApi, method: &str, path: &str, file: &Path, condition: &Condition) -> Result<(), String> {
    let source = SourceText::read(file, parse_config_path(path)?)?;
    let url = config_url(&source.path);
    let response = api.request(method, &url, condition.if_match().as_deref(), source.content.clone())?;
    // POST adds the text at an index that is not known here, so an error's path cannot be found in the text.
    let source = if method == "POST" { SourceText { path: DocumentPath::default(), ..source } } else { source };
    output::print(&response.accepted(Some(&source))?.message());
    Ok(())
}

fn delete(api: &ControlApi, path: &str, condition: &Condition) -> Result<(), String> {
    // A variable that is empty in a script must not delete more than it names.
    if path.is_empty() {
        return Err("the path is empty; write / to delete the whole configuration".to_owned());
    }
    if path != "/" && path.ends_with('/') {
        let object = path.trim_end_matches('/');
        return Err(format!(
            "the path {path:?} has no name behind its last slash; write {object:?} to delete all of it"
        ));
    }
    let url = config_url(&parse_config_path(path)?);
    let response = api.request("DELETE", &url, condition.if_match().as_deref(), Vec::new())?;
    output::print(&response.accepted(None)?.message());
    Ok(())
}

/// With a state directory, the machine is checked, too.
fn check(file: &Path, state_dir: Option<PathBuf>) -> Result<(), String> {
    let source = SourceText::read(file, DocumentPath::default())?;
    match Document::parse_bytes(&source.content).and_then(|document| Configuration::of(&document)) {
        Ok(configuration) => {
            configuration.warnings.iter().for_each(|warning| output::print_error(&format!("warning: {warning}")));
            if let Some(state_dir) = state_dir {
                host_names::check(&configuration).map_err(|problem| format!("{}: {problem}", source.name))?;
                return become_supervisor(&Start {
                    configuration: Some(source.text()),
                    account: None,
                    router_account: None,
                    recognised: None,
                    log_format: LogFormat::Text,
                    check: Some(source.name),
                    state_dir: Some(state_dir),
                    certificate_dir: None,
                    control: None,
                    runtime_dir: None,
                    pid_file: None,
                    companion: None,
                    log_daemon: None,
                    log_file: None,
                    tmp_dir: None,
                });
            }
            output::print(&format!("{}: the configuration is valid\n", source.name));
        }
        Err(error) => return Err(Rejection::from(error).describe(Some(&source))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_may_have_lost_its_quotes() {
        for (given, expected) in [("abc", "\"abc\""), ("\"abc\"", "\"abc\""), ("*", "*")] {
            let condition = Condition { if_match: Some(given.to_owned()) };
            assert_eq!(condition.if_match().as_deref(), Some(expected));
        }
    }
}
