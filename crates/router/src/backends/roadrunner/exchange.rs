//! One request on one worker. A task of the thread carries it out, also when the client leaves: a worker is free for the
//! next request only after its whole answer.
//!
//! The answer goes into a spool as fast as the worker writes it. When the spool is full, the worker waits for the client.
//! When the client leaves, a worker that streams gets a `STOP`, and the rest of the answer is dropped.
//!
//! | event | the client gets | the worker |
//! |---|---|---|
//! | bytes that are not an answer | 502 | is killed |
//! | `limits/timeout` | 504 | is killed |
//! | the worker dies | 502 | is started again |
//! | an error frame | 500 | goes on |
//! | the client leaves, and the answer does not end in time | | is killed |
//!
//! After the beginning of the response, the client's connection is closed instead. Each is one line in the log.

use crate::backends::admission::RunningRequest;
use crate::backends::buffering::answer::Answer;
use crate::backends::buffering::request_body::BodyFile;
use crate::backends::buffering::spool::{Spool, SpoolLimits};
use crate::backends::buffering::start::{Start, StartedAnswer};
use crate::backends::roadrunner::generation::RoadRunnerGeneration;
use crate::backends::roadrunner::request::WorkerRequest;
use crate::backends::roadrunner::worker::{RequestPipes, Worker, WorkerStatus};
use crate::protocols::connection::heads::interim_limit::MAX_RESPONSES;
use crate::request::clock::RequestClock;
use crate::request::record::log_context::LogContext;
use crate::response::application_head;
use crate::response::failure::Failure;
use bytes::BytesMut;
use howdah_goridge::answer::{AnswerPiece, AnswerReader};
use howdah_goridge::frame::{self, Violation};
use howdah_goridge::response::ResponseContext;
use howdah_protocol::messages::router::ReleaseReason;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The worker has not run the request. Another one gets it.
    NotRun,
    /// The worker asked to be replaced, and did not handle the request. Another one gets it.
    Refused,
    /// The failure that the client gets.
    Failed(Failure),
}

/// The client's side.
type WorkerStart = Start<ResponseContext, NoAnswer>;

/// How an exchange ends.
enum Ending {
    /// With a whole answer.
    Answered,
    /// With an error frame.
    Error(String),
    /// With the request to be replaced.
    Refused,
}

/// Why an exchange has no end.
enum Trouble {
    /// The worker closed its pipe before it read the request.
    NotRun,
    /// The worker was not ready for a request.
    NotIdle(Violation),
    /// The worker closed a pipe.
    Died,
    Violation(Violation),
    /// The limit of its time.
    Late(Duration),
    /// The client has left, and the answer does not end.
    Abandoned,
    /// The answer, or the body of the request, is in a file that fails.
    Disk(io::Error),
}

/// Discards a worker if its task panics: it would never get a request again.
struct DiscardOnDrop {
    generation: Arc<RoadRunnerGeneration>,
    worker: Option<Arc<WorkerStatus>>,
}

/// How many pieces of an answer are taken before other tasks of the thread have their turn.
const PIECES_OF_TURN: usize = 128;
/// A response of a known length that is not longer is read whole before the client gets its head.
const WHOLE_BYTES: u64 = 64 * 1024;
/// How much of a body in a file is read at once.
const PORTION_BYTES: usize = 64 * 1024;
/// After this number of its bytes, other tasks of the thread have their turn.
const BYTES_OF_TURN: u64 = 16 * PORTION_BYTES as u64;
/// How long a worker may go on with an answer whose client has left.
const ABANDONED_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request to a worker. Returns the beginning of the answer.
///
/// # Errors
/// When there is no answer.
pub async fn send(
    generation: &Arc<RoadRunnerGeneration>,
    worker: Worker,
    running: RunningRequest<RoadRunnerGeneration>,
    request: Rc<WorkerRequest>,
    clock: &RequestClock,
    spool_folder: Option<&Path>,
) -> Result<StartedAnswer<ResponseContext>, NoAnswer> {
    let (start, started) = WorkerStart::of(Answer::new(Spool::new(SpoolLimits::RESPONSE, spool_folder)));
    let (generation, clock) = (Arc::clone(generation), clock.clone());
    LogContext::spawn(carry_out(generation, worker, running, request, start, clock));
    // Without a sender, the task has panicked.
    started.await.unwrap_or(Err(NoAnswer::Failed(Failure::Internal)))
}

