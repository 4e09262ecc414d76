//! The event loop: it waits for signals, requests, messages of children and the clock, and passes each to its part.
//!
//! [`Control`] has everything that runs, [`Api`] the requests that wait. The loop ends when a shutdown is complete. If
//! the configuration of the command line fails, the supervisor exits; if a stored one fails, it starts with an empty one.

mod banner;

use crate::api::reply::Reply;
use crate::api::request::ControlRequest;
use crate::api::routes::Api;
use crate::control::processes::exporter::Scrape;
use crate::control::stage::Stage;
use crate::control::{Control, ControlEvent};
use crate::os::files::pid_file::PidFile;
use crate::os::files::runtime_folder::RuntimeFolder;
use crate::os::files::{hanging, logs};
use crate::os::listen::Listeners;
use crate::os::processes::signals::{SignalRequest, Signals};
use crate::os::processes::sweep::Sweep;
use std::future::poll_fn;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

/// The supervisor.
#[derive(Debug)]
pub struct Supervisor {
    /// The signals.
    pub signals: Signals,
    /// The requests that the control socket receives.
    pub requests: mpsc::UnboundedReceiver<ControlRequest>,
    /// The listening sockets of the control API.
    pub control_listeners: Listeners,
    /// The requests that wait.
    pub api: Api,
    /// Requests of the metrics listener, and where their texts arrive.
    pub scrapes: Vec<(Scrape, oneshot::Receiver<Reply>)>,
    /// Everything that runs.
    pub control: Control,
    /// Kills the processes that PHP left running.
    pub sweep: Sweep,
    /// The file that standard error is, to be reopened.
    pub log_file: Option<PathBuf>,
    /// The kind of application that `howdah serve` recognised, for the first lines.
    pub recognised: Option<String>,
    /// The name of the configuration that is only checked.
    pub checked_name: Option<String>,
    /// Whether more children may be dead than were reaped.
    pub may_have_dead: bool,
    /// Whether the next event is another one than deaths, if there is one.
    pub others_first: bool,
    /// Whether the first lines are printed.
    pub is_announced: bool,
    /// Removed at the end.
    pub _pid_file: Option<PidFile>,
    /// Removed at the end.
    pub _runtime_folder: Option<RuntimeFolder>,
}

#[derive(Debug)]
enum Event {
    Signal(SignalRequest),
    /// Children may be dead.
    Deaths,
    Request(ControlRequest),
    Control(ControlEvent),
    Time,
}

// === impl Supervisor ===

impl Supervisor {
    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// When the applications or the router of the first configuration do not start.
    pub async fn run(mut self) -> Result<(), String> {
        self.control.on_time(Instant::now());
        // A configuration without applications waits for no event: only this starts its router.
        let mut result = self.control.advance(Instant::now());
        if result.is_err() || self.control.is_checked() {
            self.control.quit(Instant::now());
        }
        while !self.is_over() {
            let event = self.next_event().await;
            let now = Instant::now();
            let mut handled = self.handle(event, now);
            // A child that sends without a pause must not stop the clock.
            if self.next_deadline().is_some_and(|at| at <= now) {
                handled = handled.and_then(|()| self.handle(Event::Time, now));
            }
            if self.may_have_dead {
                // The requests arrive in other tasks of this thread.
                tokio::task::yield_now().await;
            }
            if result.is_ok() && (handled.is_err() || self.control.is_checked()) {
                result = handled;
                self.control.quit(now);
            }
        }
        if result.is_ok() && self.control.is_checked() {
            banner::print_checked(self.checked_name.as_deref().unwrap_or_default());
        }
        result
    }

    async fn next_event(&mut self) -> Event {
        let deadline = self.next_deadline();
        let clock = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = poll_fn(|cx| self.poll_event(cx)) => event,
            () = clock => Event::Time,
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(request) = self.signals.poll_next(cx) {
            return Poll::Ready(Event::Signal(request));
        }
        if std::mem::take(&mut self.others_first)
            && let Poll::Ready(event) = self.poll_others(cx)
        {
            return Poll::Ready(event);
        }
        if self.may_have_dead || self.signals.poll_child(cx).is_ready() {
            return Poll::Ready(Event::Deaths);
        }
        self.poll_others(cx)
    }

