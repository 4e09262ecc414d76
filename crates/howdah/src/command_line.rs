//! The command line: reads the options, builds the configuration, and becomes the supervisor.
//!
//! Options that do not exist end it with clap's message and exit code 2; whatever else is wrong with a line, and the
//! place if it is in a configuration, and 1.

use crate::places::Places;
use crate::{client, output, php_versions, serve};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use howdah_config::{Address, Configuration, Processes};
use howdah_supervisor::Start;
use howdah_supervisor::identity::Account;
use howdah_supervisor::system_error::words;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

/// An application server for PHP.
#[derive(Debug, Parser)]
#[command(name = "howdah", disable_version_flag = true, arg_required_else_help = true)]
struct CommandLine {
    /// Print howdah's version and those of PHP.
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a folder with a PHP application, without a configuration.
    ///
    /// Recognises how the folder wants to be served: public/index.php (Symfony, Laravel), web/index.php (Drupal, Yii),
    /// index.php (WordPress and most others), or a folder of scripts and files.
    Serve(Box<Serve>),
    /// Run a configuration in NGINX Unit's language.
    Run(Run),
    /// Read and change the configuration of a howdah that runs.
    Config(client::Config),
    /// Print what a howdah does: connections, requests, applications.
    Status(client::Status),
    /// Print what the workers do now: which request, for how long, with how much of a processor and of memory.
    Top(client::Top),
    /// Print the last slow requests, with PHP's stack: see slow_log in the configuration.
    Slow(client::Slow),
    /// Look at PHP's stacks for a while, and draw where the time goes: a flame graph, and a file for speedscope.
    Profile(client::Profile),
    /// Start an application anew, without losing a request.
    Restart(client::Restart),
    /// Upload, remove and list the certificates of a howdah.
    Certificate(client::Certificate),
}

/// The options of `howdah serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// The folder of the application.
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// Where to listen: *:80, 127.0.0.1:8080, [::1]:8080 or unix:/path. May be given several times.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = parse_address::<Address>)]
    pub listen: Vec<String>,
    /// The PHP version to run, as in 8.2; the newest that is found if nothing is said.
    #[arg(long, value_name = "VERSION")]
    pub php: Option<String>,
    /// How many PHP processes to run, always; if nothing is said, as many as are useful.
    #[arg(long, value_name = "N", value_parser = parse_processes)]
    pub processes: Option<Processes>,
    /// The script that answers for what is not a file, below the public folder; index.php if there is one.
    #[arg(long, value_name = "FILE")]
    pub front_controller: Option<String>,
    /// A php.ini in place of the distribution's.
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// A setting of php.ini that scripts cannot change. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub ini: Vec<(String, String)>,
    /// An environment variable for PHP. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub env: Vec<(String, String)>,
    /// Where each request is logged; - is standard output.
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub access_log: PathBuf,
    /// As whom PHP runs when howdah is started as root; the folder's owner, or www-data, if nothing is said.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Serve what symbolic links point to, also outside of the folder.
    #[arg(long)]
    pub follow_symlinks: bool,
    /// When PHP starts anew by itself: when a symbolic link in DIR leads elsewhere (on-swap), also when a file of the
    /// application changes (on-change), or never.
    #[arg(long, value_name = "WHEN", default_value = "on-swap", value_parser = ["on-swap", "on-change", "never"])]
    pub reload: String,
    /// Print the configuration that this comes to, for howdah run, and do nothing.
    #[arg(long)]
    pub print_config: bool,
}