async fn carry_out(
    generation: Arc<RoadRunnerGeneration>,
    mut worker: Worker,
    _running: RunningRequest<RoadRunnerGeneration>,
    request: Rc<WorkerRequest>,
    mut start: WorkerStart,
    clock: RequestClock,
) {
    let mut guard = DiscardOnDrop { generation: Arc::clone(&generation), worker: Some(Arc::clone(&worker.status)) };
    let result = {
        let exchange = exchange(&mut worker, &request, &mut start, &clock);
        match generation.timeout {
            Some(limit) => match tokio::time::timeout(limit, exchange).await {
                Ok(result) => result,
                Err(_) => Err(Trouble::Late(limit)),
            },
            None => exchange.await,
        }
    };
    guard.worker = None;
    match result {
        Ok(Ending::Answered) => {}
        Ok(Ending::Error(text)) => {
            tracing::error!("a worker answered with an error: {}; answering 500", frame::quoted(text.as_bytes()));
            start.fail(NoAnswer::Failed(Failure::Internal));
        }
        Ok(Ending::Refused) => {
            generation.release(&worker, ReleaseReason::OnRequest);
            return start.fail(NoAnswer::Refused);
        }
        Err(trouble) => {
            generation.release(&worker, trouble.release_reason());
            return start.fail(trouble.log(start.has_begun()));
        }
    }
    generation.finished(worker);
}

/// The way of a request to its worker and back.
async fn exchange(
    worker: &mut Worker,
    request: &WorkerRequest,
    start: &mut WorkerStart,
    clock: &RequestClock,
) -> Result<Ending, Trouble> {
    let mut pipes = worker.pipes().map_err(|_| Trouble::NotRun)?;
    if !pipes.is_idle().map_err(Trouble::NotIdle)? {
        return Err(Trouble::NotRun);
    }
    if let Err(trouble) = write_request(&mut pipes, request).await {
        return Err(trouble.of_unread(&pipes));
    }
    let answer = Rc::clone(start.answer());
    let (mut reader, mut buffer) = (AnswerReader::default(), BytesMut::new());
    let mut held: Option<ResponseContext> = None;
    let (mut has_read, mut interim) = (false, 0);
    // Whether the client has left, whether the worker was notified, and since when it answers without a client.
    let (mut has_left, mut is_stopped, mut unheard_since) = (false, false, None);
    loop {
        let mut pieces = 0;
        while let Some(piece) = reader.next(&mut buffer).map_err(Trouble::Violation)? {
            // Bytes of a worker may be thousands of short frames.
            pieces += 1;
            if pieces % PIECES_OF_TURN == 0 {
                yield_now().await;
            }
            match piece {
                AnswerPiece::Interim(head) => {
                    interim += 1;
                    if interim <= MAX_RESPONSES {
                        inform(start, clock, &head);
                    }
                }
                AnswerPiece::Head(head) => held = Some(head),
                AnswerPiece::Body(bytes) => answer.push(&bytes).map_err(Trouble::Disk)?,
                AnswerPiece::Ping if answer.has_client() => pipes.try_write(&frame::pong_frame()),
                AnswerPiece::Ping => pipes.try_write(&frame::stop_stream_frame()),
                AnswerPiece::Error(text) => return Ok(Ending::Error(text)),
                AnswerPiece::Restart => return Ok(Ending::Refused),
                AnswerPiece::End => {
                    if !buffer.is_empty() {
                        return Err(Trouble::Violation(Violation("it wrote more than its answer".to_owned())));
                    }
                    answer.complete();
                    let length = answer.len();
                    held.take().into_iter().for_each(|head| start.begin(head, Some(length)));
                    return Ok(Ending::Answered);
                }
            }
        }
        if held.is_some() {
            let length = reader.frame_rest().map(|rest| answer.len() + rest);
            // Only a client that has the head makes room.
            if !answer.has_room() || !start.has_client() || length.is_none_or(|length| length > WHOLE_BYTES) {
                held.take().into_iter().for_each(|head| start.begin(head, length));
            }
        }
        if !start.has_client() {
            has_left = true;
            // Before its answer, a script may take any time, as with a client.
            if reader.has_begun() {
                unheard_since.get_or_insert_with(Instant::now);
            }
            if reader.is_streaming() && !std::mem::replace(&mut is_stopped, true) {
                pipes.try_write(&frame::stop_stream_frame());
            }
        }
        // A worker that writes without a pause must not stop the other tasks of this thread.
        if std::mem::replace(&mut has_read, true) {
            yield_now().await;
        }
        let abandoned = unheard_since.map(|since| since + ABANDONED_TIMEOUT);
        // Below, a worker that writes without a pause comes first.
        if abandoned.is_some_and(|abandoned| Instant::now() >= abandoned) {
            return Err(Trouble::Abandoned);
        }
        let read = tokio::select! {
            biased;
            read = pipes.read(&mut buffer), if answer.has_room() => read,
            () = answer.changed(), if !has_left => continue,
            () = start.closed(), if !has_left => continue,
            () = sleep_until(abandoned.unwrap_or_else(Instant::now)), if abandoned.is_some() => {
                return Err(Trouble::Abandoned);
            }
        };
        if !matches!(read, Ok(length) if length > 0) {
            return Err(Trouble::Died.of_unread(&pipes));
        }
    }
}

