//! A reply to a request: its answer, or something that becomes the answer later.

use crate::api::answer::ApiAnswer;
use crate::control::changes::change_request::ChangeOutcome;
use crate::generation::php::recording::RecordingOutcome;
use howdah_config::{Refusal, answer};
use howdah_protocol::test_time::divided;
use std::time::Duration;
use tokio::sync::oneshot;

/// A reply.
#[derive(Debug)]
pub enum Reply {
    /// The answer.
    Answer(ApiAnswer),
    /// A change of the configuration has begun.
    Change(oneshot::Receiver<ChangeOutcome>),
    /// A restart of an application has begun.
    Restart(oneshot::Receiver<ChangeOutcome>),
    /// A recording has begun.
    Recording(oneshot::Receiver<RecordingOutcome>),
    /// The end of a slow log is being read.
    SlowLog(oneshot::Receiver<Result<Vec<u8>, String>>),
}

/// The status of a request that is valid, but failed.
const FAILED: u16 = 500;
/// The error of a recording that failed.
pub const NOT_RECORDED: &str = "The application was not recorded.";
/// The error of a slow log that cannot be read.
pub const UNREADABLE: &str = "The slow log cannot be read.";
/// The reason when the reading takes too long.
pub const HANGING: &str = "its file system does not answer, or no thread can be started";
/// How long the reading of a slow log may take.
const SLOW_LOG_TIMEOUT: Duration = Duration::from_secs(5);

// === impl Reply ===

impl Reply {
    /// The answer, when it is complete; `None` if the supervisor exits before.
    pub async fn answer(self) -> Option<ApiAnswer> {
        match self {
            Reply::Answer(answer) => Some(answer),
            Reply::Change(outcome) => {
                Some(of_change(outcome.await.ok()?, answer::text::RECONFIGURED, answer::text::NOT_APPLIED))
            }
            Reply::Restart(outcome) => {
                Some(of_change(outcome.await.ok()?, answer::text::RESTARTED, answer::text::NOT_RESTARTED))
            }
            Reply::Recording(outcome) => Some(match outcome.await.ok()? {
                Ok(lines) => ApiAnswer::bytes(lines),
                Err(problem) => Refusal::new(FAILED, NOT_RECORDED, problem).into(),
            }),
            Reply::SlowLog(tail) => Some(match tokio::time::timeout(divided(SLOW_LOG_TIMEOUT), tail).await {
                Ok(read) => match read.ok()? {
                    Ok(bytes) => ApiAnswer::bytes(bytes),
                    Err(problem) => Refusal::new(FAILED, UNREADABLE, problem).into(),
                },
                Err(_) => Refusal::new(503, UNREADABLE, HANGING).into(),
            }),
        }
    }
}

fn of_change(outcome: ChangeOutcome, success: &str, failure: &str) -> ApiAnswer {
    match outcome {
        Ok(etag) => ApiAnswer::success(success).with_etag(etag),
        Err(reason) => Refusal::new(FAILED, failure, reason).into(),
    }
}
