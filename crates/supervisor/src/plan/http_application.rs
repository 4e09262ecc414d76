//! Plans an HTTP application: checks its options against this machine, and finds its folder and user.

use crate::os::cgroup::Group;
use crate::os::files::logs::Outputs;
use crate::os::identity::UserAccount;
use crate::os::processes::spawn::Environment;
use crate::plan::confinement;
use crate::plan::defaults::{Defaults, missing};
use crate::plan::php_application::Release;
use howdah_config::{HealthCheck, HttpAddress, HttpApplication, HttpCommand, Isolation};
use std::path::PathBuf;
use std::time::Duration;

/// Everything that a generation of an HTTP application needs, checked against the machine.
#[derive(Clone, Debug)]
pub struct HttpPlan {
    /// The application's name.
    pub name: String,
    /// The program and its arguments.
    pub command: HttpCommand,
    /// How its processes get their addresses.
    pub address: HttpAddress,
    /// How many processes it has.
    pub processes: u16,
    /// The user as which it runs.
    pub account: UserAccount,
    /// The group of the router, which connects to its sockets; `None`: howdah's own.
    pub router_group: Option<u32>,
    /// Its control group.
    pub cgroup: Option<Group>,
    /// Where its standard output and error go.
    pub outputs: Outputs,
    /// Its environment.
    pub environment: Environment,
    /// Where its processes start.
    pub working_directory: Option<PathBuf>,
    /// How its processes are checked.
    pub health_check: Option<HealthCheck>,
    /// How long a process may take to exit after SIGTERM.
    pub stop_timeout: Duration,
    /// It has no scripts and no links that howdah follows.
    pub release: Release,
}

/// Plans an application.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan(name: &str, application: &HttpApplication, defaults: &Defaults) -> Result<HttpPlan, String> {
    let at = |option: &str, problem: String| defaults.at(name, option, problem);
    if let Some(folder) = application.working_directory.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(at("/working_directory", missing(folder, "folder")));
    }
    // A link that is swapped later must not change the folder of a running generation.
    let working_directory = application.working_directory.as_ref().map(|folder| folder.canonicalize());
    let working_directory =
        working_directory.transpose().map_err(|error| at("/working_directory", error.to_string()))?;
    let settings = &application.process_settings;
    let account = defaults.account(settings.user.as_deref(), settings.group.as_deref());
    let account = account.map_err(|(option, problem)| at(option, problem))?;
    let isolation = Isolation { cgroup: application.cgroup.clone(), ..Isolation::default() };
    let confined = confinement::of(&isolation, &account).map_err(|error| at(&error.option, error.problem))?;
    Ok(HttpPlan {
        name: name.to_owned(),
        command: application.command.clone(),
        address: application.address,
        processes: application.processes,
        account,
        router_group: defaults.router_group,
        cgroup: confined.cgroup,
        outputs: Outputs::open(name, settings.stdout.as_deref(), settings.stderr.as_deref())?,
        environment: Environment { variables: settings.environment.clone(), inherits: settings.inherit_environment },
        working_directory,
        health_check: application.health_check.clone(),
        stop_timeout: application.stop_timeout,
        release: Release::default(),
    })
}
