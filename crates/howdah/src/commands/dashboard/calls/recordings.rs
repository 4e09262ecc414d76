//! Recordings of an application: the stack of one worker, samples for a flame graph, leaks.

use crate::commands::dashboard::answer::Answer;
use crate::commands::dashboard::calls::computing::computed;
use crate::commands::dashboard::calls::howdah::Howdah;
use crate::commands::leaks;
use crate::commands::profile::FULL_BYTES;
use crate::commands::profile::samples::{Samples, last_stack};
use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

/// Asks for the stack of one worker.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StackRequest {
    pid: u32,
}

/// Asks for samples.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileRequest {
    seconds: f64,
    rate: u32,
}

/// Asks for leaks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaksRequest {
    seconds: f64,
}

/// The stack of a worker that runs a request: its last of a few samples. The others are a reserve, as the first one may
/// come late on a busy machine.
///
/// # Errors
/// The answer for the page.
pub async fn stack(howdah: &Howdah, name: &str, body: &[u8]) -> Result<Answer, Answer> {
    let request: StackRequest = read(body, "{\"pid\": 4711}")?;
    let samples = howdah.record(name, "profile", &json!({ "seconds": 0.2, "rate": 20 })).await?.bytes;
    let Some(stack) = last_stack(&samples, request.pid) else {
        let reason = format!("worker {} ran no request just now", request.pid);
        return Err(Answer::error(StatusCode::NOT_FOUND, &reason));
    };
    let frames = stack.iter().map(|frame| json!({ "name": frame.name, "file": frame.file, "line": frame.line }));
    Ok(Answer::json(&json!({ "frames": frames.collect::<Vec<_>>() })))
}

/// Samples of all workers. No samples are an empty result: the page asks again until its user stops.
///
/// # Errors
/// The answer for the page.
pub async fn profile(howdah: &Howdah, name: &str, body: &[u8]) -> Result<Answer, Answer> {
    let request: ProfileRequest = read(body, "{\"seconds\": 10, \"rate\": 99}")?;
    let options = json!({ "seconds": request.seconds, "rate": request.rate });
    let bytes = howdah.record(name, "profile", &options).await?.bytes;
    Ok(Answer::json(&computed(move || describe(&bytes)).await?))
}

fn describe(bytes: &Bytes) -> Value {
    let samples = Samples::read(bytes);
    let frames: Vec<_> =
        samples.frames.iter().map(|frame| json!({ "name": frame.label(), "file": frame.file })).collect();
    let stacks: Vec<_> = samples.folded().into_iter().map(|(stack, count)| json!([stack, count])).collect();
    json!({ "samples": samples.count(), "workers": samples.worker_count(), "frames": frames, "stacks": stacks,
            "complete": bytes.len() < FULL_BYTES && samples.without_stack == 0 })
}

/// The routes that keep memory.
///
/// # Errors
/// The answer for the page.
pub async fn leaks(howdah: &Howdah, name: &str, body: &[u8]) -> Result<Answer, Answer> {
    let request: LeaksRequest = read(body, "{\"seconds\": 30}")?;
    let bytes = howdah.record(name, "memory", &json!({ "seconds": request.seconds })).await?.bytes;
    match computed(move || leaks::report_of(&bytes)).await? {
        Some(report) => Ok(Answer::json(&report)),
        None => {
            let reason = format!(
                "no worker ran two requests within {} s; measure it while it answers requests",
                request.seconds
            );
            Err(Answer::error(StatusCode::NOT_FOUND, &reason))
        }
    }
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8], example: &str) -> Result<T, Answer> {
    let reason = |error| format!("the body is not valid: {error}; write {example}");
    serde_json::from_slice(body).map_err(|error| Answer::error(StatusCode::BAD_REQUEST, &reason(error)))
}
