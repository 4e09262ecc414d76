//! Sends the spans of the routers, the lines of the logs, and the numbers of the supervisor, to a collector.
//!
//! - `queue`: the spans that wait; another one has the log records
//! - `collector`: the connection, and a request over HTTP or gRPC
//! - `tls`: the connection's encryption
//!
//! Spans are sent when there are `batch_size`, or when the oldest one has waited for a second. While the collector does not
//! answer, a batch is sent again, after pauses up to [`MAX_PAUSE`]; further spans wait in the queue, and are dropped when that
//! is full. Spans that the collector refuses are dropped. Drops are counted, and logged once a minute.

mod collector;
mod queue;
mod tls;

use crate::telemetry::collector::{Collector, Problem};
use crate::telemetry::queue::SendQueue;
use crate::texts::Texts;
use howdah_config::Telemetry;
use howdah_metrics::exposition::Format;
use howdah_protocol::host_name;
use howdah_protocol::messages::exporter::{FromExporter, Outcome, TelemetryBoot};
use howdah_protocol::sockets::control_socket::ControlSocket;
use howdah_telemetry::export::Service;
use howdah_telemetry::frames::FrameReader;
use howdah_telemetry::signal::Signal;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;

/// The parts that the thread starts with.
pub struct Setup {
    /// Where the spans come from.
    pub pipe: OwnedFd,
    /// The settings.
    pub settings: Telemetry,
    /// Their files.
    pub boot: TelemetryBoot,
    /// The supervisor's numbers.
    pub texts: Arc<Texts>,
    /// Where drops are reported.
    pub control: Arc<ControlSocket>,
    /// The supervisor orders to finish.
    pub finishing: Arc<Notify>,
}

/// The records that wait, and the last log lines about them.
#[derive(Default)]
struct Queues {
    spans: SendQueue,
    logs: SendQueue,
    spans_reporter: Reporter,
    logs_reporter: Reporter,
    /// The pipe had bytes when it was read for the last time.
    pipe_has_bytes: Cell<bool>,
}

/// A log line that comes once a minute.
#[derive(Default)]
struct Reporter {
    last: Cell<Option<Instant>>,
}

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;
/// The first pause after a failure, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// How long the pipe rests after a read with few bytes: it has room for many times more.
const PIPE_REST: Duration = Duration::from_millis(10);
const FEW_BYTES: usize = 16 * 1024;
/// How long the last spans may take.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the supervisor gets the numbers of spans.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often the pipe is looked at when it is to be empty.
const DRAIN_CHECK: Duration = Duration::from_millis(20);
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Sends until the supervisor orders to finish.
///
/// # Errors
/// When the event loop cannot be made, or the settings cannot be used.
pub fn run(setup: Setup) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(setup))
}

