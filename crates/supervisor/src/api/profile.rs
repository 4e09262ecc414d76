//! Profiles: `POST /control/applications/NAME/profile`. The workers' samplers append samples to a file in memory; when
//! the time is over, the API returns its bytes. They are not interpreted here.
//!
//! Other requests to the API are answered meanwhile. An application has at most one profile at a time.

use crate::api::{Answer, Ask, no_such_application};
use crate::event_loop::Supervisor;
use crate::generation::Generation;
use howdah_channel::sampling::MAX_RATE;
use howdah_config::{Refusal, answer};
use serde_json::Value;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A profile that is being recorded.
#[derive(Debug)]
pub struct Recording {
    until: Instant,
    /// When to check next whether the client still waits for it.
    check_at: Instant,
    reply: oneshot::Sender<Answer>,
}

/// The options of a request for a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProfileRequest {
    seconds: f64,
    rate: u32,
}

const DEFAULT: ProfileRequest = ProfileRequest { seconds: 10.0, rate: 99 };
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=600.0;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A little more than the samplers write at most: they do not lock.
const MAX_BYTES: usize = 17 << 20;
const NOT_PROFILED: &str = "The application was not profiled.";

// === impl Supervisor ===

impl Supervisor {
    /// Begins a profile of the application.
    pub(crate) fn begin_profile(&mut self, name: &str, ask: Ask, now: Instant) {
        let result = match (ask.method.as_str(), self.in_force().generations.get(name).copied()) {
            ("POST", Some(id)) => self.generation_mut(id).ok_or_else(gone),
            ("POST", None) => Err(no_such_application(name)),
            _ => Err(Refusal::new(405, answer::text::METHOD_NOT_ALLOWED, "POST profiles an application")),
        };
        let refusal = match result {
            Ok(generation) if generation.profile.is_some() => {
                let left = generation.profile.as_ref().map_or(0, |profile| (profile.until - now).as_secs() + 1);
                let detail = format!("another client profiles {name:?} already; try again in {left} s");
                Refusal::new(409, NOT_PROFILED, detail)
            }
            Ok(generation) => match read(&ask.body) {
                Ok(wanted) => return generation.begin_profile(wanted, ask.reply, now),
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        let _ = ask.reply.send(refusal.into());
    }
}

// === impl Generation ===

impl Generation {
    fn begin_profile(&mut self, wanted: ProfileRequest, reply: oneshot::Sender<Answer>, now: Instant) {
        if let Err(error) = rustix::fs::ftruncate(&self.samples, 0) {
            let refusal = Refusal::new(500, NOT_PROFILED, format!("cannot clear its samples: {error}"));
            let _ = reply.send(refusal.into());
            return;
        }
        self.control.sample(wanted.rate, self.workers.alive().map(|(worker, _)| worker));
        self.profile = Some(Recording {
            until: now + Duration::from_secs_f64(wanted.seconds),
            check_at: now + CHECK_INTERVAL,
            reply,
        });
    }

    /// Ends a profile whose time is over, or whose client is gone.
    pub(crate) fn look_at_profile(&mut self, now: Instant) {
        let Some(profile) = &mut self.profile else { return };
        profile.check_at = now + CHECK_INTERVAL;
        if profile.until > now && !profile.reply.is_closed() {
            return;
        }
        let answer = read_samples(&self.samples).map(Answer::bytes).unwrap_or_else(|error| {
            Refusal::new(500, NOT_PROFILED, format!("cannot read its samples: {error}")).into()
        });
        self.end_profile(answer);
    }

    /// The application stops or restarts.
    pub(crate) fn give_up_profile(&mut self) {
        self.end_profile(gone().into());
    }

    /// When [`Self::look_at_profile`] has something to do.
    pub(crate) fn profile_deadline(&self) -> Option<Instant> {
        self.profile.as_ref().map(|profile| profile.check_at.min(profile.until))
    }

    fn end_profile(&mut self, answer: Answer) {
        let Some(profile) = self.profile.take() else { return };
        self.control.sample(0, self.workers.alive().map(|(worker, _)| worker));
        let _ = rustix::fs::ftruncate(&self.samples, 0);
        let _ = profile.reply.send(answer);
    }
}

fn gone() -> Refusal {
    Refusal::new(500, NOT_PROFILED, "it stopped or was restarted meanwhile; try again")
}

fn read(body: &[u8]) -> Result<ProfileRequest, Refusal> {
    let refused = |detail: String| Refusal::new(400, NOT_PROFILED, detail);
    if body.is_empty() {
        return Ok(DEFAULT);
    }
    let value: Value =
        serde_json::from_slice(body).map_err(|error| refused(format!("the body is not JSON: {error}")))?;
    let example = "write {\"seconds\": 10, \"rate\": 99}";
    let members = value.as_object().ok_or_else(|| refused(format!("the body is not an object; {example}")))?;
    let mut wanted = DEFAULT;
    for (name, value) in members {
        match name.as_str() {
            "seconds" => {
                let seconds = value.as_f64().filter(|seconds| SECONDS.contains(seconds));
                wanted.seconds = seconds.ok_or_else(|| {
                    refused(format!("seconds: {value} is not a number from {} to {}", SECONDS.start(), SECONDS.end()))
                })?;
            }
            "rate" => {
                let rate = value.as_u64().filter(|rate| (1..=u64::from(MAX_RATE)).contains(rate));
                let rate = rate.ok_or_else(|| {
                    refused(format!("rate: {value} is not a whole number from 1 to {MAX_RATE}, of samples a second"))
                })?;
                wanted.rate = rate as u32;
            }
            _ => return Err(refused(format!("{name:?}: there is no such option; {example}"))),
        }
    }
    Ok(wanted)
}

/// Reads by position, because other processes have the same descriptor, and may move its offset.
fn read_samples(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let len = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0).min(MAX_BYTES);
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match rustix::io::pread(file, &mut bytes[done..], done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// A file in memory that is open for appending, for all processes that share the descriptor.
///
/// # Errors
/// When there is no memory or no descriptor for it.
pub fn samples_file() -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("howdah-samples", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
    // PHP code finds the file in /proc/self/fd, and must not be able to open it again.
    rustix::fs::fchmod(&file, rustix::fs::Mode::empty())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_and_errors_name_the_option() {
        assert_eq!(read(b""), Ok(DEFAULT));
        assert_eq!(read(b"{}"), Ok(DEFAULT));
        assert_eq!(read(br#"{"seconds": 0.5, "rate": 1000}"#), Ok(ProfileRequest { seconds: 0.5, rate: 1000 }));
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
