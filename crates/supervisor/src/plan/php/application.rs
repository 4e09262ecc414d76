//! Plans a PHP application: checks its options against this machine, and finds its folders, files, user and PHP.

use crate::os::files::logs::Outputs;
use crate::os::files::slow_log::SlowLogFile;
use crate::os::identity::UserAccount;
use crate::os::processes::spawn::Environment;
use crate::plan::confinement::{self, Confined, inside};
use crate::plan::defaults::{Defaults, Strictness, missing};
use crate::plan::php::executables::{self, Php};
use crate::plan::php::opcache;
use crate::plan::php::slow_log;
use crate::plan::readable;
use crate::plan::resolution;
use crate::plan::sent_folders;
use crate::policy::pool::PoolPolicy;
use howdah_channel::{MAX_CLAIMS, MAX_SLOTS, MAX_WORKERS};
use howdah_config::{Limits, MAX_CONCURRENCY, PhpApplication, PhpOptions, Scheme, WarmUp, WorkerMode};
use howdah_protocol::messages::generation_paths::{GenerationPaths, PinnedLink};
use howdah_protocol::messages::prototype::{RequiredPath, WorkerScript};
use howdah_protocol::messages::warm_up::WarmUpRequest;
use std::path::{Path, PathBuf};

/// Everything that a generation of a PHP application needs, checked against the machine.
#[derive(Clone, Debug)]
pub struct PhpPlan {
    /// The application's name.
    pub name: String,
    /// The PHP that runs it.
    pub php: Php,
    /// The user as which it runs.
    pub account: UserAccount,
    /// Its php.ini.
    pub options: PhpOptions,
    /// Its isolation.
    pub confined: Confined,
    /// Where its standard output and error go.
    pub outputs: Outputs,
    /// Its environment.
    pub environment: Environment,
    /// The paths that its user must be able to read.
    pub needs: Vec<RequiredPath>,
    /// Scripts that were written since the last generation: PHP must be able to compile them.
    pub written: Vec<PathBuf>,
    /// Its pools of workers. At least one. With several worker scripts the first one is for classic mode.
    pub pools: Vec<PoolPlan>,
    /// Where its workers start.
    pub working_directory: Option<PathBuf>,
    /// The limits of its requests.
    pub limits: Limits,
    /// Its release, and the requests of its warm-up.
    pub release: Release,
    /// Its slow log, if it has one.
    pub slow_log: Option<SlowLogFile>,
}

/// Workers of an application that run the same script.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// The worker script; `None` is classic mode.
    pub script: Option<WorkerScript>,
    /// How many workers there are.
    pub policy: PoolPolicy,
}

// === impl PoolPlan ===

impl PoolPlan {
    /// The most requests that one of the workers runs at a time.
    pub fn claims(&self) -> u16 {
        self.script.as_ref().and_then(|script| script.concurrency).unwrap_or(1)
    }
}

/// A release of an application.
#[derive(Clone, Debug, Default)]
pub struct Release {
    /// Where its scripts are.
    pub paths: GenerationPaths,
    /// Each path of the configuration, and where it led.
    pub led_to: Vec<PinnedLink>,
    /// The requests that it must answer before it is used.
    pub warm_up: Vec<WarmUpRequest>,
}

