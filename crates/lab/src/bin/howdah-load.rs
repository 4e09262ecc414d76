//! `howdah-load`: a constant rate of requests, and what came of them, as JSON.

#![forbid(unsafe_code)]

use clap::Parser;
use howdah_lab::load::{Load, run};
use howdah_lab::schedule::{Page, Step};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Send requests at constant rates, whatever the server does, and print what came of them as JSON.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// RATE:SECONDS; several follow each other, as in 100:5,1500:2,100:5.
    #[arg(long, value_name = "RATE:SECONDS", required = true, value_delimiter = ',')]
    steps: Vec<Step>,
    /// Connect to this unix socket, whatever host the URLs name.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The most connections.
    #[arg(long, value_name = "N", default_value = "1500")]
    connections: usize,
    /// An answer of 200 without this text is wrong.
    #[arg(long, value_name = "TEXT")]
    expect: Option<String>,
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    patience: f64,
    /// What to ask for: several are mixed; 9=URL is asked for nine times as often as URL.
    #[arg(value_name = "URL", required = true)]
    pages: Vec<Page>,
}

fn main() -> ExitCode {
    let Options { steps, socket, connections, expect, patience, pages } = Options::parse();
    let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::from_secs(60));
    let load = Load { steps, pages, socket, connections: connections.max(1), expected: expect, patience };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(run(load)));
    match report {
        Ok(tally) => {
            // Who reads it may have heard enough.
            let _ = writeln!(std::io::stdout(), "{:#}", tally.report());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("howdah-load: {reason}");
            ExitCode::FAILURE
        }
    }
}
