//! `howdah lab load`: one load on a server that runs already.
//!
//! Fails if the load is wrong, or the server is another machine. Failed requests are a result.

use super::interrupt;
use crate::terminal::output;
use clap::Args;
use howdah_lab::load::connection::Endpoint;
use howdah_lab::plan::file::{ChecksFile, LoadFile};
use howdah_lab::plan::{load, stack};
use howdah_lab::results::{Run, RunState};
use howdah_lab::run::race::Means;
use howdah_lab::run::single_load;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The options of `howdah lab load`.
#[derive(Debug, Args)]
pub struct LabLoadOptions {
    /// The URLs. Several are mixed: 9=URL is requested nine times as often as URL. All are of one server.
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Open loop: const(100, 30s), line(1, 1000, 60s) and so on, as in lab.json.
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// Closed loop: the number of clients. Open loop: the limit of connections.
    #[arg(long, value_name = "N")]
    connections: Option<u32>,
    /// Closed loop: the time, such as 30s.
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Closed loop: the number of requests.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// A new connection for each request.
    #[arg(long)]
    no_keep_alive: bool,
    /// The timeout of a request.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: String,
    /// A response 200 without this text is wrong. All other statuses are wrong, too; without it, 200 to 399 are right.
    #[arg(long, value_name = "TEXT")]
    expect: Option<String>,
    /// Connect to this unix socket, whatever host the URLs name.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Threads of the load generator.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Their cores: 0,1.
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    cores: Vec<u32>,
    /// Print JSON: one of the `runs` of results.json.
    #[arg(long)]
    json: bool,
    /// Send load to another machine.
    #[arg(long)]
    allow_remote: bool,
}

const SCHEME: &str = "http://";

// === impl LabLoadOptions ===

impl LabLoadOptions {
    /// Sends the load, and prints its outcomes.
    ///
    /// # Errors
    /// A URL or the load is wrong, or the server is another machine.
    pub fn run(&self) -> Result<(), String> {
        let mut targets = Vec::new();
        let mut authority = None;
        for url in &self.urls {
            let (weight, server, path) = parts_of(url)?;
            if authority.get_or_insert(server) != &server {
                return Err(format!("{url}: all URLs must be of one server"));
            }
            targets.push(json!({ "path": path, "weight": weight }));
        }
        let server = authority.unwrap_or_default();
        let (endpoint, host) = match &self.socket {
            Some(path) => (Endpoint::Unix(path.clone()), server.to_owned()),
            None => stack::endpoint(&format!("{SCHEME}{server}"))?,
        };
        if !endpoint.is_local() && !self.allow_remote {
            return Err(format!(
                "{server} is another machine: with --allow-remote it gets this load; do that only to machines of your own"
            ));
        }
        let checks = ChecksFile {
            status: if self.expect.is_some() { vec![200] } else { Vec::new() },
            contains: self.expect.clone(),
            ..ChecksFile::default()
        };
        let file = LoadFile {
            name: "load".to_owned(),
            schedule: self.schedule.clone(),
            connections: self.connections,
            duration: self.duration.clone(),
            requests: self.requests,
            keep_alive: Some(!self.no_keep_alive),
            timeout: Some(self.timeout.clone()),
            warm_up: Some("0s".to_owned()),
            targets: Some(Value::Array(targets)),
            ..LoadFile::default()
        };
        let loads = load::read(&[file], (None, &checks), None, Path::new("."));
        let loads = loads.map_err(|reason| format!("--{}", reason.trim_start_matches("loads[0]/")))?;
        let load = loads.first().filter(|load| !load.is_relative());
        let load = load.ok_or("--schedule: rates in percent are for labs; write requests per second")?;
        let means = Means { threads: self.threads.into(), cores: self.cores.clone(), perf: None };
        let interrupted = interrupt::flag()?;
        let run = single_load::run(&endpoint, &host, load, &means, &interrupted)?;
        match self.json {
            true => output::print_json(&format!("{:#}\n", json!(run))),
            false => output::print(&describe(&run)),
        }
        match run.state {
            RunState::Interrupted => Err("interrupted".to_owned()),
            _ => Ok(()),
        }
    }
}

/// The weight, the server and the path of `9=http://127.0.0.1:8080/page`.
fn parts_of(url: &str) -> Result<(u32, &str, &str), String> {
    let (weight, url) = match url.split_once('=') {
        Some((weight, rest)) if weight.bytes().all(|byte| byte.is_ascii_digit()) => {
            (weight.parse().map_err(|_| format!("{url}: {weight:?} is not a weight"))?, rest)
        }
        _ => (1, url),
    };
    let rest = url.strip_prefix(SCHEME).filter(|rest| !rest.is_empty());
    let rest = rest.ok_or_else(|| format!("{url:?} is not a URL such as http://127.0.0.1:8080/"))?;
    let (server, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    Ok((weight, server, path))
}

/// The outcomes of a run, for people.
fn describe(run: &Run) -> String {
    let mut text = format!(
        "{} requests in {:.1} s: {} right ({:.0} per second), {} failed\n",
        run.requests, run.duration_seconds, run.right, run.requests_per_second, run.failed
    );
    if let Some(p) = &run.latency.percentiles {
        let (p50, p90, p99, max) = (p.p50, p.p90, p.p99, p.max);
        let _ = writeln!(text, "right responses: p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, max {max:.1} ms");
    }
    if let Some(p) = &run.failure_latency.percentiles {
        let _ = writeln!(text, "failed requests: p50 {:.1} ms, max {:.1} ms", p.p50, p.max);
    }
    for (status, count) in &run.statuses {
        let _ = writeln!(text, "status {status}: {count}");
    }
    for (kind, count) in &run.errors {
        let _ = writeln!(text, "{}: {count}", kind.replace('_', " "));
    }
    if let RunState::Voided { reason } = &run.state {
        let _ = writeln!(text, "void: {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_weight_a_server_and_a_path() {
        for (url, parts) in [
            ("http://127.0.0.1:8080", (1, "127.0.0.1:8080", "/")),
            ("http://localhost/a?b=c", (1, "localhost", "/a?b=c")),
            ("9=http://[::1]:80/", (9, "[::1]:80", "/")),
            ("http://a/?b=http://c/", (1, "a", "/?b=http://c/")),
        ] {
            assert_eq!(parts_of(url).unwrap(), parts, "{url}");
        }
        for wrong in ["", "localhost:80", "https://localhost/", "x=http://localhost/", "http://"] {
            assert!(parts_of(wrong).is_err(), "{wrong}");
        }
    }
}
