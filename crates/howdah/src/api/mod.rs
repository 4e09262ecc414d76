//! The commands that ask a howdah that runs: HTTP over its control socket, nothing that curl could not do.
//!
//! - `connection`: the request and its answer
//! - `config`, `status`, `certificate`, `slow`, `top`, `profile`: the commands
//! - `edit`: a configuration in the user's editor, until howdah takes it
//! - `plain`: what clients of applications wrote, for a terminal
//! - `table`, `watch`: columns, and what is printed anew each second
//! - `problem`, `place`: what is wrong with a text, shown where it is wrong
//!
//! Fails with a text for the person at the terminal, of several lines if it shows a place: exit code 1.

mod certificate;
mod config;
mod connection;
mod edit;
mod place;
mod plain;
mod problem;
mod profile;
mod slow;
mod source;
mod status;
mod table;
mod top;
mod watch;

use crate::output;
use clap::{Args, Subcommand};
use connection::Server;
use howdah_config::DocumentPath;
use std::path::PathBuf;

pub use connection::Whom;

/// `howdah config`.
#[derive(Debug, Args)]
pub struct Config {
    #[command(flatten)]
    whom: Whom,
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the configuration, or the part of it at PATH.
    Get {
        /// As in listeners/*:80 or routes/0; a slash in a name is %2F.
        #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
        path: String,
        /// Print the configuration's ETag instead, for --if-match.
        #[arg(long)]
        etag: bool,
    },
    /// Replace the configuration, or set the part of it at PATH.
    #[command(allow_missing_positional = true)]
    Put {
        /// As in listeners/*:80 or routes/0; a slash in a name is %2F.
        #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
        path: String,
        /// A JSON file; - is standard input.
        #[arg(value_name = "FILE", required = true)]
        file: PathBuf,
        #[command(flatten)]
        only: OnlyIf,
    },
    /// Add to the end of the array at PATH.
    Post {
        /// As in routes; a slash in a name is %2F.
        #[arg(value_name = "PATH")]
        path: String,
        /// A JSON file; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        only: OnlyIf,
    },
    /// Remove the part of the configuration at PATH.
    Delete {
        /// As in listeners/*:80 or routes/0; a slash in a name is %2F; / is all of the configuration.
        #[arg(value_name = "PATH")]
        path: String,
        #[command(flatten)]
        only: OnlyIf,
    },
    /// Open the configuration, or the part of it at PATH, in $VISUAL or $EDITOR, and put in force what is saved.
    Edit {
        /// As in applications/shop; a slash in a name is %2F.
        #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Say whether a file is a configuration. Needs no howdah that runs; asks nothing of the machine.
    Check {
        /// A JSON file; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print the JSON Schema of configurations, for editors.
    Schema,
}

#[derive(Debug, Args)]
struct OnlyIf {
    /// Change nothing unless the configuration still has this ETag; see config get --etag.
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

/// `howdah status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    whom: Whom,
    /// Again each second, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// `howdah slow`.
#[derive(Debug, Args)]
pub struct Slow {
    #[command(flatten)]
    whom: Whom,
    /// The application's name; all of them, if nothing is said.
    #[arg(value_name = "APP")]
    application: Option<String>,
    /// How many requests.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    last: u32,
    /// As JSON, a line for each time that PHP's stack was looked at.
    #[arg(long)]
    json: bool,
}

/// `howdah top`.
#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    whom: Whom,
    /// The application's name; all of them, if nothing is said.
    #[arg(value_name = "APP")]
    application: Option<String>,
    /// Print it once, instead of each second.
    #[arg(long)]
    once: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// `howdah profile`.
#[derive(Debug, Args)]
pub struct Profile {
    #[command(flatten)]
    whom: Whom,
    /// The application's name.
    #[arg(value_name = "APP")]
    application: String,
    /// For how long, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = profile::DEFAULT.seconds, allow_negative_numbers = true, value_parser = seconds)]
    seconds: f64,
    /// How many times a second each worker's stack is looked at.
    #[arg(long, value_name = "HZ", default_value_t = profile::DEFAULT.rate, value_parser = clap::value_parser!(u32).range(profile::RATES))]
    rate: u32,
    /// The file of the flame graph; APP-profile.svg if nothing is said. Speedscope's file is put beside it.
    #[arg(long, value_name = "FILE.svg", value_parser = svg)]
    output: Option<PathBuf>,
}

/// `howdah restart`.
#[derive(Debug, Args)]
pub struct Restart {
    #[command(flatten)]
    whom: Whom,
    /// The application's name.
    #[arg(value_name = "APP")]
    application: String,
}

/// `howdah certificate`.
#[derive(Debug, Args)]
pub struct Certificate {
    #[command(flatten)]
    whom: Whom,
    #[command(subcommand)]
    command: CertificateCommand,
}

#[derive(Debug, Subcommand)]
enum CertificateCommand {
    /// Upload a certificate chain with its key.
    Put {
        /// Its name, for "tls" in a listener.
        #[arg(value_name = "NAME")]
        name: String,
        /// A PEM file: the certificate, those that signed it, the private key. - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove a certificate that no listener uses.
    Delete {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print the certificates, or one of them: kind of key, subjects, issuers, validity.
    List {
        /// Its name; all, if nothing is said.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// Restarts an application.
///
/// # Errors
/// Why not.
pub fn restart(options: &Restart) -> Result<(), String> {
    let name = &options.application;
    let path = format!("/control/applications/{}/restart", segment(name)?);
    Server::of(&options.whom)?.ask("POST", &path, None, Vec::new())?.succeeded(None)?;
    output::print(&format!("The application {name:?} has restarted.\n"));
    Ok(())
}

// === impl Config ===

impl Config {
    /// Does it.
    ///
    /// # Errors
    /// Why not.
    pub fn run(&self) -> Result<(), String> {
        let server = || Server::of(&self.whom);
        match &self.command {
            ConfigCommand::Get { path, etag } => config::get(&server()?, path, *etag),
            ConfigCommand::Put { path, file, only } => config::send(&server()?, "PUT", path, file, &only.if_match),
            ConfigCommand::Post { path, file, only } => config::send(&server()?, "POST", path, file, &only.if_match),
            ConfigCommand::Delete { path, only } => config::delete(&server()?, path, &only.if_match),
            ConfigCommand::Edit { path } => edit::edit(&server()?, path),
            ConfigCommand::Check { file } => config::check(file),
            ConfigCommand::Schema => {
                output::print(howdah_config::SCHEMA);
                Ok(())
            }
        }
    }
}

// === impl Status ===

impl Status {
    /// Prints it.
    ///
    /// # Errors
    /// Why not.
    pub fn run(&self) -> Result<(), String> {
        let server = Server::of(&self.whom)?;
        if self.watch { status::watch(&server, self.json) } else { status::print(&server, self.json) }
    }
}

// === impl Slow ===

impl Slow {
    /// Prints it.
    ///
    /// # Errors
    /// Why not.
    pub fn run(&self) -> Result<(), String> {
        slow::print(&Server::of(&self.whom)?, self.application.as_deref(), self.last as usize, self.json)
    }
}

// === impl Top ===

impl Top {
    /// Prints it.
    ///
    /// # Errors
    /// Why not.
    pub fn run(&self) -> Result<(), String> {
        let (server, application) = (Server::of(&self.whom)?, self.application.as_deref());
        if self.once { top::once(&server, application, self.json) } else { top::watch(&server, application, self.json) }
    }
}

// === impl Profile ===

impl Profile {
    /// Does it.
    ///
    /// # Errors
    /// Why not.
    pub fn run(&self) -> Result<(), String> {
        let wish = profile::Wish { seconds: self.seconds, rate: self.rate };
        profile::profile(&Server::of(&self.whom)?, &self.application, &wish, self.output.as_deref())
    }
}

// === impl Certificate ===

impl Certificate {
    /// Does it.
    ///
    /// # Errors
    /// Why not.
    pub fn run(&self) -> Result<(), String> {
        let server = Server::of(&self.whom)?;
        match &self.command {
            CertificateCommand::Put { name, file } => certificate::put(&server, name, file),
            CertificateCommand::Delete { name } => certificate::delete(&server, name),
            CertificateCommand::List { name } => certificate::list(&server, name.as_deref()),
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let (least, most) = profile::SECONDS.into_inner();
    let seconds = text.parse().ok().filter(|seconds| profile::SECONDS.contains(seconds));
    seconds.ok_or_else(|| format!("write {least} to {most}"))
}

fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_svg { Ok(path) } else { Err("a flame graph is an SVG file; write FILE.svg".to_owned()) }
}

/// A name as one segment of a path.
fn segment(name: &str) -> Result<String, String> {
    match DocumentPath::from_iter([name]).to_string() {
        empty if empty.is_empty() => Err("a name is not empty; write one".to_owned()),
        segment => Ok(segment),
    }
}
