//! One request on one connection. A task of the thread carries it out: it reads the answer into a spool as fast as the
//! server writes it, so that a slow client does not hold a process of FPM. When the spool is full, the server waits for the
//! client. The request and its answer are on their way at the same time: a script may answer before it has read its body.
//!
//! When the client leaves, the connection is closed: FPM stops the script when that writes next.
//!
//! | event | the client gets |
//! |---|---|
//! | bytes that are not FastCGI, or no head of a CGI response | 502 |
//! | `limits/timeout` | 504 |
//! | the connection ends before the head | 502, or the response to another attempt |
//! | the server has too much to do | the response to another attempt |
//!
//! After the beginning of the response, the client's connection is closed instead. Each is one line in the log.

use crate::backends::admission::RunningRequest;
use crate::backends::buffering::answer::Answer;
use crate::backends::buffering::spool::{Spool, SpoolLimits};
use crate::backends::buffering::start::{Start, StartedAnswer};
use crate::backends::fastcgi::connection::Connection;
use crate::backends::fastcgi::generation::FastCgiGeneration;
use crate::backends::fastcgi::messages::Messages;
use crate::backends::fastcgi::places::Place;
use crate::backends::fastcgi::request::{RequestWriter, ServerRequest};
use crate::request::record::log_context::LogContext;
use crate::response::failure::Failure;
use bytes::{Bytes, BytesMut};
use howdah_config::Endpoint;
use howdah_fastcgi::answer::{AnswerPiece, AnswerReader, Outcome, RequestEnd};
use howdah_fastcgi::head::{self, BadHead};
use howdah_fastcgi::record::Violation;
use howdah_fastcgi::request::abort_record;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::yield_now;

/// An exchange that begins.
pub struct Call<'a> {
    /// The generation.
    pub generation: &'a Arc<FastCgiGeneration>,
    /// The place of the connection.
    pub place: Place,
    /// The connection.
    pub connection: Connection,
    /// Counts the request.
    pub running: RunningRequest<FastCgiGeneration>,
    /// The folder for spooled answers.
    pub spool_folder: Option<&'a Path>,
}

/// Why there is no answer.
pub enum NoAnswer {
    /// Nothing of the request was sent: the server had closed the connection.
    Unsent,
    /// The server has not carried out the request. It may have less to do later.
    Refused,
    /// The server closed the connection without an answer. It may have carried out the request.
    Closed(ClosedConnection),
    /// The failure that the client gets.
    Failed(Failure),
}

/// A connection that the server closed without an answer.
pub struct ClosedConnection {
    address: Endpoint,
    reason: String,
}

/// The client's side. The head is that of a CGI response.
type ServerStart = Start<Bytes, NoAnswer>;

/// Why an exchange has no end.
enum Trouble {
    Unsent,
    /// The connection ended. Whether bytes of the answer had come.
    Closed {
        reason: String,
        had_answered: bool,
    },
    Violation(Violation),
    Head(BadHead),
    /// The request ended without a head.
    NoResponse(RequestEnd),
    Refused,
    /// The limit of its time.
    Late(Duration),
    /// The client has left.
    Abandoned,
    /// The answer, or the body of the request, is in a file that fails.
    Disk(io::Error),
}

/// The head of the answer, while it comes.
enum Head {
    Incomplete(BytesMut),
    /// Complete, and not passed on yet.
    Held(Bytes),
    PassedOn,
}

/// How much of a body is collected before the client gets its head, as long as more can be read without waiting.
const COLLECTED_BYTES: u64 = 64 * 1024;
/// How many pieces of an answer are taken before other tasks of the thread have their turn.
const PIECES_OF_TURN: usize = 256;
/// How many portions of a request are written before other tasks of the thread have their turn.
const PORTIONS_OF_TURN: usize = 16;
/// The longest head of a response.
const MAX_HEAD: usize = 64 * 1024;
/// How long a server may write without a pause after its client has left.
const ABANDONED_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a request on a connection. Returns the beginning of the answer.
///
/// # Errors
/// When there is no answer.
pub async fn send(call: Call<'_>, request: Rc<ServerRequest>) -> Result<StartedAnswer<Bytes>, NoAnswer> {
    let (start, started) = ServerStart::of(Answer::new(Spool::new(SpoolLimits::RESPONSE, call.spool_folder)));
    let Call { generation, place, connection, running, .. } = call;
    let generation = Arc::clone(generation);
    LogContext::spawn(carry_out(generation, place, connection, running, request, start));
    // Without a sender, the task has panicked.
    started.await.unwrap_or(Err(NoAnswer::Failed(Failure::Internal)))
}