#[derive(Debug, Args)]
struct Run {
    /// The configuration to start with, a JSON file; - is standard input. The one of the last time, if nothing is said.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the configuration and certificates are kept; /var/lib/howdah, or ~/.local/state/howdah, if nothing is said.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Where the control API listens: unix:/path or 127.0.0.1:PORT; unix:/run/howdah/control.sock, or control.sock in
    /// the state directory, if nothing is said.
    #[arg(long, value_name = "ADDR", value_parser = parse_address::<Address>)]
    control: Option<String>,
    /// Write messages to this file; standard error, if nothing is said.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write howdah's process id to this file.
    #[arg(long, value_name = "FILE")]
    pid: Option<PathBuf>,
    /// The folder of temporary files.
    #[arg(long, value_name = "DIR")]
    tmp_dir: Option<PathBuf>,
    /// As whom the router, and PHP that names no user, run when howdah is started as root; www-data if nothing is said.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// In which group they run.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

/// Does what the command line says. Returns only if it does not become the supervisor.
pub fn main() -> ExitCode {
    let command = CommandLine::command().after_help(php_versions::summary());
    let parsed = command.try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    let command_line = match parsed {
        Ok(command_line) => command_line,
        Err(error) => {
            // Help is such an error, too. A closed standard output is no reason to fail.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    if command_line.version {
        output::print(&format!("howdah {}\n{}", env!("CARGO_PKG_VERSION"), php_versions::details()));
        return ExitCode::SUCCESS;
    }
    let result = match command_line.command {
        Some(Command::Serve(options)) => serve(&options),
        Some(Command::Run(options)) => run(options),
        Some(Command::Config(options)) => options.run(),
        Some(Command::Status(options)) => options.run(),
        Some(Command::Top(options)) => options.run(),
        Some(Command::Slow(options)) => options.run(),
        Some(Command::Profile(options)) => options.run(),
        Some(Command::Restart(options)) => client::restart(&options),
        Some(Command::Certificate(options)) => options.run(),
        None => Err("there is nothing to do; see `howdah --help`".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            output::complain(&reason);
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Serve) -> Result<(), String> {
    let served = serve::plan(options)?;
    let configuration = format!("{:#}\n", served.configuration);
    Configuration::parse(&configuration).map_err(|error| error.to_string())?;
    if options.print_config {
        output::print(&configuration);
        return Ok(());
    }
    let account = match &options.user {
        Some(user) => Account::named(user, None).map_err(|problem| format!("--user: {problem}"))?,
        None => Account::for_folder(&served.folder)?,
    };
    become_supervisor(&Start {
        configuration: Some(configuration),
        account,
        recognised: Some(served.description),
        state_dir: None,
        control: None,
        pid_file: None,
        log_file: None,
        tmp_dir: None,
    })
}

fn run(options: Run) -> Result<(), String> {
    let configuration = options.config.as_deref().map(read_configuration).transpose()?;
    let account = match (&options.user, &options.group) {
        (Some(user), group) => {
            Account::named(user, group.as_deref()).map_err(|problem| format!("--user, --group: {problem}"))?
        }
        (None, Some(group)) => {
            Account::unprivileged()?.in_group(group).map_err(|problem| format!("--group: {problem}"))?
        }
        (None, None) => Account::unprivileged()?,
    };
    if let Some(folder) = options.tmp_dir.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(format!("--tmp-dir: there is no folder {}; create it", folder.display()));
    }
    let places = Places::of_this_user();
    let state_dir = absolute(&options.state_dir.unwrap_or_else(|| places.state_dir.clone()))?;
    let control = match options.control {
        Some(address) => address,
        None => places.control_in(&state_dir)?,
    };
    if let Some(log) = &options.log {
        howdah_supervisor::logs::write_errors_to(log)?;
    }
    become_supervisor(&Start {
        configuration,
        account,
        recognised: None,
        state_dir: Some(state_dir),
        control: Some(control),
        pid_file: options.pid.as_deref().map(absolute).transpose()?,
        log_file: options.log.as_deref().map(absolute).transpose()?,
        tmp_dir: options.tmp_dir.as_deref().map(absolute).transpose()?,
    })
}

fn read_configuration(path: &Path) -> Result<String, String> {
    let text = match path.to_str() {
        Some("-") => io::read_to_string(io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("--config: there is no file {}; correct the path", path.display()),
        _ => format!("--config: {} cannot be read: {}", path.display(), words(&error)),
    })?;
    Configuration::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn become_supervisor(start: &Start) -> Result<(), String> {
    Err(format!("the supervisor cannot be started: {}", start.become_supervisor()))
}

/// The text of an address that is one.
pub fn parse_address<A: FromStr<Err: Display>>(text: &str) -> Result<String, String> {
    text.parse::<A>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn parse_processes(text: &str) -> Result<Processes, String> {
    let count = text.parse().ok().filter(|count| (1..=1024).contains(count));
    match (text, count) {
        ("auto", _) => Ok(Processes::default()),
        (_, Some(count)) => Ok(Processes::Fixed(count)),
        _ => Err("write 1 to 1024, or auto".to_owned()),
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<Serve, clap::Error> {
        let command_line = CommandLine::try_parse_from(["howdah", "serve"].iter().chain(arguments))?;
        match command_line.command {
            Some(Command::Serve(options)) => Ok(*options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_options_are_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn serve_needs_no_options() {
        let options = options(&[]).unwrap();
        assert_eq!(options.folder, Path::new("."));
        assert_eq!(options.listen, ["127.0.0.1:8080"]);
        assert_eq!(options.access_log, Path::new("-"));
    }

    #[test]
    fn options_may_be_given_several_times() {
        let options =
            options(&["/srv", "--listen", "*:80", "--listen", "unix:/x", "--ini", "a=b=c", "--env", "K="]).unwrap();
        assert_eq!(options.listen, ["*:80", "unix:/x"]);
        assert_eq!(options.ini, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!(options.env, [("K".to_owned(), String::new())]);
    }

    #[test]
    fn wrong_options_are_refused() {
        for wrong in [
            &["--processes", "0"][..],
            &["--processes", "x"],
            &["--listen", "24010"],
            &["--ini", "a"],
            &["--env", "=x"],
            &["a", "b"],
        ] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
    }
}
