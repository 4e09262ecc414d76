//! The process of the metrics listener, which also exports to OpenTelemetry: it runs while the active configuration has
//! `settings/metrics` or `settings/telemetry`.
//!
//! It reads the requests of Prometheus, and asks for a text with each. Other settings, a death, or a message that it
//! missed replace it: the supervisor keeps its listening socket, so that clients wait in the meantime. Its failures never
//! concern applications. The supervisor keeps the pipe of the spans, too: what is in there waits for the next process. A
//! process that is replaced or stopped first sends what it has, for a few seconds at most.

use crate::control::active::ActiveConfiguration;
use crate::control::processes::telemetry_files::TelemetryFiles;
use crate::os::files::memory_file::memory_file;
use crate::os::identity::UserAccount;
use crate::os::listen::Listeners;
use crate::os::processes::link::ChildLink;
use crate::os::processes::reap;
use crate::os::processes::spawn;
use crate::os::system_error::error_text;
use crate::policy::pace::Backoff;
use howdah_config::{DocumentPath, Telemetry};
use howdah_metrics::exposition::Format;
use howdah_protocol::messages::exporter::{ExporterBoot, FromExporter, Outcome, TelemetryBoot, ToExporter};
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_telemetry::logs;
use howdah_telemetry::pipe::{self, SpanPipe, SpanWriter};
use rustix::process::Pid;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The process, and its settings.
#[derive(Debug)]
pub struct ExporterHandle {
    spans: Arc<SpanPipe>,
    /// The id of this howdah among those that send to a collector.
    instance: String,
    tally: ExportTally,
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

/// The outcome of what was written into the pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportTally {
    /// Spans.
    pub spans: Outcome,
    /// Lines of logs.
    pub logs: Outcome,
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

#[derive(Clone, Debug, PartialEq)]
struct ExporterSettings {
    /// The number of the listening socket.
    listener: Option<u64>,
    telemetry: Option<Telemetry>,
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
    /// It was ordered to finish, and must be dead by then.
    kill_at: Option<Instant>,
}

/// The most requests that wait: the process has no more connections.
const MAX_SCRAPES: usize = 64;
/// How long a process may take to send its last spans: it gives up by itself before.
const FINISH_GRACE: Duration = Duration::from_secs(4);

// === impl ExporterHandle ===

impl ExporterHandle {
    /// Without a process, for the spans of this pipe.
    pub fn new(spans: Arc<SpanPipe>) -> ExporterHandle {
        let writer = spans.write.try_clone().and_then(|pipe| SpanWriter::new(pipe, spans.marker));
        // Without descriptors, the supervisor's own lines are not sent.
        writer.into_iter().for_each(pipe::set_writer);
        ExporterHandle {
            instance: format!("{:016x}", RandomState::new().hash_one(spans.marker)),
            spans,
            tally: ExportTally::default(),
            wanted: None,
            version: None,
            process: None,
            backoff: Backoff::default(),
            start_at: None,
            scrapes: Vec::new(),
            is_stopped: false,
        }
    }

    /// The outcome of spans and lines.
    pub fn tally(&self) -> ExportTally {
        self.tally
    }

    /// Takes the settings of the active configuration. A process with other settings is replaced.
    pub fn update(&mut self, active: &ActiveConfiguration, now: Instant) {
        if self.version.replace(active.version) == Some(active.version) {
            return;
        }
        let wanted = if self.is_stopped { None } else { ExporterSettings::of(active) };
        logs::set_on(
            wanted.as_ref().and_then(|wanted| wanted.telemetry.as_ref()).is_some_and(|telemetry| telemetry.logs),
        );
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        self.backoff = Backoff::default();
        match &mut self.process {
            // Its death starts the next one.
            Some(process) => process.finish(now),
            None => self.start_at = self.wanted.is_some().then_some(now),
        }
    }

    /// howdah drains: no other process starts. One that exports goes on until [`Self::finish`].
    pub fn drain(&mut self) {
        (self.is_stopped, self.wanted, self.start_at) = (true, None, None);
        let listens_only = |process: &&ExporterProcess| process.settings.telemetry.is_none();
        self.process.iter().filter(listens_only).for_each(|process| reap::kill(process.pid));
    }

