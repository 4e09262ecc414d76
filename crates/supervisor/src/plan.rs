//! What an application asks for, checked against this machine: folders, files, users, a PHP.

use crate::generation::Plan;
use crate::identity::Account;
use crate::php;
use crate::pool::Pool;
use crate::start::Start;
use howdah_channel::MAX_WORKERS;
use howdah_config::Application;
use std::path::Path;

/// An application has as many workers as there are cores, but not fewer than this.
const LEAST_PROCESSES: u32 = 2;

/// What an application needs.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan(name: &str, application: &Application, start: &Start, cores: usize) -> Result<Plan, String> {
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
    let by_default = (cores as u32).max(LEAST_PROCESSES);
    let processes = application.processes.max().unwrap_or(by_default);
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
        pool: Pool::new(application.processes, by_default),
        limits: application.limits,
    })
}

fn missing(path: &Path, kind: &str) -> String {
    if path.exists() {
        return format!("{path:?} is not a {kind}; correct the path");
    }
    format!("{path:?} does not exist; create the {kind} or correct the path")
}
