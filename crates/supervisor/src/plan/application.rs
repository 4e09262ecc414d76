//! What an application asks for, checked against this machine: folders, files, users, a PHP.

use crate::boot::start::Start;
use crate::generation::{Deploy, Plan};
use crate::os::identity::Account;
use crate::os::logs::Outputs;
use crate::os::slow_log::SlowLog;
use crate::plan::confinement::{self, inside};
use crate::plan::php;
use crate::plan::readable;
use crate::plan::resolution;
use crate::policy::pool::Policy;
use howdah_channel::MAX_WORKERS;
use howdah_config::{Application, Scheme, Settings, WarmUp};
use howdah_protocol::warm_up::WarmUpRequest;
use std::path::Path;

/// What becomes of a file that an application can do without, and that cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Somebody has just asked for it: an error.
    AsAsked,
    /// It was right once: it is served without, and the start of its prototype says so.
    AsStored,
}

/// What an application needs.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan(name: &str, application: &Application, start: &Start, strictness: Strictness) -> Result<Plan, String> {
    // For `howdah serve` there is no configuration that the user knows of.
    let at = |option: &str, problem: String| match start.recognised {
        Some(_) => problem,
        None => format!("applications/{name}{option}: {problem}"),
    };
    let rootfs = application.isolation.rootfs.as_deref();
    if let Some(rootfs) = rootfs.filter(|rootfs| !rootfs.is_dir()) {
        return Err(at("/isolation/rootfs", missing(rootfs, "folder")));
    }
    for (target, settings) in application.targets() {
        let option = target.map_or("/root".to_owned(), |target| format!("/targets/{target}/root"));
        if !inside(rootfs, &settings.root).is_some_and(|found| found.is_dir()) {
            return Err(at(&option, missing_in(rootfs, &settings.root, "folder")));
        }
    }
    if let Some(folder) = &application.working_directory
        && !inside(rootfs, folder).is_some_and(|found| found.is_dir())
    {
        return Err(at("/working_directory", missing_in(rootfs, folder, "folder")));
    }
    if let Some(file) = application.options.file.as_ref().filter(|file| !file.is_file()) {
        return Err(at("/options/file", missing(file, "file")));
    }
    let resolution = resolution::resolve(application).map_err(|(option, problem)| at(&option, problem))?;
    if let Some(processes) = application.processes.max().filter(|max| *max > u32::from(MAX_WORKERS)) {
        return Err(at("/processes", format!("{processes} is more than howdah can run; write {MAX_WORKERS} at most")));
    }
    let account = match (&application.user, &application.group) {
        (Some(user), group) => Account::named(user, group.as_deref()).map_err(|problem| at("/user", problem))?,
        (None, Some(group)) => start.account.clone().in_group(group).map_err(|problem| at("/group", problem))?,
        (None, None) => start.account.clone(),
    };
    let confined = confinement::of(&application.isolation, &account)
        .map_err(|(option, problem)| at(&format!("/isolation/{option}"), problem))?;
    let cores = confined.machine().cores();
    let mut slow_log =
        SlowLog::of(name, application.slow_log.as_ref(), start).map_err(|problem| at("/slow_log", problem))?;
    match slow_log.as_mut().map(|log| log.open().map_err(|problem| at("/slow_log", problem))) {
        Some(Err(problem)) if strictness == Strictness::AsAsked => return Err(problem),
        Some(Err(problem)) => tracing::error!("{problem}; slow requests are not written"),
        Some(Ok(())) | None => {}
    }
    let outputs = Outputs::open(name, application.stdout.as_deref(), application.stderr.as_deref())?;
    Ok(Plan {
        name: name.to_owned(),
        php: php::choose(application.php_version).map_err(|problem| at("/type", problem))?,
        account,
        confined,
        outputs,
        options: resolution.settings(&application.options),
        needs: readable::needs(application, start.recognised.is_none().then_some(name)),
        environment: application.environment.clone(),
        working_directory: resolution.working_directory,
        deploy: Deploy {
            paths: resolution.paths,
            led_to: resolution.led_to,
            warm_up: application.warm_up.iter().map(request).collect(),
        },
        pool: Policy::new(application.processes, cores),
        limits: application.limits,
        slow_log,
    })
}

fn request(warm_up: &WarmUp) -> WarmUpRequest {
    WarmUpRequest {
        target: warm_up.target.clone(),
        uri: warm_up.uri.clone(),
        host: warm_up.host.clone(),
        https: warm_up.scheme == Scheme::Https,
        headers: warm_up.headers.clone(),
    }
}

/// What the router needs of this machine.
///
/// # Errors
/// With the path of the option and what to do.
pub fn check_settings(settings: &Settings) -> Result<(), String> {
    match settings.http.body_temp_path.as_deref().filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(format!("settings/http/body_temp_path: {}", missing(folder, "folder"))),
        None => Ok(()),
    }
}

fn missing_in(rootfs: Option<&Path>, path: &Path, kind: &str) -> String {
    match rootfs {
        Some(rootfs) => {
            format!("there is no {kind} {path:?} below the rootfs {rootfs:?}; paths of this application begin there")
        }
        None => missing(path, kind),
    }
}

fn missing(path: &Path, kind: &str) -> String {
    if path.exists() {
        return format!("{path:?} is not a {kind}; correct the path");
    }
    format!("{path:?} does not exist; create the {kind} or correct the path")
}
