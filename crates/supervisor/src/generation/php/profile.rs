//! The profile of an application: the workers' samplers append to a file in memory, and its bytes are the profile.
//!
//! One profile is made at a time. It ends early if its receiver has gone. The samplers do not lock the file, so a profile
//! may be a little longer than they should write.

use howdah_channel::{ControlEnd, WorkerId};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The samples of a profile, or why they do not exist.
pub type ProfileOutcome = Result<Vec<u8>, String>;

/// The file for samples, and the profile that is being made.
#[derive(Debug)]
pub struct Profiler {
    samples: OwnedFd,
    profile: Option<Profile>,
}

#[derive(Debug)]
struct Profile {
    until: Instant,
    /// When to check whether the receiver has gone.
    look_at: Instant,
    outcome: oneshot::Sender<ProfileOutcome>,
}

const LOOK: Duration = Duration::from_secs(1);
/// The samplers stop at a little less than this.
const MAX_BYTES: usize = 17 << 20;

// === impl Profiler ===

impl Profiler {
    /// Makes the file: it is open for appending for all that share the descriptor.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn new() -> io::Result<Profiler> {
        let samples = rustix::fs::memfd_create("howdah-samples", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&samples, rustix::fs::OFlags::APPEND)?;
        // PHP code finds it in /proc/self/fd, and must not open it again.
        rustix::fs::fchmod(&samples, rustix::fs::Mode::empty())?;
        Ok(Profiler { samples, profile: None })
    }

    /// The file, for a prototype.
    ///
    /// # Errors
    /// When there is no descriptor for it.
    pub fn samples(&self) -> io::Result<OwnedFd> {
        self.samples.try_clone()
    }

    /// The time until the running profile ends; `None` if none is running.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        self.profile.as_ref().map(|profile| profile.until.saturating_duration_since(now))
    }

    /// Begins a profile of these workers, with this number of samples per second. A running profile is replaced.
    ///
    /// # Errors
    /// When the file cannot be emptied.
    pub fn begin(
        &mut self,
        control: &ControlEnd,
        workers: impl Iterator<Item = WorkerId>,
        duration: Duration,
        rate: u32,
        now: Instant,
    ) -> io::Result<oneshot::Receiver<ProfileOutcome>> {
        rustix::fs::ftruncate(&self.samples, 0)?;
        control.sample(rate, workers);
        let (sender, outcome) = oneshot::channel();
        self.profile = Some(Profile { until: now + duration, look_at: now + LOOK, outcome: sender });
        Ok(outcome)
    }

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.profile.as_ref().map(|profile| profile.look_at.min(profile.until))
    }

    /// Ends a profile whose time is over, or whose receiver has gone.
    pub fn on_time(&mut self, control: &ControlEnd, workers: impl Iterator<Item = WorkerId>, now: Instant) {
        let Some(profile) = &mut self.profile else { return };
        profile.look_at = now + LOOK;
        if profile.until <= now || profile.outcome.is_closed() {
            let outcome = self.read().map_err(|error| format!("cannot read its samples: {error}"));
            self.end(outcome, control, workers);
        }
    }

    /// Ends a profile early, because the application exits or is restarted.
    pub fn abort(&mut self, control: &ControlEnd, workers: impl Iterator<Item = WorkerId>) {
        self.end(Err("it stopped or was restarted meanwhile; try again".to_owned()), control, workers);
    }

    fn end(&mut self, outcome: ProfileOutcome, control: &ControlEnd, workers: impl Iterator<Item = WorkerId>) {
        let Some(profile) = self.profile.take() else { return };
        control.sample(0, workers);
        let _ = rustix::fs::ftruncate(&self.samples, 0);
        let _ = profile.outcome.send(outcome);
    }

    /// Reads by position: other processes that share the descriptor may have moved its offset.
    fn read(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(rustix::fs::fstat(&self.samples)?.st_size).unwrap_or(0).min(MAX_BYTES);
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match rustix::io::pread(&self.samples, &mut bytes[done..], done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }
}
