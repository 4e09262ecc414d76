//! Parsers of argument values that several commands share.

use howdah_config::LogDaemon;
use howdah_supervisor::LogFormat;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

/// Where howdah's messages are written.
#[derive(Clone, Debug)]
pub enum Log {
    /// A file.
    File(PathBuf),
    /// A daemon, in the form of the configuration.
    Daemon(String),
}

/// Checks that the text is an address of type `A`, and returns it unchanged.
///
/// # Errors
/// The reason of `A`'s parser; clap adds the option's name.
pub fn parse_address<A: FromStr<Err: Display>>(text: &str) -> Result<String, String> {
    text.parse::<A>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Reads a destination of log lines: a path, or a daemon.
///
/// # Errors
/// It begins as a daemon's address does, and is not one.
pub fn parse_log(text: &str) -> Result<Log, String> {
    if LogDaemon::is_meant(text) {
        return text.parse::<LogDaemon>().map(|_| Log::Daemon(text.to_owned()));
    }
    Ok(Log::File(text.into()))
}

/// Reads the form of log lines.
///
/// # Errors
/// It is neither of the two.
pub fn parse_log_format(text: &str) -> Result<LogFormat, String> {
    [LogFormat::Text, LogFormat::Json]
        .into_iter()
        .find(|format| format.name() == text)
        .ok_or_else(|| "write text or json".to_owned())
}
