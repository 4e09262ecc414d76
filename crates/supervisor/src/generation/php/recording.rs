//! Recordings of an application: where its time goes, and which memory its worker scripts keep. The workers append lines to
//! a file in memory, and its bytes are the recording.
//!
//! One recording is made at a time. It ends early if its receiver has gone. The workers do not lock the file, so a recording
//! may be a little longer than they should write.

use howdah_channel::{ControlEnd, WorkerId};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The subject of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// PHP's stacks, sampled this number of times a second.
    Stacks(u32),
    /// The memory that worker scripts keep, after each request.
    KeptMemory,
}

/// The lines of a recording, or why they do not exist.
pub type RecordingOutcome = Result<Vec<u8>, String>;

/// The file of the workers' lines, and the recording that is being made.
#[derive(Debug)]
pub struct Recorder {
    lines: OwnedFd,
    recording: Option<Recording>,
    /// The number of the last recording of memory. A worker that sees another one starts from 1.
    memory_recordings: u32,
}

#[derive(Debug)]
struct Recording {
    until: Instant,
    /// When to check whether the receiver has gone.
    look_at: Instant,
    outcome: oneshot::Sender<RecordingOutcome>,
}

const LOOK: Duration = Duration::from_secs(1);
/// The workers stop at a little less than this.
const MAX_BYTES: usize = 17 << 20;

// === impl Recorder ===

impl Recorder {
    /// Makes the file: it is open for appending for all that share the descriptor.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn new() -> io::Result<Recorder> {
        let lines = rustix::fs::memfd_create("howdah-samples", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&lines, rustix::fs::OFlags::APPEND)?;
        // PHP code finds it in /proc/self/fd, and must not open it again.
        rustix::fs::fchmod(&lines, rustix::fs::Mode::empty())?;
        Ok(Recorder { lines, recording: None, memory_recordings: 0 })
    }

    /// The file, for a prototype.
    ///
    /// # Errors
    /// When there is no descriptor for it.
    pub fn file(&self) -> io::Result<OwnedFd> {
        self.lines.try_clone()
    }

    /// The time until the running recording ends; `None` if none is running.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        self.recording.as_ref().map(|recording| recording.until.saturating_duration_since(now))
    }

    /// Begins a recording of the workers with these channels. A running one is replaced.
    ///
    /// # Errors
    /// When the file cannot be emptied.
    pub fn begin(
        &mut self,
        pools: &[(&ControlEnd, Vec<WorkerId>)],
        subject: Subject,
        duration: Duration,
        now: Instant,
    ) -> io::Result<oneshot::Receiver<RecordingOutcome>> {
        rustix::fs::ftruncate(&self.lines, 0)?;
        match subject {
            Subject::Stacks(rate) => {
                pools.iter().for_each(|(control, workers)| control.sample(rate, workers.iter().copied()));
            }
            Subject::KeptMemory => {
                self.memory_recordings = self.memory_recordings.wrapping_add(1).max(1);
                pools.iter().for_each(|(control, _)| control.record_memory(self.memory_recordings));
            }
        }
        let (sender, outcome) = oneshot::channel();
        self.recording = Some(Recording { until: now + duration, look_at: now + LOOK, outcome: sender });
        Ok(outcome)
    }

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.recording.as_ref().map(|recording| recording.look_at.min(recording.until))
    }

    /// Ends a recording whose time is over, or whose receiver has gone.
    pub fn on_time<'p>(&mut self, pools: impl FnOnce() -> Vec<(&'p ControlEnd, Vec<WorkerId>)>, now: Instant) {
        let Some(recording) = &mut self.recording else { return };
        recording.look_at = now + LOOK;
        if recording.until <= now || recording.outcome.is_closed() {
            let outcome = self.read().map_err(|error| format!("cannot read what its workers wrote: {error}"));
            self.end(outcome, &pools());
        }
    }

    /// Ends a recording early, because the application exits or is restarted.
    pub fn abort(&mut self, pools: &[(&ControlEnd, Vec<WorkerId>)]) {
        self.end(Err("it stopped or was restarted meanwhile; try again".to_owned()), pools);
    }

    fn end(&mut self, outcome: RecordingOutcome, pools: &[(&ControlEnd, Vec<WorkerId>)]) {
        let Some(recording) = self.recording.take() else { return };
        for (control, workers) in pools {
            control.sample(0, workers.iter().copied());
            control.record_memory(0);
        }
        let _ = rustix::fs::ftruncate(&self.lines, 0);
        let _ = recording.outcome.send(outcome);
    }

    /// Reads by position: other processes that share the descriptor may have moved its offset.
    fn read(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(rustix::fs::fstat(&self.lines)?.st_size).unwrap_or(0).min(MAX_BYTES);
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match rustix::io::pread(&self.lines, &mut bytes[done..], done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }
}
