//! `POST /control/applications/NAME/profile`: where the time of an application goes. The samples are the answer; the
//! client interprets them.

use crate::api::answer::no_such_application;
use crate::api::reply::{NOT_PROFILED, Reply};
use crate::api::request::ControlRequest;
use crate::control::Control;
use crate::generation::php::profile::ProfileOutcome;
use howdah_channel::sampling::MAX_RATE;
use howdah_config::{Refusal, answer};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The options of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProfileOptions {
    seconds: f64,
    /// Samples a second.
    rate: u32,
}

const DEFAULT: ProfileOptions = ProfileOptions { seconds: 10.0, rate: 99 };
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;

/// Begins a profile of the application. Other requests are answered meanwhile.
pub fn begin(name: &str, request: ControlRequest, control: &mut Control, now: Instant) {
    match try_begin(name, &request, control, now) {
        Ok(outcome) => {
            let _ = request.reply.send(Reply::Profile(outcome));
        }
        Err(refusal) => request.answer(refusal),
    }
}

fn try_begin(
    name: &str,
    request: &ControlRequest,
    control: &mut Control,
    now: Instant,
) -> Result<oneshot::Receiver<ProfileOutcome>, Refusal> {
    if request.method != "POST" {
        return Err(Refusal::new(405, answer::text::METHOD_NOT_ALLOWED, "POST profiles an application"));
    }
    let id = control.served().generations.get(name).copied().ok_or_else(|| no_such_application(name))?;
    let generation = control
        .runtime
        .generations
        .get_mut(id)
        .ok_or_else(|| Refusal::new(500, NOT_PROFILED, "it stopped or was restarted meanwhile; try again"))?
        .as_php_mut()
        .ok_or_else(|| Refusal::new(404, NOT_PROFILED, format!("{name:?} is not a PHP application")))?;
    if let Some(left) = generation.profile_time_left(now) {
        let detail = format!("another client profiles {name:?} already; try again in {} s", left.as_secs() + 1);
        return Err(Refusal::new(409, NOT_PROFILED, detail));
    }
    let options = read(&request.body)?;
    generation
        .begin_profile(Duration::from_secs_f64(options.seconds), options.rate, now)
        .map_err(|error| Refusal::new(500, NOT_PROFILED, format!("cannot clear its samples: {error}")))
}

fn read(body: &[u8]) -> Result<ProfileOptions, Refusal> {
    let refused = |detail: String| Refusal::new(400, NOT_PROFILED, detail);
    if body.is_empty() {
        return Ok(DEFAULT);
    }
    let value: Value =
        serde_json::from_slice(body).map_err(|error| refused(format!("the body is not JSON: {error}")))?;
    let example = "write {\"seconds\": 10, \"rate\": 99}";
    let members = value.as_object().ok_or_else(|| refused(format!("the body is not an object; {example}")))?;
    let mut options = DEFAULT;
    for (name, value) in members {
        match name.as_str() {
            "seconds" => {
                let seconds = value.as_f64().filter(|seconds| SECONDS.contains(seconds));
                options.seconds = seconds.ok_or_else(|| {
                    refused(format!("seconds: {value} is not a number from {} to {}", SECONDS.start(), SECONDS.end()))
                })?;
            }
            "rate" => {
                let rate = value.as_u64().filter(|rate| (1..=u64::from(MAX_RATE)).contains(rate));
                let rate = rate.ok_or_else(|| {
                    refused(format!("rate: {value} is not a whole number from 1 to {MAX_RATE}, of samples a second"))
                })?;
                options.rate = rate as u32;
            }
            _ => return Err(refused(format!("{name:?}: there is no such option; {example}"))),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_a_wrong_one_is_named() {
        assert_eq!(read(b""), Ok(DEFAULT));
        assert_eq!(read(b"{}"), Ok(DEFAULT));
        assert_eq!(read(br#"{"seconds": 0.5, "rate": 1000}"#), Ok(ProfileOptions { seconds: 0.5, rate: 1000 }));
        for (body, expected) in [
            ("[1]", "the body is not an object; write {\"seconds\": 10, \"rate\": 99}"),
            (r#"{"seconds": 0}"#, "seconds: 0 is not a number from 0.1 to 600"),
            (r#"{"rate": 1001}"#, "rate: 1001 is not a whole number from 1 to 1000, of samples a second"),
            (r#"{"rate": 9.5}"#, "rate: 9.5 is not a whole number from 1 to 1000, of samples a second"),
            (r#"{"hz": 9}"#, "\"hz\": there is no such option; write {\"seconds\": 10, \"rate\": 99}"),
        ] {
            assert_eq!(read(body.as_bytes()).unwrap_err().detail.as_deref(), Some(expected), "{body}");
        }
    }
}