    /// The router is gone: the process sends its last spans, and exits.
    pub fn finish(&mut self, now: Instant) {
        (self.is_stopped, self.wanted, self.start_at) = (true, None, None);
        self.process.iter_mut().for_each(|process| process.finish(now));
    }

    /// Kills a process that was ordered to finish, and has not.
    pub fn on_time(&mut self, now: Instant) {
        if let Some(process) = &mut self.process
            && process.kill_at.take_if(|at| *at <= now).is_some()
        {
            reap::kill(process.pid);
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
        let kill_at = self.process.as_ref().and_then(|process| process.kill_at);
        self.start_at.into_iter().chain(kill_at).min()
    }

    /// Starts a process, if it is time.
    pub fn start_due(&mut self, account: &UserAccount, listeners: &Listeners, now: Instant) {
        if self.start_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let Some(settings) = &self.wanted else { return };
        let spans = (&*self.spans, self.instance.as_str());
        match ExporterProcess::start(settings, account, listeners, spans, now) {
            Ok(process) => self.process = Some(process),
            Err(error) => {
                tracing::error!(
                    "the process for settings/metrics and settings/telemetry cannot be started: {}",
                    error_text(&error)
                );
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
            Some(FromExporter::Scrape { id, format }) if self.scrapes.len() < MAX_SCRAPES => {
                process.has_served = true;
                self.scrapes.push(Scrape { pid: process.pid, id, format });
            }
            Some(FromExporter::Exported { spans, logs }) => {
                process.has_served = true;
                self.tally.spans.add(spans);
                self.tally.logs.add(logs);
            }
            // It has finished.
            None if process.kill_at.is_some() => {}
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
        let (listener, telemetry) = (active.metrics_listener, active.configuration.settings.telemetry.clone());
        if listener.is_none() && telemetry.is_none() {
            return None;
        }
        let written = |name: &str| {
            let path = DocumentPath::parse(&format!("/settings/{name}")).ok()?;
            Some(format!("{name:?}:{}", active.document.get(&path).ok()?.compact()))
        };
        let settings: Vec<_> = ["metrics", "telemetry"].into_iter().filter_map(written).collect();
        let configuration = format!(r#"{{"settings":{{{}}}}}"#, settings.join(","));
        Some(ExporterSettings { listener, telemetry, configuration })
    }
}

// === impl ExporterProcess ===

impl ExporterProcess {
    /// Lets it send its last spans. A process without spans, or one that gets no message any more, is killed.
    fn finish(&mut self, now: Instant) {
        if self.kill_at.is_some() {
            return;
        }
        if self.settings.telemetry.is_some() {
            self.link.send(ToExporter::Finish, Vec::new());
            if self.link.check().is_ok() {
                self.kill_at = Some(now + FINISH_GRACE);
                return;
            }
        }
        reap::kill(self.pid);
    }

    fn start(
        settings: &ExporterSettings,
        account: &UserAccount,
        listeners: &Listeners,
        (spans, instance): (&SpanPipe, &str),
        now: Instant,
    ) -> io::Result<ExporterProcess> {
        let socket = settings.listener.map(|listener| listeners.descriptor(listener)).transpose()?;
        let mut descriptors = Vec::from_iter(socket);
        let telemetry = match &settings.telemetry {
            Some(telemetry) => {
                descriptors.push(spans.read.try_clone()?);
                let TelemetryFiles { headers, authorities } =
                    TelemetryFiles::read(telemetry).map_err(io::Error::other)?;
                Some(TelemetryBoot { marker: spans.marker, instance: instance.to_owned(), headers, authorities })
            }
            None => None,
        };
        let boot = ExporterBoot {
            identity: account.identity(),
            user: account.name.clone(),
            configuration: settings.configuration.clone(),
            has_listener: settings.listener.is_some(),
            telemetry,
        };
        let (pid, control) = spawn::exporter()?;
        let started = ChildLink::new(control).and_then(|mut link| {
            link.send(ToExporter::Boot(boot), descriptors);
            link.check().map(|()| link)
        });
        match started {
            Ok(link) => {
                let settings = settings.clone();
                Ok(ExporterProcess { pid, link, since: now, has_served: false, settings, kill_at: None })
            }
            Err(error) => {
                reap::kill(pid);
                Err(error)
            }
        }
    }
}