/// Plans an application.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan(
    name: &str,
    application: &PhpApplication,
    defaults: &Defaults,
    strictness: Strictness,
) -> Result<PhpPlan, String> {
    let at = |option: &str, problem: String| defaults.at(name, option, problem);
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
    if let Some((option, problem)) = sent_folders::problem(&application.send_file) {
        return Err(at(&option, problem));
    }
    let resolution = resolution::resolve(application).map_err(|error| at(&error.option, error.problem))?;
    let of_scripts = application.worker_scripts.iter().enumerate();
    let of_scripts = of_scripts.filter_map(|(n, script)| Some((format!("/worker/{n}/processes"), script.processes?)));
    for (option, processes) in std::iter::once(("/processes".to_owned(), application.processes)).chain(of_scripts) {
        if let Some(processes) = processes.max().filter(|max| *max > u32::from(MAX_WORKERS)) {
            let problem = format!("{processes} is more than howdah can run; write at most {MAX_WORKERS}");
            return Err(at(&option, problem));
        }
    }
    let concurrency = application.worker.as_ref().and_then(|worker| worker.concurrency);
    let most_workers =
        most_workers(application.processes.max(), concurrency).map_err(|problem| at("/worker/concurrency", problem))?;
    let settings = &application.process_settings;
    let account = defaults.account(settings.user.as_deref(), settings.group.as_deref());
    let account = account.map_err(|(option, problem)| at(option, problem))?;
    let confined =
        confinement::of(&application.isolation, &account).map_err(|error| at(&error.option, error.problem))?;
    let cores = confined.machine().cores();
    let slow_log = application.slow_log.as_ref();
    let slow_log = slow_log.map(|wanted| slow_log::of(name, wanted, defaults.state_folder.as_deref()));
    let mut slow_log = slow_log.transpose().map_err(|problem| at("/slow_log", problem))?;
    match slow_log.as_mut().map(|log| log.open().map_err(|problem| at("/slow_log", problem))) {
        Some(Err(problem)) if strictness == Strictness::Strict => return Err(problem),
        Some(Err(problem)) => tracing::error!("{problem}; slow requests are not logged"),
        Some(Ok(())) | None => {}
    }
    let outputs = Outputs::open(name, settings.stdout.as_deref(), settings.stderr.as_deref())?;
    Ok(PhpPlan {
        name: name.to_owned(),
        php: executables::choose(application.php_version).map_err(|problem| at("/type", problem))?,
        account,
        confined,
        outputs,
        options: opcache::for_application(resolution.settings(&application.options), application),
        needs: readable::needs(application, defaults.has_configuration.then_some(name)),
        written: Vec::new(),
        pools: pools(application, &resolution.paths, cores, most_workers),
        environment: Environment { variables: settings.environment.clone(), inherits: settings.inherit_environment },
        working_directory: resolution.working_directory,
        release: Release {
            paths: resolution.paths,
            led_to: resolution.led_to,
            warm_up: application.warm_up.iter().map(request).collect(),
        },
        limits: application.limits,
        slow_log,
    })
}

// A valid configuration has a channel.
const _: () = assert!(MAX_CONCURRENCY <= MAX_CLAIMS);

/// The most workers that run `concurrency` requests at a time, each of which takes a slot of the channel.
fn most_workers(processes: Option<u32>, concurrency: Option<u16>) -> Result<usize, String> {
    let Some(concurrency) = concurrency.map(u32::from) else { return Ok(usize::from(MAX_WORKERS)) };
    let most = u32::from(MAX_SLOTS) / concurrency;
    match processes.filter(|processes| *processes > most) {
        Some(processes) => Err(format!(
            "{processes} processes with {concurrency} requests each are more requests than an application can run, which is \
             {MAX_SLOTS}; write at most {}",
            u32::from(MAX_SLOTS) / processes
        )),
        None => Ok(most as usize),
    }
}

/// The pools of an application, on a machine with this number of processors.
fn pools(application: &PhpApplication, paths: &GenerationPaths, cores: f64, most_workers: usize) -> Vec<PoolPlan> {
    let policy = |processes| PoolPolicy::new(processes, cores).at_most(most_workers);
    let script = application.worker.as_ref().and_then(|mode| worker_script(mode, paths));
    let root = paths.target(None).map(|target| &target.root);
    let of_scripts = application.worker_scripts.iter().zip(&paths.worker_scripts).filter_map(|(matched, found)| {
        let script = WorkerScript {
            root: root?.clone(),
            name: found.script.name.clone(),
            filename: found.script.filename.clone(),
            preboot: false,
            concurrency: None,
        };
        let processes = matched.processes.unwrap_or(application.processes);
        Some(PoolPlan { script: Some(script), policy: policy(processes) })
    });
    std::iter::once(PoolPlan { script, policy: policy(application.processes) }).chain(of_scripts).collect()
}

/// The script of an application in worker mode: the script of its only target.
fn worker_script(mode: &WorkerMode, paths: &GenerationPaths) -> Option<WorkerScript> {
    let target = paths.target(None)?;
    let script = target.script.as_ref()?;
    Some(WorkerScript {
        root: target.root.clone(),
        name: script.name.clone(),
        filename: script.filename.clone(),
        preboot: mode.preboot,
        concurrency: mode.concurrency,
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

fn missing_in(rootfs: Option<&Path>, path: &Path, kind: &str) -> String {
    match rootfs {
        Some(rootfs) => {
            format!("there is no {kind} {path:?} below the rootfs {rootfs:?}; paths of this application begin there")
        }
        None => missing(path, kind),
    }
}
