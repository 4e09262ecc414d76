//! The command line: reads the arguments and runs one command of [`crate::commands`].
//!
//! Wrong arguments: clap's message on standard error and exit code 2. A command that fails: one message on standard
//! error and exit code 1.

use crate::commands::{
    CertificateCommand, ConfigCommand, DashboardOptions, DrainOptions, LabCommand, LeaksOptions, ProfileOptions,
    RestartOptions, RunOptions, ServeOptions, SlowOptions, StatusOptions, TopOptions,
};
use crate::php_versions;
use crate::terminal::output;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use howdah_supervisor::system_error::error_text;
use std::process::ExitCode;

/// An application server for PHP.
#[derive(Debug, Parser)]
#[command(name = "howdah", disable_version_flag = true, arg_required_else_help = true)]
struct CommandLine {
    /// Print the versions of howdah and of PHP.
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a folder with a PHP application, without a configuration.
    ///
    /// Detects the layout of the folder: public/index.php (Symfony, Laravel), web/index.php (Drupal, Yii), index.php
    /// (WordPress and most others), or a folder of scripts and files.
    Serve(Box<ServeOptions>),
    /// Run a configuration in NGINX Unit's language.
    Run(RunOptions),
    /// Read and change the configuration of a running howdah.
    Config(ConfigCommand),
    /// Print connections, requests and applications of a running howdah.
    Status(StatusOptions),
    /// Print what each worker does now: its request, time, CPU and memory.
    Top(TopOptions),
    /// Print the last slow requests with PHP's stack; needs slow_log in the configuration.
    Slow(SlowOptions),
    /// Sample PHP's stacks, and write a flame graph and a speedscope file.
    Profile(ProfileOptions),
    /// Find the routes of an application in worker mode that keep memory with each request.
    Leaks(LeaksOptions),
    /// Serve a page for a browser on this machine: all of the above, with its history.
    Dashboard(DashboardOptions),
    /// Restart an application without losing a request.
    Restart(RestartOptions),
    /// Take an application, or a server of an upstream, out of use without losing a request, and wait until it has none.
    Drain(DrainOptions),
    /// Upload, delete and list certificates.
    Certificate(CertificateCommand),
    /// Race howdah and other servers on your own application, and compare them.
    Lab(LabCommand),
}

/// Runs the command of the command line. Returns unless this process becomes the supervisor.
pub fn main() -> ExitCode {
    let command = CommandLine::command().after_help(php_versions::summary());
    let parsed = command.try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    let command_line = match parsed {
        Ok(command_line) => command_line,
        Err(error) => {
            // clap returns help as an error, too. A closed standard output is not a failure.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    if command_line.version {
        output::print(&format!("howdah {}\n{}", env!("CARGO_PKG_VERSION"), php_versions::details()));
        return ExitCode::SUCCESS;
    }
    let result = match command_line.command {
        Some(Command::Serve(options)) => options.run(),
        Some(Command::Run(options)) => options.run(),
        Some(Command::Config(command)) => command.run(),
        Some(Command::Status(options)) => options.run(),
        Some(Command::Top(options)) => options.run(),
        Some(Command::Slow(options)) => options.run(),
        Some(Command::Profile(options)) => options.run(),
        Some(Command::Leaks(options)) => options.run(),
        Some(Command::Dashboard(options)) => options.run(),
        Some(Command::Restart(options)) => options.run(),
        Some(Command::Drain(options)) => options.run(),
        Some(Command::Certificate(command)) => command.run(),
        Some(Command::Lab(command)) => command.run(),
        None => Err("no command was given; see `howdah --help`".to_owned()),
    };
    let is_whole = || {
        output::error()
            .map_or(Ok(()), |error| Err(format!("standard output cannot be written: {}", error_text(&error))))
    };
    match result.and_then(|()| is_whole()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            output::print_error(&reason);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use std::path::Path;

    fn serve_options(arguments: &[&str]) -> Result<ServeOptions, clap::Error> {
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
        let options = serve_options(&[]).unwrap();
        assert_eq!(options.folder, Path::new("."));
        assert!(options.listen.is_empty() && options.domain.is_empty());
        assert_eq!(options.access_log, Path::new("-"));
    }

    #[test]
    fn options_may_be_given_several_times() {
        let options =
            serve_options(&["/srv", "--listen", "*:80", "--listen", "unix:/x", "--ini", "a=b=c", "--env", "K="])
                .unwrap();
        assert_eq!(options.listen, ["*:80", "unix:/x"]);
        assert_eq!(options.ini, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!(options.env, [("K".to_owned(), String::new())]);
    }

    #[test]
    fn wrong_options_are_rejected() {
        for (wrong, kind) in [
            (&["--processes", "0"][..], ErrorKind::ValueValidation),
            (&["--processes", "x"], ErrorKind::ValueValidation),
            (&["--listen", "24010"], ErrorKind::ValueValidation),
            (&["--ini", "a"], ErrorKind::ValueValidation),
            (&["--env", "=x"], ErrorKind::ValueValidation),
            (&["a", "b"], ErrorKind::UnknownArgument),
            (&["--email", "a@b.example"], ErrorKind::MissingRequiredArgument),
        ] {
            assert_eq!(serve_options(wrong).map_err(|error| error.kind()).err(), Some(kind), "{wrong:?}");
        }
    }
}
