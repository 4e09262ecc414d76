//! DNS-01: the operator's command adds and removes a record.
//!
//! The command gets `add` or `remove` as its last argument, and the record in variables. It fails if its exit code is not
//! 0, or if it takes too long. Its output is in the error.

use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// A record of the DNS.
#[derive(Clone, Debug)]
pub struct Record {
    /// The name: `_acme-challenge.shop.example`.
    pub name: String,
    /// The value, a TXT record.
    pub value: String,
    /// The domain, without `*.`.
    pub domain: String,
}

const TIMEOUT: Duration = Duration::from_secs(120);
const MAX_OUTPUT_CHARS: usize = 400;

/// Runs the command for a record: `add` or `remove`.
///
/// # Errors
/// A phrase, with the command's output.
pub async fn change(command: &[String], verb: &str, record: &Record) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Err("the command is empty".to_owned()) };
    let mut running = Command::new(program);
    running.args(arguments).arg(verb);
    running.env_clear().envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMPDIR"));
    running.env("HOWDAH_DNS_NAME", &record.name).env("HOWDAH_DNS_VALUE", &record.value);
    running.env("HOWDAH_DOMAIN", &record.domain);
    running.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = match tokio::time::timeout(TIMEOUT, running.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            return Err(format!(
                "the command {program:?} of \"dns\" cannot be started: {error}; the router's user must be able to"
            ));
        }
        Err(_) => return Err(format!("the command {program:?} of \"dns\" did not end within {} s", TIMEOUT.as_secs())),
    };
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stderr, output.stdout].concat();
    let text: String = String::from_utf8_lossy(&text).trim().chars().take(MAX_OUTPUT_CHARS).collect();
    Err(format!("the command {program:?} of \"dns\" failed with `{verb}` ({}): {text:?}", output.status))
}