async fn write_request(pipes: &mut RequestPipes<'_>, request: &WorkerRequest) -> Result<(), Trouble> {
    let died = |_| Trouble::Died;
    let (head, body) = (&request.head, &request.body);
    let written = pipes.write_beginning(head, body).await.map_err(|_| Trouble::NotRun)?;
    for rest in [head.get(written..).unwrap_or_default(), &body[written.saturating_sub(head.len())..]] {
        for portion in rest.chunks(BYTES_OF_TURN as usize) {
            pipes.write_all(portion).await.map_err(died)?;
            if portion.len() == BYTES_OF_TURN as usize {
                yield_now().await;
            }
        }
    }
    let Some(BodyFile { file, length, .. }) = &request.file else { return Ok(()) };
    let (mut portion, mut offset) = (vec![0; PORTION_BYTES], 0);
    while offset < *length {
        let next = usize::try_from(length - offset).map_or(PORTION_BYTES, |left| left.min(PORTION_BYTES));
        file.read_exact_at(&mut portion[..next], offset).map_err(Trouble::Disk)?;
        pipes.write_all(&portion[..next]).await.map_err(died)?;
        offset += next as u64;
        if offset % BYTES_OF_TURN == 0 {
            yield_now().await;
        }
    }
    Ok(())
}

/// Sends an interim response to a client that waits for the answer.
fn inform(start: &WorkerStart, clock: &RequestClock, head: &ResponseContext) {
    if !start.has_begun()
        && start.has_client()
        && let Some((status, headers)) = application_head::interim(head.status, head.headers.fields())
    {
        clock.inform(status, &headers);
    }
}

// === impl Trouble ===

impl Trouble {
    /// The death of a worker that has not read its request: another worker can run it.
    fn of_unread(self, pipes: &RequestPipes<'_>) -> Trouble {
        match self {
            Trouble::Died if pipes.is_unread() => Trouble::NotRun,
            other => other,
        }
    }

    fn release_reason(&self) -> ReleaseReason {
        match self {
            // The supervisor will notice its death.
            Trouble::NotRun | Trouble::Died => ReleaseReason::Closed,
            _ => ReleaseReason::Discarded,
        }
    }

