//! A stack from its start to its stop.
//!
//! A stack that dies, does not become ready, or gives a wrong answer is a [`StartFailure`] with the end of its logs.

use super::detect::Detection;
use super::library::Definition;
use super::manifest::{ProcessTemplate, Ready};
use super::process::{self, Launch};
use super::template::{Renderer, free_port};
use super::user_files::{beside, last_lines, open_to_user};
use crate::load::connection::Endpoint;
use crate::load::single;
use crate::load::target::{Checks, Target};
use crate::results::{CommandUsed, StackFile};
use minijinja::context;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A stack as lab.json wants it.
#[derive(Clone, Debug)]
pub struct StackSpec {
    /// Its name in the lab.
    pub name: String,
    /// Its manifest and templates.
    pub definition: Arc<Definition>,
    /// All settings of its manifest.
    pub settings: BTreeMap<String, String>,
    /// The number of its PHP processes.
    pub workers: u32,
    /// The application's environment for it.
    pub environment: BTreeMap<String, String>,
    /// Its script, as lab.json names it, and its path.
    pub script: Option<(String, PathBuf)>,
}

/// The same for all stacks.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The document root.
    pub root: PathBuf,
    /// The script below it for all other URLs.
    pub front_controller: Option<String>,
    /// PHP's version: `8.2`.
    pub php: String,
    /// The folder of php.ini's further files.
    pub scan_dir: Option<PathBuf>,
    /// PHP's user, if the lab runs as root.
    pub user: Option<String>,
    /// `net.core.somaxconn`
    pub somaxconn: u32,
    /// The limit of open files.
    pub open_files: u64,
    /// The lab's folder in /dev/shm.
    pub shm: PathBuf,
    /// The cores of the stacks; empty: all.
    pub cores: Vec<u32>,
}

/// A stack that runs.
#[derive(Debug)]
pub struct Running {
    /// Its address.
    pub endpoint: Endpoint,
    /// The configuration files that were written.
    pub files: Vec<StackFile>,
    /// The commands that were run.
    pub commands: Vec<CommandUsed>,
    logs: Vec<PathBuf>,
    children: Vec<Child>,
}

/// Why a stack does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// The reason, in a sentence.
    pub reason: String,
    /// The last lines of its logs.
    pub log: Vec<String>,
}

/// The time that a process has to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
const LOG_LINES: usize = 20;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// === impl Running ===

impl Running {
    /// Starts a stack in this folder, which is made. `php_ini` is the path of its php.ini.
    ///
    /// # Errors
    /// It does not run; all that was started is stopped.
    pub fn start(
        spec: &StackSpec,
        conditions: &Conditions,
        detection: &Detection,
        folder: &Path,
        php_ini: &Path,
        interrupted: &AtomicBool,
    ) -> Result<Running, StartFailure> {
        let port = free_port().map_err(StartFailure::of)?;
        let renderer = renderer(spec, conditions, detection, folder, php_ini, port);
        let manifest = &spec.definition.manifest;
        let mut running = Running {
            endpoint: Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            files: Vec::new(),
            commands: Vec::new(),
            logs: manifest.logs.iter().map(|log| folder.join(log)).collect(),
            children: Vec::new(),
        };
        let started = running.write_files(spec, conditions, &renderer, folder).and_then(|()| {
            for template in &manifest.processes {
                running.start_processes(template, spec, conditions, &renderer, folder, interrupted)?;
            }
            running.configure(spec, &renderer, interrupted)
        });
        match started {
            Ok(()) => Ok(running),
            Err(reason) => Err(running.fail(reason)),
        }
    }

