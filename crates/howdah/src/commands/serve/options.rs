//! The options of `howdah serve`, and the parsers of their values.

use crate::argument::{parse_address, parse_log_format};
use clap::Args;
use howdah_config::{Address, Processes};
use howdah_supervisor::LogFormat;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The options of `howdah serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeOptions {
    /// The folder of the application.
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// The address to listen on: *:80, 127.0.0.1:8080, [::1]:8080 or unix:/path. May be given several times. Default:
    /// 127.0.0.1:8080; with --domain *:443 and *:80.
    #[arg(long, value_name = "ADDR", value_parser = parse_address::<Address>)]
    pub listen: Vec<String>,
    /// Serve HTTPS for this domain, with a certificate of Let's Encrypt, to whose terms you agree. Port 80 then sends
    /// clients to HTTPS. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub domain: Vec<String>,
    /// With --domain: an e-mail address that the certificate authority may write to.
    #[arg(long, value_name = "ADDRESS", requires = "domain")]
    pub email: Option<String>,
    /// With --domain: the directory of another certificate authority: its URL, or letsencrypt-staging.
    #[arg(long, value_name = "URL", requires = "domain")]
    pub acme_directory: Option<String>,
    /// With --domain: the folder of the certificates. Default: that of howdah run.
    #[arg(long, value_name = "DIR", requires = "domain")]
    pub certificate_dir: Option<PathBuf>,
    /// The PHP version, for example 8.2. Default: the newest installed version.
    #[arg(long, value_name = "VERSION")]
    pub php: Option<String>,
    /// A fixed number of PHP processes. Default: auto, which follows the load.
    #[arg(long, value_name = "N", value_parser = parse_processes)]
    pub processes: Option<Processes>,
    /// The script, below the public folder, that answers all URLs that are not files. Default: index.php, if it exists.
    #[arg(long, value_name = "FILE")]
    pub front_controller: Option<String>,
    /// Worker mode: the script, below the public folder or DIR, that boots once and then handles all requests. With =PATH,
    /// or given several times: it handles the requests for these paths, such as /api/*, or those that run it in classic mode.
    #[arg(long, value_name = "FILE[=PATH]", conflicts_with = "front_controller")]
    pub worker: Vec<String>,
    /// Boot the worker script once for all workers, which are then forked.
    #[arg(long, requires = "worker")]
    pub preboot: bool,
    /// Async mode: the worker script runs an event loop, and each worker holds this number of requests at a time, 2 to 4096.
    #[arg(long, value_name = "N", requires = "worker", conflicts_with = "slow_log", value_parser = clap::value_parser!(u16).range(2..=i64::from(howdah_config::MAX_CONCURRENCY)))]
    pub concurrency: Option<u16>,
    /// A php.ini that replaces the distribution's.
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// A php.ini setting that scripts cannot change. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub ini: Vec<(String, String)>,
    /// An environment variable for PHP. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub env: Vec<(String, String)>,
    /// Let PHP see all variables of howdah's own environment. Without this option, it sees only PATH and those of
    /// --env.
    #[arg(long)]
    pub inherit_env: bool,
    /// The file of the access log; - is standard output, journald and syslog are daemons.
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub access_log: PathBuf,
    /// If howdah starts as root: the user of PHP. Default: the folder's owner, or www-data if that is root.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Follow symbolic links to files outside of the folder, too.
    #[arg(long)]
    pub follow_symlinks: bool,
    /// When to restart PHP: if a symbolic link in DIR changes (on-swap), also if a file of the application changes
    /// (on-change), or never.
    #[arg(long, value_name = "WHEN", default_value = "on-swap", value_parser = ["on-swap", "on-change", "never"])]
    pub reload: String,
    /// Sample requests that take longer than this, for howdah slow.
    #[arg(long, value_name = "SECONDS")]
    pub slow_log: Option<f64>,
    /// The address of the control API: unix:/path or 127.0.0.1:PORT. Default: a socket in a private folder, which
    /// howdah status --folder DIR finds.
    #[arg(long, value_name = "ADDR", value_parser = parse_address::<Address>)]
    pub control: Option<String>,
    /// Serve the dashboard, too: see howdah dashboard. Prints its URL. Default ADDR: any free port of 127.0.0.1.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    pub dashboard: Option<SocketAddr>,
    /// The form of log lines, PHP's among them: text or json.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = parse_log_format)]
    pub log_format: LogFormat,
    /// Print the configuration for howdah run, and exit.
    #[arg(long)]
    pub print_config: bool,
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
