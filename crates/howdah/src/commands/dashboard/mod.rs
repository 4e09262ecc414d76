//! `howdah dashboard`: a page about a running howdah, for a browser on this machine.
//!
//! It is a client of the control socket, like all commands: no browser ever talks to the supervisor.
//!
//! - [`access`]: which requests are answered
//! - [`server`]: HTTP, the page, the list of requests
//! - [`calls`]: what each request does with the control API
//! - [`history`]: the last hours
//! - [`companion`]: the dashboard of a `howdah serve`
//! - [`answer`]: an answer, with its security headers
//!
//! Fails if it cannot listen, or if the address is not of this machine and that is not allowed. A howdah that does not
//! run is no failure: the page shows it, and recovers.

mod access;
mod answer;
mod calls;
pub mod companion;
mod history;
mod server;

use crate::control_client::{ApiOptions, ControlApi};
use crate::terminal::output;
use access::sessions::Sessions;
use calls::howdah::Howdah;
use calls::now::Now;
use clap::Args;
use history::place;
use history::poller::{Poller, seconds};
use history::store::{MAX_BYTES, Store};
use server::listening;
use server::service::Service;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The options of `howdah dashboard`.
#[derive(Debug, Args)]
pub struct DashboardOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// The address of the page. Port 0 is any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8088")]
    listen: SocketAddr,
    /// Allow an address in --listen that other machines reach. The connection is not encrypted: prefer a tunnel
    /// (ssh -L 8088:127.0.0.1:8088 HOST).
    #[arg(long)]
    allow_remote: bool,
    /// A name in the browser's URL beside localhost and IP addresses, for a proxy with TLS. May be given several times.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Change nothing: no configuration, no restart.
    #[arg(long)]
    read_only: bool,
    /// The folder of the history. Default: a folder for each howdah in /var/lib/howdah/dashboard for root, else in
    /// ~/.local/state/howdah/dashboard.
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,
    /// The process id of the `howdah serve` that has started this dashboard.
    #[arg(long, hide = true)]
    companion_of: Option<i32>,
}

// === impl DashboardOptions ===

impl DashboardOptions {
    /// Serves the page until a signal.
    ///
    /// # Errors
    /// It cannot listen, or the options name no howdah.
    pub fn run(self) -> Result<(), String> {
        listening::check_address(self.listen, self.allow_remote, "--listen")?;
        let is_remote = !self.listen.ip().is_loopback();
        let howdah = Howdah::new(ControlApi::new(&self.api)?);
        if let Some(parent) = self.companion_of {
            companion::follow(parent, &howdah.address())?;
        }
        // First: what cannot start leaves no folder.
        let cannot_listen = |error: std::io::Error| format!("cannot listen on {}: {error}", self.listen);
        let listener = listening::listen(self.listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let folder = self.history.unwrap_or_else(|| place::of_howdah(&howdah.address()));
        let folder = std::path::absolute(&folder).map_err(|reason| format!("--history: {reason}"));
        let history = Store::open(folder, MAX_BYTES, seconds());
        if let Err(reason) = history.place() {
            tracing::warn!("the history is in memory only, and lost at the end: {reason}");
        }
        let service = Arc::new(Service {
            howdah,
            sessions: Sessions::new()?,
            allowed_hosts: self.allow_host,
            read_only: self.read_only,
            now: Now::default(),
            history: Mutex::new(history),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| format!("cannot start the dashboard: {error}"))?.block_on(async {
            let listener = TcpListener::from_std(listener).map_err(cannot_listen)?;
            let signals = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
            let (mut interrupt, mut terminate) = (signals(SignalKind::interrupt())?, signals(SignalKind::terminate())?);
            if is_remote {
                tracing::warn!(
                    "other machines reach the dashboard on {address}, and its connections are not encrypted"
                );
            }
            // The token is a fragment: a browser sends it to no server, and no log has it.
            output::print(&format!("dashboard http://{address}/#{}\n", service.sessions.token()));
            let poller = Poller::new(&service.howdah, &service.history);
            tokio::select! {
                () = listening::serve(listener, Arc::clone(&service)) => {}
                () = poller.run() => {}
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(())
        })
    }
}