    /// The processes that were started.
    pub fn roots(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// The reason if a process has ended by itself.
    pub fn death(&mut self) -> Option<String> {
        let names: Vec<_> =
            self.commands.iter().map(|used| used.command.first().cloned().unwrap_or_default()).collect();
        let mut children = self.children.iter_mut().zip(names);
        children.find_map(|(child, name)| {
            let status = child.try_wait().ok().flatten()?;
            Some(format!("{name} ended: {status}"))
        })
    }

    /// The last lines of the logs.
    pub fn log(&self) -> Vec<String> {
        self.logs.iter().flat_map(|log| last_lines(log, LOG_LINES)).collect()
    }

    /// Stops it, and returns its failure.
    pub fn fail(mut self, reason: String) -> StartFailure {
        self.stop_all();
        StartFailure { reason, log: self.log() }
    }

    /// Stops it.
    pub fn stop(mut self) {
        self.stop_all();
    }

    fn stop_all(&mut self) {
        // The front first: it must not report that its backend is gone.
        while let Some(mut child) = self.children.pop() {
            process::stop(&mut child);
        }
    }

    fn write_files(
        &mut self,
        spec: &StackSpec,
        conditions: &Conditions,
        renderer: &Renderer,
        folder: &Path,
    ) -> Result<(), String> {
        let describe = |path: &Path, error: std::io::Error| crate::reason::at(path, &error);
        let manifest = &spec.definition.manifest;
        let all = [&manifest.private_folders, &manifest.folders].into_iter().flatten().map(|name| folder.join(name));
        for path in [folder.to_owned()].into_iter().chain(all) {
            fs::create_dir_all(&path).map_err(|error| describe(&path, error))?;
        }
        for file in &manifest.files {
            let place = format!("{}/{}", spec.definition.name, file.template);
            let template =
                spec.definition.templates.get(&file.template).ok_or_else(|| format!("{place} is missing"))?;
            let content = renderer.render(template).map_err(|error| format!("{place}: {error}"))?;
            let path = folder.join(&file.path);
            crate::result_file::write(&path, &content)?;
            self.files.push(StackFile { path: file.path.clone(), content, is_configuration: file.configuration });
        }
        // A process of root opens its files by their names: in a folder of the user, a link in their place would lead it anywhere. The lab
        // itself makes nothing more in these folders.
        let is_of_user = manifest.processes.iter().all(|process| process.as_user);
        let mut open: Vec<_> = manifest.folders.iter().map(|name| folder.join(name)).collect();
        open.extend(is_of_user.then(|| folder.to_owned()));
        // The inner ones first.
        open.sort_by_key(|path| Reverse(path.components().count()));
        for path in open {
            open_to_user(&path, conditions.user.as_deref()).map_err(|error| describe(&path, error))?;
        }
        Ok(())
    }

    fn start_processes(
        &mut self,
        template: &ProcessTemplate,
        spec: &StackSpec,
        conditions: &Conditions,
        renderer: &Renderer,
        folder: &Path,
        interrupted: &AtomicBool,
    ) -> Result<(), String> {
        let command = renderer.words(&template.command)?;
        let mut environment = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        if let Some(scan_dir) = &conditions.scan_dir {
            environment.insert("PHP_INI_SCAN_DIR".to_owned(), scan_dir.display().to_string());
        }
        environment.extend(spec.environment.clone());
        for (name, value) in &template.environment {
            let value = renderer.render(value)?;
            if !value.is_empty() {
                environment.insert(name.clone(), value);
            }
        }
        let count: u32 = match renderer.render(&template.count)?.trim() {
            "" => 1,
            text => text.parse().map_err(|_| format!("{text:?} is not a number of processes"))?,
        };
        let log = beside(folder, &format!("{}-output.log", template.name));
        self.logs.push(log.clone());
        for _ in 0..count {
            let user = conditions.user.as_deref().filter(|_| template.as_user);
            let cores = &conditions.cores;
            let launch = Launch { command: &command, environment: &environment, folder, log: &log, user, cores };
            self.children.push(process::start(&launch)?);
            let purpose = "start".to_owned();
            self.commands.push(CommandUsed { purpose, command: command.clone(), environment: environment.clone() });
        }
        self.wait_until(&template.ready, renderer, interrupted)
    }

    /// Sends the requests of the manifest to the control interface.
    fn configure(&mut self, spec: &StackSpec, renderer: &Renderer, interrupted: &AtomicBool) -> Result<(), String> {
        for request in &spec.definition.manifest.requests {
            let socket = PathBuf::from(renderer.render(&request.socket)?);
            let body = self.files.iter().find(|file| file.path == request.body_file);
            let body = body.ok_or_else(|| format!("the manifest has no file {}", request.body_file))?.content.clone();
            let any = Checks { statuses: (100..600).collect(), ..Checks::default() };
            let target = Target {
                method: request.method.clone(),
                body: body.into_bytes(),
                checks: any,
                ..Target::get(&request.path)
            };
            let answer = single::request(&Endpoint::Unix(socket), "localhost", &target, START_TIMEOUT)
                .map_err(|reason| format!("{} {}: {reason}", request.method, request.path))?;
            if !(200..300).contains(&answer.status) {
                let body = String::from_utf8_lossy(&answer.body).trim().to_owned();
                return Err(format!("{} {}: status {}: {body}", request.method, request.path, answer.status));
            }
        }
        self.wait_until(&spec.definition.manifest.ready, renderer, interrupted)
    }

    fn wait_until(&mut self, ready: &Ready, renderer: &Renderer, interrupted: &AtomicBool) -> Result<(), String> {
        let (port, socket) = (renderer.render(&ready.port)?, renderer.render(&ready.socket)?);
        let deadline = Instant::now() + START_TIMEOUT;
        let port: Option<u16> = match port.trim() {
            "" => None,
            text => Some(text.parse().map_err(|_| format!("{text:?} is not a port"))?),
        };
        loop {
            let has_port = port.is_none_or(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
            if has_port && (socket.is_empty() || UnixStream::connect(&socket).is_ok()) {
                return Ok(());
            }
            if let Some(death) = self.death() {
                return Err(format!("{death} before it was ready"));
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            if Instant::now() > deadline {
                let what = port.map_or(socket, |port| format!("port {port}"));
                return Err(format!("{what} accepted no connection within {} s", START_TIMEOUT.as_secs()));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_all();
    }
}

// === impl StartFailure ===

impl StartFailure {
    /// A failure before any process.
    pub fn of(reason: String) -> StartFailure {
        StartFailure { reason, log: Vec::new() }
    }
}

/// The label of a stack with these settings.
///
/// # Errors
/// A mistake in the manifest.
pub fn label(definition: &Definition, settings: &BTreeMap<String, String>) -> Result<String, String> {
    Renderer::new(context! { settings }).render(&definition.manifest.label)
}

/// How a stack chooses the number of its workers itself; empty: it does not.
///
/// # Errors
/// A mistake in the manifest.
pub fn worker_policy(definition: &Definition, settings: &BTreeMap<String, String>) -> Result<String, String> {
    Renderer::new(context! { settings }).render(&definition.manifest.worker_policy)
}

fn renderer(
    spec: &StackSpec,
    conditions: &Conditions,
    detection: &Detection,
    folder: &Path,
    php_ini: &Path,
    port: u16,
) -> Renderer {
    let text = |path: &Path| path.display().to_string();
    let (script, script_path) = match &spec.script {
        Some((name, path)) => (name.clone(), text(path)),
        None => Default::default(),
    };
    let user = conditions.user.clone().unwrap_or_default();
    Renderer::new(context! {
        folder => text(folder),
        shm => text(&conditions.shm),
        port,
        root => text(&conditions.root),
        front_controller => conditions.front_controller.clone().unwrap_or_default(),
        script,
        script_path,
        workers => spec.workers,
        php => conditions.php,
        php_ini => text(php_ini),
        scan_dir => conditions.scan_dir.as_deref().map(text).unwrap_or_default(),
        group => user,
        user,
        environment => spec.environment,
        programs => detection.programs,
        variables => detection.variables,
        settings => spec.settings,
        somaxconn => conditions.somaxconn,
        open_files => conditions.open_files,
    })
}