async fn carry_out(
    generation: Arc<FastCgiGeneration>,
    mut place: Place,
    connection: Connection,
    _running: RunningRequest<FastCgiGeneration>,
    request: Rc<ServerRequest>,
    mut start: ServerStart,
) {
    let mut messages = Messages::default();
    let result = {
        let exchange = exchange(&connection, &request, &mut start, &mut place, &mut messages);
        match generation.timeout {
            Some(limit) => match tokio::time::timeout(limit, exchange).await {
                Ok(result) => result,
                Err(_) => Err(Trouble::Late(limit)),
            },
            None => exchange.await,
        }
    };
    messages.end();
    match result {
        Ok(is_reusable) if is_reusable && request.keeps_connection => place.give_back(connection),
        Ok(_) => drop((connection, place)),
        Err(trouble) => {
            drop(connection);
            let failure = trouble.settle(&place, start.has_begun());
            drop(place);
            return start.fail(failure);
        }
    }
    generation.finished();
}

/// The way of a request to the server and back. Returns whether the connection may get another request.
async fn exchange(
    connection: &Connection,
    request: &ServerRequest,
    start: &mut ServerStart,
    place: &mut Place,
    messages: &mut Messages,
) -> Result<bool, Trouble> {
    let answer = Rc::clone(start.answer());
    let (mut reader, mut buffer, mut head) =
        (AnswerReader::default(), BytesMut::new(), Head::Incomplete(BytesMut::new()));
    let mut writer = request.writer();
    let (mut has_sent, mut cannot_write, mut had_answered, mut portions) = (false, false, false, 0);
    let mut left_since = None;
    loop {
        let (mut end, mut pieces) = (None, 0);
        while let Some(piece) = reader.next(&mut buffer).map_err(Trouble::Violation)? {
            // Bytes of a server may be thousands of short records.
            pieces += 1;
            if pieces % PIECES_OF_TURN == 0 {
                yield_now().await;
            }
            match piece {
                AnswerPiece::Response(bytes) => match &mut head {
                    Head::Incomplete(begun) => begun.extend_from_slice(&bytes),
                    _ => answer.push(&bytes).map_err(Trouble::Disk)?,
                },
                AnswerPiece::Messages(bytes) => messages.push(&bytes),
                AnswerPiece::End(ended) => end = Some(ended),
            }
        }
        head = head.advance(&answer)?;
        if let Some(ended) = end {
            return finish(ended, head, start, &answer).map(|()| writer.is_complete() && buffer.is_empty());
        }
        let mut read = None;
        if let Head::Held(held) = &head {
            // A response that is complete already has a length, and needs one write.
            if answer.len() < COLLECTED_BYTES {
                read = connection.try_read(&mut buffer).ok();
            }
            if read.is_none() {
                start.begin(held.clone(), None);
                head = Head::PassedOn;
            }
        }
        // A server that writes without a pause must not stop the other tasks of this thread, nor hide that its client has left.
        if had_answered {
            yield_now().await;
            // The end of a response that is complete for the client may be in the socket.
            let has_left = !start.has_client();
            if has_left && left_since.get_or_insert_with(Instant::now).elapsed() >= ABANDONED_TIMEOUT {
                return Err(abandon(connection, &writer));
            }
        }
        // Most requests fit into the socket: no event is waited for.
        if !has_sent && write_at_once(connection, &mut writer)? {
            has_sent = true;
        }
        let read = match read {
            Some(length) => Ok(length),
            None => tokio::select! {
                biased;
                read = connection.read(&mut buffer), if answer.has_room() => read,
                written = write(connection, &mut writer), if !cannot_write && !writer.is_complete() => {
                    match written? {
                        true => has_sent = true,
                        false if has_sent => cannot_write = true,
                        false => return Err(Trouble::Unsent),
                    }
                    // A server that reads without a pause must not stop them either.
                    portions += 1;
                    if portions % PORTIONS_OF_TURN == 0 {
                        yield_now().await;
                    }
                    continue;
                }
                () = answer.changed(), if start.has_begun() => {
                    if !answer.has_client() {
                        return Err(abandon(connection, &writer));
                    }
                    continue;
                }
                () = start.closed(), if !start.has_begun() => return Err(abandon(connection, &writer)),
            },
        };
        match read {
            Ok(length) if length > 0 => {
                if !std::mem::replace(&mut had_answered, true) {
                    place.answered();
                }
            }
            Ok(_) => return Err(Trouble::Closed { reason: "it closed the connection".to_owned(), had_answered }),
            Err(error) => return Err(Trouble::Closed { reason: error.to_string(), had_answered }),
        }
    }
}

/// Writes the first bytes of a request, if there is room. Whether there was.
fn write_at_once(connection: &Connection, writer: &mut RequestWriter<'_>) -> Result<bool, Trouble> {
    let bytes = writer.bytes().map_err(Trouble::Disk)?;
    match connection.try_write(bytes) {
        Ok(count) => {
            writer.wrote(count);
            Ok(true)
        }
        // `write` waits for room, and notices the end of the connection.
        Err(_) => Ok(false),
    }
}

