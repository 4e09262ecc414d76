//! Plans an application that is a program: checks its options against this machine, and finds its folder and user.

use crate::os::cgroup::Group;
use crate::os::files::logs::Outputs;
use crate::os::identity::UserAccount;
use crate::os::processes::spawn::Environment;
use crate::plan::confinement::{self, Confined};
use crate::plan::defaults::{Defaults, missing};
use crate::plan::php::application::Release;
use crate::plan::sent_folders;
use howdah_config::{
    HealthCheck, HttpAddress, HttpApplication, Isolation, Limits, Program, ProgramCommand, Relay, RoadRunnerApplication,
};
use std::path::PathBuf;
use std::time::Duration;

/// Everything that a generation of such an application needs, checked against the machine.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// The application's name.
    pub name: String,
    /// The program and its arguments.
    pub command: ProgramCommand,
    /// How many processes it has.
    pub processes: u16,
    /// The user as which it runs.
    pub account: UserAccount,
    /// Its control group.
    pub cgroup: Option<Group>,
    /// Where its standard output and error go.
    pub outputs: Outputs,
    /// Its environment.
    pub environment: Environment,
    /// Where its processes start.
    pub working_directory: Option<PathBuf>,
    /// How long a process may take to exit after it was asked to.
    pub stop_timeout: Duration,
    /// It has no scripts and no links that howdah follows.
    pub release: Release,
    /// How its processes get requests.
    pub interface: InterfacePlan,
}

/// How the processes of a program get requests.
#[derive(Clone, Debug)]
pub enum InterfacePlan {
    /// They are HTTP servers.
    Http {
        /// How they get their addresses.
        address: HttpAddress,
        /// The group of the router, which connects to their sockets; `None`: howdah's own.
        router_group: Option<u32>,
        /// How they are checked.
        health_check: Option<HealthCheck>,
        /// How long processes of an old generation may go on with their responses.
        drain_timeout: Option<Duration>,
    },
    /// They are workers of RoadRunner.
    RoadRunner {
        /// How long a request may take or wait, and when a process is replaced.
        limits: Limits,
        /// Their relay, which carries requests.
        relay: Relay,
        /// The age at which a process is replaced.
        ttl: Option<Duration>,
        /// The time without requests after which a process is replaced.
        idle_ttl: Option<Duration>,
        /// The user and the group of the router, which writes uploaded files; `None`: howdah's own.
        router: Option<(u32, u32)>,
    },
}

// === impl ProgramPlan ===

impl ProgramPlan {
    /// The limits of the requests of RoadRunner's workers.
    pub fn limits(&self) -> Option<&Limits> {
        match &self.interface {
            InterfacePlan::RoadRunner { limits, .. } => Some(limits),
            InterfacePlan::Http { .. } => None,
        }
    }

    /// How long processes of an old generation may go on with their responses; `None`: until the last one ends.
    pub fn drain_timeout(&self) -> Option<Duration> {
        match &self.interface {
            InterfacePlan::Http { drain_timeout, .. } => *drain_timeout,
            InterfacePlan::RoadRunner { .. } => None,
        }
    }

    /// The age at which a worker of RoadRunner is replaced.
    pub fn ttl(&self) -> Option<Duration> {
        match self.interface {
            InterfacePlan::RoadRunner { ttl, .. } => ttl,
            InterfacePlan::Http { .. } => None,
        }
    }

    /// The time without requests after which a worker of RoadRunner is replaced.
    pub fn idle_ttl(&self) -> Option<Duration> {
        match self.interface {
            InterfacePlan::RoadRunner { idle_ttl, .. } => idle_ttl,
            InterfacePlan::Http { .. } => None,
        }
    }

    /// The check of HTTP servers.
    pub fn health_check(&self) -> Option<&HealthCheck> {
        match &self.interface {
            InterfacePlan::Http { health_check, .. } => health_check.as_ref(),
            InterfacePlan::RoadRunner { .. } => None,
        }
    }
}

/// Plans an HTTP application.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan_http(name: &str, application: &HttpApplication, defaults: &Defaults) -> Result<ProgramPlan, String> {
    let interface = InterfacePlan::Http {
        address: application.address,
        router_group: defaults.router.map(|(_, group)| group),
        health_check: application.health_check.clone(),
        drain_timeout: application.drain_timeout,
    };
    plan(name, &application.program, |_| 1, interface, defaults)
}

/// Plans a RoadRunner application.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan_roadrunner(
    name: &str,
    application: &RoadRunnerApplication,
    defaults: &Defaults,
) -> Result<ProgramPlan, String> {
    let interface = InterfacePlan::RoadRunner {
        limits: application.limits,
        relay: application.relay,
        ttl: application.ttl,
        idle_ttl: application.idle_ttl,
        router: defaults.router,
    };
    let one_for_each_processor = |confined: &Confined| confined.machine().cores().ceil().clamp(1.0, 256.0) as u16;
    plan(name, &application.program, one_for_each_processor, interface, defaults)
}

fn plan(
    name: &str,
    program: &Program,
    default_processes: impl FnOnce(&Confined) -> u16,
    interface: InterfacePlan,
    defaults: &Defaults,
) -> Result<ProgramPlan, String> {
    let at = |option: &str, problem: String| defaults.at(name, option, problem);
    if let Some(folder) = program.working_directory.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(at("/working_directory", missing(folder, "folder")));
    }
    if let Some((option, problem)) = sent_folders::problem(&program.send_file) {
        return Err(at(&option, problem));
    }
    // A link that is swapped later must not change the folder of a running generation.
    let working_directory = program.working_directory.as_ref().map(|folder| folder.canonicalize());
    let working_directory =
        working_directory.transpose().map_err(|error| at("/working_directory", error.to_string()))?;
    let settings = &program.process_settings;
    let account = defaults.account(settings.user.as_deref(), settings.group.as_deref());
    let account = account.map_err(|(option, problem)| at(option, problem))?;
    let isolation = Isolation { cgroup: program.cgroup.clone(), ..Isolation::default() };
    let confined = confinement::of(&isolation, &account).map_err(|error| at(&error.option, error.problem))?;
    Ok(ProgramPlan {
        name: name.to_owned(),
        command: program.command.clone(),
        processes: program.processes.unwrap_or_else(|| default_processes(&confined)),
        account,
        cgroup: confined.cgroup,
        outputs: Outputs::open(name, settings.stdout.as_deref(), settings.stderr.as_deref())?,
        environment: Environment { variables: settings.environment.clone(), inherits: settings.inherit_environment },
        working_directory,
        stop_timeout: program.stop_timeout,
        release: Release::default(),
        interface,
    })
}