    fn poll_others(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(Some(request)) = self.requests.poll_recv(cx) {
            return Poll::Ready(Event::Request(request));
        }
        self.control.poll_event(cx).map(Event::Control)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.control.next_deadline().into_iter().chain(self.api.next_deadline()).min()
    }

    fn handle(&mut self, event: Event, now: Instant) -> Result<(), String> {
        match event {
            Event::Signal(request) => self.on_signal(request, now),
            Event::Deaths => {
                self.may_have_dead = self.control.reap(now);
                // An application may make children that die without a pause.
                self.others_first = true;
            }
            Event::Request(request) => self.api.on_request(request, &mut self.control, now),
            Event::Control(event) => self.control.on_event(event, now),
            Event::Time => {
                self.api.on_time(&self.control, now);
                self.control.on_time(now);
            }
        }
        self.begin_scrapes(now);
        if self.control.runtime.router.take_new_load() {
            self.api.on_load(&mut self.control);
        }
        self.end_scrapes();
        self.control.settle(now);
        self.announce();
        loop {
            self.control.advance(now)?;
            let has_begun = self.api.begin_next(&mut self.control, now)
                || self.control.begin_reload(now)
                || self.control.begin_retry(now);
            if !has_begun {
                return Ok(());
            }
        }
    }

    /// Passes requests of the metrics listener on to the API.
    fn begin_scrapes(&mut self, now: Instant) {
        for scrape in self.control.runtime.exporter.take_scrapes() {
            let (request, reply) = ControlRequest::scrape(scrape.format);
            self.scrapes.push((scrape, reply));
            self.api.on_request(request, &mut self.control, now);
        }
    }

    /// Sends the texts that are there.
    fn end_scrapes(&mut self) {
        let exporter = &mut self.control.runtime.exporter;
        self.scrapes.retain_mut(|(scrape, reply)| match reply.try_recv() {
            Err(TryRecvError::Empty) => true,
            Ok(Reply::Answer(answer)) if answer.status == 200 => {
                exporter.answer(*scrape, Some(&answer.body));
                false
            }
            Ok(_) | Err(TryRecvError::Closed) => {
                exporter.answer(*scrape, None);
                false
            }
        });
    }

    fn on_signal(&mut self, request: SignalRequest, now: Instant) {
        match request {
            SignalRequest::Drain => self.drain(now),
            SignalRequest::Quit => self.control.quit(now),
            SignalRequest::ReopenLogs => self.reopen_logs(),
            SignalRequest::HangUp if std::io::stdout().is_terminal() => self.control.quit(now),
            SignalRequest::HangUp | SignalRequest::Nothing => {}
        }
    }

    fn drain(&mut self, now: Instant) {
        self.control_listeners.close();
        if matches!(self.control.runtime.stage, Stage::Serving) {
            self.api.refuse_all();
        }
        self.control.drain(now);
    }

    fn reopen_logs(&mut self) {
        let reopen = |path| logs::write_errors_to(path, hanging::TIMEOUT);
        let has_new_log = match self.log_file.as_deref().map(reopen) {
            Some(Ok(())) => true,
            Some(Err(reason)) => {
                tracing::error!("{reason}");
                false
            }
            None => false,
        };
        self.control.reopen_logs(has_new_log);
    }

    /// Prints the first lines when the first configuration is active.
    fn announce(&mut self) {
        if !self.is_announced && matches!(self.control.runtime.stage, Stage::Serving) {
            self.is_announced = true;
            tracing::info!(concat!("howdah ", env!("CARGO_PKG_VERSION"), " is ready"));
            // The account of `howdah serve` is that of the folder, or of an option.
            if let Some(account) = self.control.runtime.router.account_by_root()
                && self.recognised.is_none()
            {
                tracing::info!("the router runs as {account}; it reads static files and connects to Unix sockets");
            }
            banner::print(self.recognised.as_deref(), &self.control, &self.control_listeners);
        }
    }

    /// Whether nothing is left to wait for.
    fn is_over(&mut self) -> bool {
        self.control.is_abandoned(Instant::now()) || (self.control.is_over() && self.sweep.finish())
    }
}
