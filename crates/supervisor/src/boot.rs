//! From what the command line asked for to a supervisor that holds its sockets. Nothing runs yet.
//!
//! All that the machine may refuse is found here, before a process is started: a folder, a user, a PHP, a port.

use crate::backoff::Backoff;
use crate::generation::{Generation, Plan};
use crate::identity::Account;
use crate::listen::{ChosenBy, Listeners};
use crate::shutdown::Stage;
use crate::signals::Signals;
use crate::start::Start;
use crate::supervise::Supervisor;
use crate::{logs, php, reap};
use howdah_channel::control::MESSAGE_DESCRIPTORS;
use howdah_channel::{MAX_THREADS, MAX_WORKERS};
use howdah_config::{Application, Configuration};
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Instant;

/// An application has as many workers as there are cores, but not fewer than this.
const LEAST_PROCESSES: u32 = 2;

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
    let threads = u16::try_from(threads).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS);
    check_descriptors(&configuration, threads)?;

    let applications = configuration.applications.iter();
    let plans = applications.map(|(name, application)| plan(name, application, &start, cores));
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    if let Some(log) = &configuration.access_log {
        logs::open(log)?;
    }
    let chosen_by = if start.recognised.is_some() { ChosenBy::Option } else { ChosenBy::Configuration };
    let listeners = Listeners::open(configuration.listeners.iter().map(|listener| &listener.address), chosen_by)?;

    let now = Instant::now();
    let system = |error: std::io::Error| format!("the supervisor cannot start: {error}");
    let generations = (1..).zip(plans).map(|(id, plan)| Generation::new(id, plan, threads, now));
    let generations = generations.collect::<Result<_, _>>().map_err(system)?;
    reap::adopt_orphans().map_err(system)?;
    Ok(Supervisor {
        access_log: configuration.access_log,
        threads,
        listeners,
        generations,
        signals: Signals::listen().map_err(system)?,
        router: None,
        router_backoff: Backoff::default(),
        router_due: None,
        stage: Stage::Booting,
        boot_failure: None,
        recent_deaths: Default::default(),
        start,
    })
}

fn plan(name: &str, application: &Application, start: &Start, cores: usize) -> Result<Plan, String> {
    // For `howdah serve` there is no configuration that the user knows of.
    let at = |option: &str, problem: String| match start.recognised {
        Some(_) => problem,
        None => format!("applications/{name}{option}: {problem}"),
    };
    for (target, settings) in application.targets() {
        let option = target.map_or("/root".to_owned(), |target| format!("/targets/{target}/root"));
        if !settings.root.is_dir() {
            return Err(at(&option, missing(&settings.root, "folder")));
        }
    }
    if let Some(folder) = application.working_directory.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(at("/working_directory", missing(folder, "folder")));
    }
    if let Some(file) = application.options.file.as_ref().filter(|file| !file.is_file()) {
        return Err(at("/options/file", missing(file, "file")));
    }
    let processes = application.processes.unwrap_or((cores as u32).max(LEAST_PROCESSES));
    if processes > u32::from(MAX_WORKERS) {
        return Err(at("/processes", format!("{processes} is more than howdah can run; write {MAX_WORKERS} at most")));
    }
    let account = match (&application.user, &application.group) {
        (Some(user), group) => Account::named(user, group.as_deref()).map_err(|problem| at("/user", problem))?,
        (None, Some(group)) => start.account.clone().in_group(group).map_err(|problem| at("/group", problem))?,
        (None, None) => start.account.clone(),
    };
    Ok(Plan {
        name: name.to_owned(),
        php: php::choose(application.php_version).map_err(|problem| at("/type", problem))?,
        account,
        options: application.options.clone(),
        environment: application.environment.clone(),
        working_directory: application.working_directory.clone(),
        processes,
    })
}

fn missing(path: &Path, kind: &str) -> String {
    if path.exists() {
        return format!("{path:?} is not a {kind}; correct the path");
    }
    format!("{path:?} does not exist; create the {kind} or correct the path")
}

/// All descriptors of a router travel in one message.
fn check_descriptors(configuration: &Configuration, threads: u16) -> Result<(), String> {
    let of_applications = configuration.applications.len() * (1 + usize::from(threads));
    if 2 + configuration.listeners.len() + of_applications <= MESSAGE_DESCRIPTORS {
        return Ok(());
    }
    Err(format!(
        "{} listeners and {} applications with {threads} threads are more than one howdah can hold; \
         write fewer \"settings/listen_threads\", or run several",
        configuration.listeners.len(),
        configuration.applications.len(),
    ))
}
