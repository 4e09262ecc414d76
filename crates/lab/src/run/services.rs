//! Helpers of the application, such as Redis or a database: they run during the whole lab, on ports of their own.

use crate::plan::Service;
use crate::stacks::detect::find;
use crate::stacks::process::{self, Launch};
use crate::stacks::template::{Renderer, free_port};
use crate::stacks::user_files::{beside, last_lines};
use minijinja::context;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The services that run.
#[derive(Debug)]
pub struct Services {
    children: Vec<Child>,
    /// Renders templates with `services.NAME.port`.
    pub renderer: Renderer,
}

const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const LOG: &str = "output.log";
const LOG_LINES: usize = 5;

// === impl Services ===

impl Services {
    /// Starts all services, each with a folder of its own below `folder`.
    ///
    /// # Errors
    /// A service is not installed or does not start; those before it are stopped.
    pub fn start(services: &[Service], folder: &Path, interrupted: &AtomicBool) -> Result<Services, String> {
        let mut ports = BTreeMap::new();
        for service in services {
            ports.insert(service.name.clone(), BTreeMap::from([("port".to_owned(), free_port()?)]));
        }
        let renderer = Renderer::new(context! { services => ports });
        let mut running = Services { children: Vec::new(), renderer };
        for service in services {
            let port = ports[&service.name]["port"];
            let place = folder.join(format!("service-{}", service.name));
            running.start_one(service, port, &place, interrupted).map_err(|error| {
                let end = last_lines(&beside(&place, LOG), LOG_LINES);
                let end: String = end.into_iter().map(|line| format!("\n  {line}")).collect();
                format!("the service {}: {error}{end}", service.name)
            })?;
        }
        Ok(running)
    }

    fn start_one(
        &mut self,
        service: &Service,
        port: u16,
        folder: &Path,
        interrupted: &AtomicBool,
    ) -> Result<(), String> {
        fs::create_dir_all(folder).map_err(|error| crate::reason::at(folder, &error))?;
        let text = |path: &Path| path.display().to_string();
        let renderer = Renderer::new(context! { port, folder => text(folder), lab => text(&service.lab) });
        // Its preparation may give the folder to another user.
        let log = beside(folder, LOG);
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let environment = BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
        let resolve = |words: &[String]| {
            let mut words = renderer.words(words)?;
            let program = words.first().cloned().unwrap_or_default();
            let found = find(&program).ok_or_else(|| {
                let remedy = if service.install.is_empty() { String::new() } else { format!(": {}", service.install) };
                format!("{program} is not installed{remedy}")
            })?;
            words[0] = found.display().to_string();
            Ok::<_, String>(words)
        };
        if !service.prepare.is_empty() {
            let words = resolve(&service.prepare)?;
            // It may become another user.
            let output = process::command(None, &words)?.current_dir(folder).stdin(Stdio::null()).output();
            let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
            if !output.status.success() {
                return Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
            }
        }
        let command = resolve(&service.command)?;
        let launch = Launch { command: &command, environment: &environment, folder, log: &log, user: None, cores: &[] };
        let mut child = process::start(&launch)?;
        let deadline = Instant::now() + START_TIMEOUT;
        let result = loop {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                break Ok(());
            }
            if let Ok(Some(status)) = child.try_wait() {
                break Err(format!("{} ended before it was ready: {status}", command[0]));
            }
            if interrupted.load(Ordering::Relaxed) {
                break Err("interrupted".to_owned());
            }
            if Instant::now() > deadline {
                break Err(format!("port {port} accepted no connection within {} s", START_TIMEOUT.as_secs()));
            }
            std::thread::sleep(POLL);
        };
        self.children.push(child);
        result
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            process::stop(child);
        }
    }
}