    /// Logs it, and returns what the client gets. `had_begun` is whether the client has the beginning of the response.
    fn log(self, had_begun: bool) -> NoAnswer {
        let outcome = |status: u16| match had_begun {
            true => "closing the client's connection".to_owned(),
            false => format!("answering {status}"),
        };
        NoAnswer::Failed(match self {
            Trouble::NotRun => return NoAnswer::NotRun,
            Trouble::NotIdle(violation) => {
                tracing::error!("a worker broke the rules of its protocol: {violation}; killing it");
                return NoAnswer::NotRun;
            }
            Trouble::Died => {
                tracing::warn!("a worker died during this request; {}", outcome(502));
                Failure::WorkerDied { had_begun }
            }
            Trouble::Violation(violation) => {
                let outcome = outcome(502);
                tracing::error!("a worker broke the rules of its protocol: {violation}; killing it; {outcome}");
                Failure::BadGateway
            }
            Trouble::Late(limit) => {
                let (seconds, outcome) = (limit.as_secs_f64(), outcome(504));
                tracing::warn!(
                    "a request runs for longer than {seconds} s (limits/timeout); killing its worker; {outcome}"
                );
                Failure::GatewayTimeout
            }
            Trouble::Abandoned => {
                let seconds = ABANDONED_TIMEOUT.as_secs();
                tracing::warn!(
                    "a worker did not end its answer within {seconds} s after the client had left; killing it"
                );
                Failure::GatewayTimeout
            }
            Trouble::Disk(error) => {
                let outcome = outcome(500);
                tracing::error!(%error, "a temporary file failed; see settings/http/body_temp_path; {outcome}");
                Failure::Internal
            }
        })
    }
}

impl Drop for DiscardOnDrop {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.generation.release_named(worker.name, ReleaseReason::Discarded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::admission::Line;
    use crate::protocols::http1::clock::Clock;
    use crate::report::SupervisorLink;
    use howdah_goridge::frame::{data_frame, flag};
    use howdah_protocol::messages::router::{RoadRunnerGenerationBoot, RoadRunnerWorker};
    use howdah_protocol::sockets::control_socket::ControlSocket;
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::io::write;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::path::PathBuf;
    use tokio::task::{LocalSet, yield_now};
    use tokio::time::advance;

    /// The other tasks read what is in the pipes.
    async fn settle() {
        for _ in 0..1000 {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_script_whose_client_has_left_may_end_its_answer() {
        let (ours, _) = ControlSocket::pair().expect("sockets");
        let boot = RoadRunnerGenerationBoot {
            id: 1,
            application: "app".to_owned(),
            processes: 1,
            timeout_ms: None,
            queue_timeout_ms: 1000,
            requests: None,
            idle_ttl_ms: None,
            upload_folder: PathBuf::from("/tmp"),
        };
        let link = SupervisorLink::new(Arc::new(ours)).expect("a link");
        let generation = Arc::new(RoadRunnerGeneration::new(boot, &link));
        let (_stdin, requests) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let (answers, stdout) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        for end in [&requests, &answers] {
            fcntl_setfl(end, OFlags::NONBLOCK).expect("flags");
        }
        let name = RoadRunnerWorker { index: 0, start: 1 };
        generation.worker_ready(name, [requests, answers].into_iter()).expect("its pipes");
        let clock = RequestClock::Http1(Rc::new(Clock::new(Arc::default(), 1, false)));
        let exchange = async {
            let admitted = generation.admit().await.expect("an idle worker");
            let (worker, running) = generation.acquire(admitted).await.expect("a worker");
            let request = Rc::new(WorkerRequest::of_head(b"a request".to_vec()));
            // The client leaves at once.
            let sent = send(&generation, worker, running, request, &clock, None);
            let _ = tokio::time::timeout(Duration::ZERO, sent).await;
            settle().await;
            advance(ABANDONED_TIMEOUT * 2).await;
            let context = r#"{"status":200,"headers":{}}"#;
            let frame = data_frame(flag::JSON, context.len() as u32, context.len() as u32 + 2);
            write(&stdout, &[&frame, context.as_bytes(), b"a"].concat()).expect("the first half");
            settle().await;
            write(&stdout, b"b").expect("the second half");
            settle().await;
            let admitted = generation.admit().await.expect("a place in the queue");
            assert!(generation.acquire(admitted).await.is_ok(), "the worker is idle again");
        };
        LocalSet::new().run_until(exchange).await;
    }
}
