//! Recordings of an application, one at a time. The lines that its workers write are the answer; the client interprets them.
//!
//! - `POST /control/applications/NAME/profile`: where the time goes
//! - `POST /control/applications/NAME/memory`: which memory its worker scripts keep

use crate::api::answer::no_such_application;
use crate::api::reply::{NOT_RECORDED, Reply};
use crate::api::request::{ControlRequest, RecordingKind};
use crate::control::Control;
use crate::generation::php::recording::{RecordingOutcome, Subject};
use howdah_channel::sampling::MAX_RATE;
use howdah_config::{Refusal, answer};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The options of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecordingOptions {
    seconds: f64,
    subject: Subject,
}

const DEFAULT_SECONDS: f64 = 10.0;
/// In samples a second.
const DEFAULT_RATE: u32 = 99;
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;

/// Begins a recording of the application. Other requests are answered meanwhile.
pub fn begin(name: &str, kind: RecordingKind, request: ControlRequest, control: &mut Control, now: Instant) {
    match try_begin(name, kind, &request, control, now) {
        Ok(outcome) => {
            let _ = request.reply.send(Reply::Recording(outcome));
        }
        Err(refusal) => request.answer(refusal),
    }
}

fn try_begin(
    name: &str,
    kind: RecordingKind,
    request: &ControlRequest,
    control: &mut Control,
    now: Instant,
) -> Result<oneshot::Receiver<RecordingOutcome>, Refusal> {
    if request.method != "POST" {
        return Err(Refusal::new(405, answer::text::METHOD_NOT_ALLOWED, "POST records an application"));
    }
    let refused = |status: u16, detail: String| Refusal::new(status, NOT_RECORDED, detail);
    let id = control.served().generations.get(name).copied().ok_or_else(|| no_such_application(name))?;
    let generation = control
        .runtime
        .generations
        .get_mut(id)
        .ok_or_else(|| refused(500, "it stopped or was restarted meanwhile; try again".to_owned()))?
        .as_php_mut()
        .ok_or_else(|| refused(404, format!("{name:?} is not of the type \"php\", and cannot be recorded")))?;
    if kind == RecordingKind::Memory && !generation.has_worker_script() {
        let detail = format!("{name:?} has no worker script: PHP frees all of its memory after each request");
        return Err(refused(404, detail));
    }
    if let Some(left) = generation.recording_time_left(now) {
        let detail = format!("another client records {name:?} already; try again in {} s", left.as_secs() + 1);
        return Err(refused(409, detail));
    }
    let options = read(&request.body, kind)?;
    generation
        .begin_recording(options.subject, Duration::from_secs_f64(options.seconds), now)
        .map_err(|error| refused(500, format!("cannot clear the file of its workers' lines: {error}")))
}

fn read(body: &[u8], kind: RecordingKind) -> Result<RecordingOptions, Refusal> {
    let refused = |detail: String| Refusal::new(400, NOT_RECORDED, detail);
    let mut seconds = DEFAULT_SECONDS;
    let mut rate = DEFAULT_RATE;
    let example = match kind {
        RecordingKind::Profile => "write {\"seconds\": 10, \"rate\": 99}",
        RecordingKind::Memory => "write {\"seconds\": 10}",
    };
    let body = if body.is_empty() { b"{}" } else { body };
    let value: Value =
        serde_json::from_slice(body).map_err(|error| refused(format!("the body is not JSON: {error}")))?;
    let members = value.as_object().ok_or_else(|| refused(format!("the body is not an object; {example}")))?;
    for (name, value) in members {
        match (name.as_str(), kind) {
            ("seconds", _) => {
                let wanted = value.as_f64().filter(|seconds| SECONDS.contains(seconds));
                seconds = wanted.ok_or_else(|| {
                    refused(format!("seconds: {value} is not a number from {} to {}", SECONDS.start(), SECONDS.end()))
                })?;
            }
            ("rate", RecordingKind::Profile) => {
                let wanted = value.as_u64().filter(|rate| (1..=u64::from(MAX_RATE)).contains(rate));
                let wanted = wanted.ok_or_else(|| {
                    refused(format!("rate: {value} is not a whole number from 1 to {MAX_RATE}, of samples a second"))
                })?;
                rate = wanted as u32;
            }
            _ => return Err(refused(format!("{name:?}: there is no such option; {example}"))),
        }
    }
    let subject = match kind {
        RecordingKind::Profile => Subject::Stacks(rate),
        RecordingKind::Memory => Subject::KeptMemory,
    };
    Ok(RecordingOptions { seconds, subject })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_a_wrong_one_is_named() {
        let profile = |seconds: f64, rate: u32| RecordingOptions { seconds, subject: Subject::Stacks(rate) };
        assert_eq!(read(b"", RecordingKind::Profile), Ok(profile(10.0, 99)));
        assert_eq!(read(b"{}", RecordingKind::Profile), Ok(profile(10.0, 99)));
        assert_eq!(read(br#"{"seconds": 0.5, "rate": 1000}"#, RecordingKind::Profile), Ok(profile(0.5, 1000)));
        let memory = RecordingOptions { seconds: 60.0, subject: Subject::KeptMemory };
        assert_eq!(read(br#"{"seconds": 60}"#, RecordingKind::Memory), Ok(memory));
        for (body, kind, expected) in [
            ("[1]", RecordingKind::Profile, "the body is not an object; write {\"seconds\": 10, \"rate\": 99}"),
            (r#"{"seconds": 0}"#, RecordingKind::Memory, "seconds: 0 is not a number from 0.1 to 600"),
            (
                r#"{"rate": 1001}"#,
                RecordingKind::Profile,
                "rate: 1001 is not a whole number from 1 to 1000, of samples a second",
            ),
            (
                r#"{"rate": 9.5}"#,
                RecordingKind::Profile,
                "rate: 9.5 is not a whole number from 1 to 1000, of samples a second",
            ),
            (
                r#"{"hz": 9}"#,
                RecordingKind::Profile,
                "\"hz\": there is no such option; write {\"seconds\": 10, \"rate\": 99}",
            ),
            (r#"{"rate": 99}"#, RecordingKind::Memory, "\"rate\": there is no such option; write {\"seconds\": 10}"),
        ] {
            let refusal = read(body.as_bytes(), kind).unwrap_err();
            assert_eq!(refusal.detail.as_deref(), Some(expected), "{body}");
        }
    }
}