/// Writes the next bytes of a request. `false` if the server takes no more: it may have answered nevertheless.
async fn write(connection: &Connection, writer: &mut RequestWriter<'_>) -> Result<bool, Trouble> {
    let bytes = writer.bytes().map_err(Trouble::Disk)?;
    if bytes.is_empty() {
        return Ok(true);
    }
    match connection.write(bytes).await {
        Ok(count) => {
            writer.wrote(count);
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

/// The client has left: a server that looks for it is notified before the connection is closed.
fn abandon(connection: &Connection, writer: &RequestWriter<'_>) -> Trouble {
    if writer.is_complete() {
        let _ = connection.try_write(&abort_record());
    }
    Trouble::Abandoned
}

/// The request has ended.
fn finish(ended: RequestEnd, head: Head, start: &mut ServerStart, answer: &Answer) -> Result<(), Trouble> {
    match (ended.outcome, head) {
        (Outcome::Complete, Head::Held(head)) => {
            answer.complete();
            start.begin(head, Some(answer.len()));
            Ok(())
        }
        (Outcome::Complete, Head::PassedOn) => {
            answer.complete();
            Ok(())
        }
        (Outcome::Overloaded | Outcome::NoMultiplexing, Head::Incomplete(begun)) if begun.is_empty() => {
            Err(Trouble::Refused)
        }
        _ => Err(Trouble::NoResponse(ended)),
    }
}

// === impl Head ===

impl Head {
    /// Looks for the end of the head. The bytes after it belong to the body.
    fn advance(self, answer: &Answer) -> Result<Head, Trouble> {
        let Head::Incomplete(mut begun) = self else { return Ok(self) };
        let Some((_, length)) = head::parse(&begun, MAX_HEAD).map_err(Trouble::Head)? else {
            return Ok(Head::Incomplete(begun));
        };
        let head = begun.split_to(length).freeze();
        if !begun.is_empty() {
            answer.push(&begun).map_err(Trouble::Disk)?;
        }
        Ok(Head::Held(head))
    }
}

// === impl ClosedConnection ===

impl ClosedConnection {
    /// Logs that the request is sent again.
    pub fn log_retry(&self, was_reused: bool) {
        let ClosedConnection { address, reason } = self;
        // The end of a connection that was kept is usual.
        if was_reused {
            tracing::debug!(%address, reason, "a FastCGI server closed a connection that it had kept; sending the request again");
        } else {
            tracing::warn!(%address, reason, "a FastCGI server closed a connection without an answer; sending the request again");
        }
    }

    /// Logs that there is no answer, and returns what the client gets.
    pub fn fail(self) -> Failure {
        let ClosedConnection { address, reason } = self;
        tracing::error!(
            %address,
            reason,
            "a FastCGI server closed a connection without an answer; answering 502; its own log may have the reason"
        );
        Failure::WorkerDied { had_begun: false }
    }
}

// === impl Trouble ===

impl Trouble {
    /// Logs it, and returns what the client gets. `had_begun` is whether the client has the beginning of the response.
    fn settle(self, place: &Place, had_begun: bool) -> NoAnswer {
        let address = place.endpoint().clone();
        let outcome = |status: u16| match had_begun {
            true => "closing the client's connection".to_owned(),
            false => format!("answering {status}"),
        };
        NoAnswer::Failed(match self {
            Trouble::Unsent => return NoAnswer::Unsent,
            Trouble::Refused => return NoAnswer::Refused,
            Trouble::Closed { reason, had_answered: false } => {
                return NoAnswer::Closed(ClosedConnection { address, reason });
            }
            Trouble::Closed { reason, .. } => {
                tracing::error!(
                    %address,
                    reason,
                    "a FastCGI server closed a connection before the end of its answer; {}; its own log may have the reason",
                    outcome(502)
                );
                Failure::WorkerDied { had_begun: true }
            }
            Trouble::Violation(violation) => {
                tracing::error!(%address, "a FastCGI server broke the rules of its protocol: {violation}; {}", outcome(502));
                Failure::BadGateway
            }
            Trouble::Head(problem) => {
                tracing::error!(%address, "a FastCGI server sent no valid response: {problem}; {}", outcome(502));
                Failure::BadGateway
            }
            Trouble::NoResponse(ended) => {
                let problem = match ended.outcome {
                    Outcome::Complete => {
                        format!("it ended the request without headers, with the exit status {}", ended.status)
                    }
                    Outcome::UnknownRole => "it does not answer requests (FCGI_UNKNOWN_ROLE)".to_owned(),
                    Outcome::Overloaded | Outcome::NoMultiplexing => "it gave the request up".to_owned(),
                };
                tracing::error!(%address, "a FastCGI server sent no valid response: {problem}; {}", outcome(502));
                Failure::BadGateway
            }
            Trouble::Late(limit) => {
                let (seconds, outcome) = (limit.as_secs_f64(), outcome(504));
                tracing::warn!(
                    %address,
                    "a request takes longer than {seconds} s (limits/timeout); closing its connection; {outcome}"
                );
                Failure::GatewayTimeout
            }
            // No client reads it.
            Trouble::Abandoned => Failure::GatewayTimeout,
            Trouble::Disk(error) => {
                let outcome = outcome(500);
                tracing::error!(%error, "a temporary file failed; see settings/http/body_temp_path; {outcome}");
                Failure::Internal
            }
        })
    }
}
