//! The process of the metrics listener: it runs while the active configuration has `settings/metrics`.
//!
//! It reads the requests of Prometheus, and asks for a text with each. Other settings, a death, or a message that it
//! missed replace it: the supervisor keeps its listening socket, so that clients wait in the meantime. Its failures never
//! concern applications.

use crate::control::active::ActiveConfiguration;
use crate::os::files::memory_file::memory_file;
use crate::os::identity::UserAccount;
use crate::os::listen::Listeners;
use crate::os::processes::link::ChildLink;
use crate::os::processes::reap;
use crate::os::processes::spawn;
use crate::os::system_error::error_text;
use crate::policy::pace::Backoff;
use howdah_config::DocumentPath;
use howdah_metrics::exposition::Format;
use howdah_protocol::messages::exporter::{ExporterBoot, FromExporter, ToExporter};
use howdah_protocol::messages::process_end::ProcessEnd;
use rustix::process::Pid;
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The process, and its settings.
#[derive(Debug, Default)]
pub struct ExporterHandle {
    wanted: Option<ExporterSettings>,
    /// The version of the configuration that they are of.
    version: Option<u64>,
    process: Option<ExporterProcess>,
    backoff: Backoff,
    /// When to start a process.
    start_at: Option<Instant>,
    /// Requests that no text was made for yet.
    scrapes: Vec<Scrape>,
    /// howdah shuts down.
    is_stopped: bool,
}

/// A request for a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrape {
    /// The process that asks.
    pub pid: Pid,
    /// The number of the request.
    pub id: u64,
    /// The format.
    pub format: Format,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ExporterSettings {
    /// The number of the listening socket.
    listener: u64,
    /// A configuration that has only these settings.
    configuration: String,
}

#[derive(Debug)]
struct ExporterProcess {
    pid: Pid,
    link: ChildLink<ToExporter, FromExporter>,
    since: Instant,
    has_served: bool,
    settings: ExporterSettings,
}

/// The most requests that wait: the process has no more connections.
const MAX_SCRAPES: usize = 64;

// === impl ExporterHandle ===

impl ExporterHandle {
    /// Takes the settings of the active configuration. A process with other settings is replaced.
    pub fn update(&mut self, active: &ActiveConfiguration, now: Instant) {
        if self.version.replace(active.version) == Some(active.version) {
            return;
        }
        let wanted = if self.is_stopped { None } else { ExporterSettings::of(active) };
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        self.backoff = Backoff::default();
        match &self.process {
            // Its death starts the next one.
            Some(process) => reap::kill(process.pid),
            None => self.start_at = self.wanted.is_some().then_some(now),
        }
    }

    /// howdah shuts down: the process is killed, and no other one starts.
    pub fn stop(&mut self) {
        (self.is_stopped, self.wanted, self.start_at) = (true, None, None);
        self.process.iter().for_each(|process| reap::kill(process.pid));
    }

    /// Whether there is a process.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Whether this is its process.
    pub fn is_process(&self, pid: Pid) -> bool {
        self.process.as_ref().is_some_and(|process| process.pid == pid)
    }

    /// When [`Self::start_due`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.start_at
    }

    /// Starts a process, if it is time.
    pub fn start_due(&mut self, account: &UserAccount, listeners: &Listeners, now: Instant) {
        if self.start_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let Some(settings) = &self.wanted else { return };
        match ExporterProcess::start(settings, account, listeners, now) {
            Ok(process) => self.process = Some(process),
            Err(error) => {
                tracing::error!("the process of the metrics listener cannot be started: {}", error_text(&error));
                self.start_at = Some(now + self.backoff.after_death(Duration::ZERO, false));
            }
        }
    }

    /// Its process is dead.
    pub fn on_death(&mut self, end: ProcessEnd, now: Instant) {
        let Some(process) = self.process.take() else { return };
        self.scrapes.retain(|scrape| scrape.pid != process.pid);
        let is_current = self.wanted.as_ref() == Some(&process.settings);
        if is_current {
            let pid = process.pid.as_raw_pid();
            tracing::error!("the process of the metrics listener (pid {pid}) {end}; another one is started");
        }
        let pause = match is_current {
            true => self.backoff.after_death(now - process.since, process.has_served),
            false => Duration::ZERO,
        };
        self.start_at = self.wanted.is_some().then(|| now + pause);
    }

    /// Its next message; `None`, once, when it has closed its socket.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromExporter>> {
        self.process.as_mut().map_or(Poll::Pending, |process| process.link.poll_receive(cx))
    }

    /// Takes a message. A process that closes its socket, or asks for too much, is killed.
    pub fn on_message(&mut self, message: Option<FromExporter>) {
        let Some(process) = &mut self.process else { return };
        match message {
            Some(FromExporter::Scrape { id, is_openmetrics }) if self.scrapes.len() < MAX_SCRAPES => {
                process.has_served = true;
                let format = if is_openmetrics { Format::OpenMetrics } else { Format::Prometheus };
                self.scrapes.push(Scrape { pid: process.pid, id, format });
            }
            _ => reap::kill(process.pid),
        }
    }

    /// The requests that a text must be made for, once.
    pub fn take_scrapes(&mut self) -> Vec<Scrape> {
        std::mem::take(&mut self.scrapes)
    }

    /// Sends the text for a request; `None` if there is no text.
    pub fn answer(&mut self, scrape: Scrape, text: Option<&[u8]>) {
        let Some(process) = self.process.as_mut().filter(|process| process.pid == scrape.pid) else { return };
        match text.map(memory_file) {
            Some(Ok(text)) => process.link.send(ToExporter::Text { id: scrape.id }, vec![text]),
            Some(Err(_)) | None => process.link.send(ToExporter::NoText { id: scrape.id }, Vec::new()),
        }
        if process.link.check().is_err() {
            reap::kill(process.pid);
        }
    }
}

// === impl ExporterSettings ===

impl ExporterSettings {
    fn of(active: &ActiveConfiguration) -> Option<ExporterSettings> {
        let listener = active.metrics_listener?;
        let path = DocumentPath::parse("/settings/metrics").ok()?;
        let settings = active.document.get(&path).ok()?.compact();
        Some(ExporterSettings { listener, configuration: format!(r#"{{"settings":{{"metrics":{settings}}}}}"#) })
    }
}

// === impl ExporterProcess ===

impl ExporterProcess {
    fn start(
        settings: &ExporterSettings,
        account: &UserAccount,
        listeners: &Listeners,
        now: Instant,
    ) -> io::Result<ExporterProcess> {
        let socket = listeners.descriptor(settings.listener)?;
        let boot = ExporterBoot {
            identity: account.identity(),
            user: account.name.clone(),
            configuration: settings.configuration.clone(),
        };
        let (pid, control) = spawn::exporter()?;
        let started = ChildLink::new(control).and_then(|mut link| {
            link.send(ToExporter::Boot(boot), vec![socket]);
            link.check().map(|()| link)
        });
        match started {
            Ok(link) => Ok(ExporterProcess { pid, link, since: now, has_served: false, settings: settings.clone() }),
            Err(error) => {
                reap::kill(pid);
                Err(error)
            }
        }
    }
}
