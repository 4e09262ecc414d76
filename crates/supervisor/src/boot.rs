//! From what the command line asked for to a supervisor that runs its first configuration.

use crate::change::{Current, Origin};
use crate::listen::Listeners;
use crate::reap;
use crate::shutdown::Stage;
use crate::signals::Signals;
use crate::start::Start;
use crate::supervise::Supervisor;
use howdah_channel::MAX_THREADS;
use howdah_config::Configuration;
use std::thread::available_parallelism;
use std::time::Instant;

/// Prepares everything.
///
/// # Errors
/// One sentence for the person at the terminal.
pub fn boot(start: Start) -> Result<Supervisor, String> {
    let configuration = Configuration::parse(&start.configuration).map_err(|error| error.to_string())?;
    if configuration.listeners.is_empty() {
        return Err("listeners: there is none; add one, as in \"*:8080\": {\"pass\": \"routes\"}".to_owned());
    }
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = configuration.settings.listen_threads.map_or(cores, |threads| threads as usize);
    let system = |error: std::io::Error| format!("the supervisor cannot start: {error}");
    reap::adopt_orphans().map_err(system)?;
    let mut supervisor = Supervisor {
        cores,
        threads: u16::try_from(threads).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS),
        listeners: Listeners::default(),
        generations: Vec::new(),
        current: Current::default(),
        change: None,
        start_failure: None,
        next_generation: 1,
        signals: Signals::listen().map_err(system)?,
        router: None,
        router_backoff: Default::default(),
        router_due: None,
        stage: Stage::Booting,
        recent_deaths: Default::default(),
        start: start.clone(),
    };
    supervisor.begin_change(start.configuration, configuration, Origin::Start, None, Instant::now())?;
    Ok(supervisor)
}