async fn serve(setup: Setup) -> io::Result<()> {
    let Setup { pipe, settings, boot, texts, control, finishing } = setup;
    let tls = match settings.endpoint.is_https {
        true => Some(tls::config(boot.authorities.as_deref(), settings.protocol).map_err(io::Error::other)?),
        false => None,
    };
    let new_collector = || Collector::new(&settings, &boot.headers, tls.clone());
    let (mut for_spans, mut for_logs, mut for_metrics) = (new_collector(), new_collector(), new_collector());
    let service = Service::new(&settings.service_name, &boot.instance, host_name());
    let pipe = Receiver::from_owned_fd(pipe)?;
    let queues = Queues::default();
    let (spans, logs) = (&queues.spans, &queues.logs);
    let report = || {
        let (spans, logs) = (spans.take_counts(), logs.take_counts());
        if (spans, logs) != (Outcome::default(), Outcome::default()) {
            // A supervisor that is gone needs no numbers: the main thread ends the process.
            let _ = control.send(&FromExporter::Exported { spans, logs }, &[]);
        }
    };
    let reports = async {
        loop {
            tokio::time::sleep(REPORT_INTERVAL).await;
            report();
        }
    };
    let finish = async {
        finishing.notified().await;
        spans.finish();
        logs.finish();
        // The pipe is read once more.
        queues.pipe_has_bytes.set(false);
        let drained = async {
            loop {
                tokio::time::sleep(DRAIN_CHECK).await;
                if !queues.pipe_has_bytes.get() && spans.is_over() && logs.is_over() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(FINISH_TIMEOUT, drained).await;
    };
    let ended = tokio::select! {
        ended = read(&pipe, boot.marker, &queues) => ended,
        () = send_queue(&mut for_spans, Signal::Traces, &service, settings.batch_size as usize, &queues) => Ok(()),
        () = send_queue(&mut for_logs, Signal::Logs, &service, settings.batch_size as usize, &queues) => Ok(()),
        () = send_metrics(&mut for_metrics, &service, settings.metrics_interval, &texts) => Ok(()),
        () = reports => Ok(()),
        () = finish => Ok(()),
    };
    spans.drop_rest();
    logs.drop_rest();
    report();
    ended
}

/// Moves the spans of the pipe into the queue.
async fn read(pipe: &Receiver, marker: u64, queues: &Queues) -> io::Result<()> {
    let (mut reader, mut buffer) = (FrameReader::new(marker), vec![0; READ_BYTES]);
    loop {
        pipe.readable().await?;
        match pipe.try_read(&mut buffer) {
            // The supervisor has the other end: without it, the process ends.
            Ok(0) => std::future::pending().await,
            Ok(count) => {
                queues.pipe_has_bytes.set(true);
                for frame in reader.take(&buffer[..count]) {
                    let signal = frame.signal;
                    let (queue, reporter) = queues.of(signal);
                    let dropped = queue.push(frame);
                    if dropped > 0 {
                        let why = "is full, because the collector is too slow or away";
                        reporter.warn(signal, &format!("the queue of {} {why}", signal.content()), dropped);
                    }
                }
                match count {
                    // A wake-up costs more than reading a span.
                    ..FEW_BYTES => tokio::time::sleep(PIPE_REST).await,
                    _ => tokio::task::yield_now().await,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => queues.pipe_has_bytes.set(false),
            Err(error) => return Err(error),
        }
    }
}

/// Sends spans, or log records.
async fn send_queue(collector: &mut Collector, signal: Signal, service: &Service, batch_size: usize, queues: &Queues) {
    let ((queue, reporter), content) = (queues.of(signal), signal.content());
    loop {
        let (frames, count) = queue.batch(batch_size).await;
        let body = service.body(&frames);
        let mut pause = FIRST_PAUSE;
        loop {
            match collector.send(signal, &body).await {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    queue.sent(count - rejected, rejected);
                    if rejected > 0 {
                        reporter.warn(signal, &format!("the collector has refused {content}"), rejected);
                    }
                    break;
                }
                Err(Problem::Refused(reason)) => {
                    queue.sent(0, count);
                    let what = format!("the collector refuses {content}: {reason}; see settings/telemetry");
                    reporter.warn(signal, &what, count);
                    break;
                }
                Err(Problem::Away(reason)) => {
                    let what =
                        format!("the collector does not take {content}: {reason}; they wait, and are sent again");
                    reporter.warn(signal, &what, 0);
                    queue.pause(pause, FIRST_PAUSE).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }
}

/// Sends the numbers at each interval. A report that fails is left out: the next one has the same sums.
async fn send_metrics(collector: &mut Collector, service: &Service, interval: Option<u32>, texts: &Texts) {
    let Some(interval) = interval else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(Duration::from_secs(interval.into()));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let reporter = Reporter::default();
    loop {
        ticks.tick().await;
        let Some(text) = texts.text(Format::Protobuf).await else { continue };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let body = service.metrics(howdah_telemetry::metrics::metrics(&text, now));
        match collector.send(Signal::Metrics, &body).await {
            Ok(0) => {}
            Ok(rejected) => reporter.warn(Signal::Metrics, &format!("the collector has refused {rejected} numbers"), 0),
            Err(Problem::Away(reason) | Problem::Refused(reason)) => {
                let what = format!("the collector does not take metrics: {reason}; the next report has them");
                reporter.warn(Signal::Metrics, &what, 0);
            }
        }
    }
}

// === impl Queues ===

impl Queues {
    fn of(&self, signal: Signal) -> (&SendQueue, &Reporter) {
        match signal {
            Signal::Logs => (&self.logs, &self.logs_reporter),
            Signal::Traces | Signal::Metrics => (&self.spans, &self.spans_reporter),
        }
    }
}

// === impl Reporter ===

impl Reporter {
    fn warn(&self, signal: Signal, what: &str, dropped: u64) {
        let now = Instant::now();
        if self.last.get().is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
            return;
        }
        self.last.set(Some(now));
        match dropped {
            0 => tracing::warn!("telemetry: {what}"),
            _ => tracing::warn!(
                dropped,
                "telemetry: {what}; {} are dropped (GET /metrics counts them)",
                signal.content()
            ),
        }
    }
}
