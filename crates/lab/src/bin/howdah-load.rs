//! `howdah-load`: sends requests at constant rates, and prints their outcomes and times as JSON.

#![forbid(unsafe_code)]

use clap::Parser;
use howdah_lab::constant_rates::load::{Load, run};
use howdah_lab::constant_rates::schedule::{Page, RateStep};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Send requests at constant rates, whatever the server does, and print their outcomes and times as JSON.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// RATE:SECONDS; several are sent one after the other: 100:5,1500:2,100:5.
    #[arg(long, value_name = "RATE:SECONDS", required = true, value_delimiter = ',')]
    steps: Vec<RateStep>,
    /// Connect to this unix socket, whatever host the URLs name.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The limit of connections.
    #[arg(long, value_name = "N", default_value = "1500")]
    connections: usize,
    /// A response 200 without this text counts as wrong.
    #[arg(long, value_name = "TEXT")]
    expect: Option<String>,
    /// The timeout of a request.
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    timeout: f64,
    /// The URL to request. Several are mixed: 9=URL is requested nine times as often as URL.
    #[arg(value_name = "URL", required = true)]
    pages: Vec<Page>,
}

fn main() -> ExitCode {
    let Options { steps, socket, connections, expect, timeout, pages } = Options::parse();
    let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(60));
    let load = Load { steps, pages, socket, connections: connections.max(1), expected: expect, timeout };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(run(load)));
    match report {
        Ok(tally) => {
            // A closed standard output is not a failure.
            let _ = writeln!(std::io::stdout(), "{:#}", tally.report());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("howdah-load: {reason}");
            ExitCode::FAILURE
        }
    }
}
