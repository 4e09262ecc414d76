//! The watch over the event loop of async mode: a thread beside PHP.
//!
//! PHP's event loops wait for descriptors, not for a futex. This thread sleeps on the worker's doorbell, and makes a
//! descriptor readable that the loop watches. The loop answers with a *turn*: it calls `accept()`. A loop that takes no turn is
//! blocked: a handler waits, or computes. Then the thread passes the wake-up on to another worker, and after
//! [`BLOCKED`] it logs the fact. While the script holds requests, the loop is asked for a turn after each [`PROBE`].
//!
//! When the worker takes no more requests, the script must end. A script that does not look at `is_running()` would run on
//! without requests, in the place of the next worker: the thread ends the worker then. PHP's thread writes atomics only.
//! The thread has no lock that would stay taken in a fork of PHP's thread.

#![allow(unsafe_code)] // calls C

use super::slow_requests::LoopSamples;
use crate::sapi;
use crate::worker::callbacks;
use crate::worker::request::TRACE_PARENT;
use crate::worker::service::WorkerLimits;
use howdah_channel::WorkerEnd;
use howdah_channel::account::{Current, monotonic};
use howdah_channel::request::{code, custom_text, texts};
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The watch. It lasts as long as the process.
pub struct LoopWatch(&'static Shared);

/// The state that both threads share.
struct Shared {
    end: &'static WorkerEnd,
    limits: WorkerLimits,
    /// The threshold of the slow log, and the most samples.
    slow_log: Option<(Duration, u32)>,
    /// The time after which a loop with requests is asked for a turn.
    probe: Duration,
    /// Readable when the loop must take a turn.
    readable: OwnedFd,
    turns: AtomicU64,
    /// How many requests the script holds.
    held: AtomicU64,
    oldest: RequestWords,
    /// The request that the script used last.
    last_used: RequestWords,
    /// The script ends when it has answered its requests: it need not watch the descriptor any more.
    is_over: AtomicBool,
    /// The thread wakes up by itself, too.
    is_timed: AtomicBool,
}

/// A request: its slot and its sequence number, and when it began. The two words may belong to different requests for a
/// moment; they are for log lines.
#[derive(Default)]
struct RequestWords {
    name: AtomicU64,
    began: AtomicU64,
}

/// A turn that the loop is asked for. Times are those of [`monotonic`].
struct Awaited {
    /// The turns that it had taken before.
    turns: u64,
    since: Duration,
    is_passed_on: bool,
    /// The time without a turn after which it is reported.
    report_after: Duration,
    samples: LoopSamples,
}

/// A loop that takes no turn for this time leaves its requests to other workers.
const PASS_ON: Duration = Duration::from_millis(2);
/// A loop that takes no turn for this time is reported: once, and whenever the time has doubled.
const BLOCKED: Duration = Duration::from_secs(1);
/// The time after which a loop with requests is asked for a turn: the threshold of the slow log, but this at most, and at least
/// [`SHORTEST_PROBE`].
const PROBE: Duration = Duration::from_secs(1);
/// The least time between two probes.
const SHORTEST_PROBE: Duration = Duration::from_millis(50);
/// The time that a script has after its last request, when the worker has reached its limits.
const LONGEST_END: Duration = Duration::from_secs(5);
/// Times are rounded: without this, the thread could wake up too early again and again.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
const STACK_BYTES: usize = 256 * 1024;
/// The most characters of a request's path that the log shows.
const NAME_CHARS: usize = 300;

// === impl LoopWatch ===

impl LoopWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there is no descriptor or no thread for it.
    pub fn begin(end: &'static WorkerEnd, limits: WorkerLimits) -> io::Result<LoopWatch> {
        let slow_log = sapi::slow_log_rule();
        let shared: &'static Shared = Box::leak(Box::new(Shared {
            end,
            limits,
            slow_log,
            probe: slow_log.map_or(PROBE, |(threshold, _)| threshold.clamp(SHORTEST_PROBE, PROBE)),
            readable: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            turns: AtomicU64::new(0),
            held: AtomicU64::new(0),
            oldest: RequestWords::default(),
            last_used: RequestWords::default(),
            is_over: AtomicBool::new(false),
            is_timed: AtomicBool::new(false),
        }));
        let rings = end.rings();
        // PHP's thread handles all signals to the process.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let thread = thread::Builder::new().name("loop watch".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || shared.run(rings));
        mask.thread_set_mask()?;
        started.map(|_| LoopWatch(shared))
    }

    /// The descriptor that is readable when the loop must take a turn.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.readable.as_fd()
    }

    /// The loop takes a turn.
    pub fn turn(&self) {
        self.0.turns.store(self.0.turns.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        self.0.signal();
    }

    /// The descriptor is not readable any more.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0.readable, &mut [0; 8]);
    }

    /// The script holds this number of requests, of which this is the oldest.
    pub fn holds(&self, count: usize, oldest: Option<Current>) {
        oldest.into_iter().for_each(|oldest| self.0.oldest.set(oldest));
        self.0.held.store(count as u64, Ordering::SeqCst);
        if count > 0 && !self.0.is_timed.load(Ordering::SeqCst) {
            self.0.is_timed.store(true, Ordering::SeqCst);
            self.0.end.ring();
        }
    }

    /// The script ends when it has answered its requests. This is the last time that the descriptor becomes readable.
    pub fn ends(&self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.signal();
    }

    /// Whether [`Self::ends`] was called.
    pub fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::SeqCst)
    }

    /// The script uses this request.
    pub fn uses(&self, request: Current) {
        self.0.last_used.set(request);
    }

    /// Method and path of a request that the script holds, for the log.
    pub fn name_of(&self, request: Current) -> String {
        self.0.name_of(request)
    }
}

// === impl Shared ===

impl Shared {
    /// The thread. `rings` is the state of the doorbell before the first request.
    fn run(&self, mut rings: u32) {
        let (mut awaited, mut signalled) = (None::<Awaited>, Duration::ZERO);
        loop {
            let rung = self.end.wait_for_ring(rings, self.timeout(awaited.as_ref(), signalled));
            let (now, turns) = (monotonic(), self.turns.load(Ordering::SeqCst));
            let is_rung = rung != rings;
            rings = rung;
            if let Some(over) = awaited.take_if(|awaited| awaited.turns != turns)
                && over.report_after > BLOCKED
            {
                let blocked = now.saturating_sub(over.since).as_secs_f64();
                self.limits.warn(&format!("runs its event loop again, which was blocked for {blocked:.1} s"));
            }
            let is_probe_due = now.saturating_sub(signalled) >= self.probe && self.held.load(Ordering::SeqCst) > 0;
            if self.is_over.load(Ordering::SeqCst) || self.end.must_stop() {
                self.signal();
                self.end.pass_on();
                return self.watch_end();
            }
            if is_rung || (awaited.is_none() && is_probe_due) {
                signalled = now;
                let next = awaited.get_or_insert_with(|| Awaited::new(turns, now, self.slow_log));
                next.is_passed_on = false;
                self.signal();
            }
            if let Some(awaited) = awaited.as_mut() {
                self.look_at(awaited, now);
            }
        }
    }

    /// The worker has reached its limits. Ends it if its script does not end. A worker that must stop has a deadline of the
    /// supervisor.
    fn watch_end(&self) {
        let mut since = monotonic();
        while !self.end.must_stop() {
            let now = monotonic();
            if self.held.load(Ordering::SeqCst) > 0 {
                since = now;
            } else if now.saturating_sub(since) >= LONGEST_END {
                self.limits.warn(&format!(
                    "is ended: it has reached its limits, and its script has not ended within {} s after its last request; its \
                     event loop must end when howdah\\Async\\is_running() is false",
                    LONGEST_END.as_secs()
                ));
                callbacks::exit(0);
            }
            thread::sleep(PROBE);
        }
    }

    /// The time until something is to be done; `None`: only a ring is of interest.
    fn timeout(&self, awaited: Option<&Awaited>, signalled: Duration) -> Option<Duration> {
        if let Some(awaited) = awaited {
            let next = if awaited.is_passed_on { awaited.report_after } else { PASS_ON };
            let next = awaited.samples.due.map_or(next, |due| next.min(due));
            let left = next.saturating_sub(monotonic().saturating_sub(awaited.since));
            return Some(left.clamp(SHORTEST_SLEEP, PROBE));
        }
        self.is_timed.store(false, Ordering::SeqCst);
        if self.held.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.is_timed.store(true, Ordering::SeqCst);
        Some(self.probe.saturating_sub(monotonic().saturating_sub(signalled)).max(SHORTEST_SLEEP))
    }

    fn look_at(&self, awaited: &mut Awaited, now: Duration) {
        let waited = now.saturating_sub(awaited.since);
        if waited >= PASS_ON && !awaited.is_passed_on {
            awaited.is_passed_on = true;
            self.end.pass_on();
        }
        if awaited.samples.due.is_some_and(|due| waited >= due) {
            self.sample(&mut awaited.samples);
        }
        if waited >= awaited.report_after {
            awaited.report_after *= 2;
            self.report_blocked(waited, now);
        }
    }

    /// Without a request that was used last and is not answered yet, the stack belongs to none.
    fn sample(&self, samples: &mut LoopSamples) {
        samples.count();
        let used_last = self.last_used.get();
        let head = self.end.head_of(used_last.slot, used_last.sequence).unwrap_or_default();
        let names = [code::REQUEST_METHOD, code::REQUEST_URI, code::SCRIPT_FILENAME];
        if let [Some(method), Some(uri), Some(script)] = texts(&head, names) {
            let trace = custom_text(&head, TRACE_PARENT).unwrap_or_default();
            samples.log(used_last, [method, uri, script, trace], self.held.load(Ordering::SeqCst));
        }
    }

    fn report_blocked(&self, waited: Duration, now: Duration) {
        let held = self.held.load(Ordering::SeqCst);
        let mut report =
            format!("has a blocked event loop: no howdah\\Async\\accept() for {:.1} s", waited.as_secs_f64());
        if held > 0 {
            let describe = |request: &RequestWords| {
                let request = request.get();
                let age = now.saturating_sub(request.began).as_secs_f64();
                format!("{}, for {age:.1} s", self.name_of(request))
            };
            report += &format!(
                "; requests: {held}; used last: {}; oldest: {}",
                describe(&self.last_used),
                describe(&self.oldest)
            );
        }
        let stack = stack();
        if !stack.is_empty() {
            report += &format!("; PHP is in {stack}");
        }
        self.limits.warn(&report);
    }

    fn name_of(&self, request: Current) -> String {
        let head = self.end.head_of(request.slot, request.sequence).unwrap_or_default();
        let [method, uri] = texts(&head, [code::REQUEST_METHOD, code::REQUEST_URI]);
        let (Some(method), Some(uri)) = (method, uri) else { return "a request that is answered".to_owned() };
        // The query may contain secrets.
        let path = uri.split('?').next().unwrap_or_default();
        let text = format!("{method} {path}").replace(|c: char| c.is_control(), "?");
        text.chars().take(NAME_CHARS).collect()
    }

    fn signal(&self) {
        // EAGAIN: it is readable already.
        let _ = rustix::io::write(&self.readable, &1u64.to_ne_bytes());
    }
}

/// The innermost frames of PHP's stack.
fn stack() -> String {
    let mut bytes = [0; 2048];
    let mut text = sapi::Text { bytes: bytes.as_mut_ptr(), room: bytes.len(), len: 0 };
    // SAFETY: `room` is the length of `bytes`, which outlives the call; C counts in `len` what it writes. Only this thread
    // calls the function.
    unsafe { sapi::howdah_loop_stack(&raw mut text) };
    String::from_utf8_lossy(&bytes[..text.len]).into_owned()
}

// === impl RequestWords ===

impl RequestWords {
    fn set(&self, request: Current) {
        self.name.store(u64::from(request.sequence) << 32 | u64::from(request.slot), Ordering::Relaxed);
        self.began.store(request.began.as_nanos() as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Current {
        let name = self.name.load(Ordering::Relaxed);
        let began = Duration::from_nanos(self.began.load(Ordering::Relaxed));
        Current { slot: name as u16, sequence: (name >> 32) as u32, began }
    }
}

// === impl Awaited ===

impl Awaited {
    fn new(turns: u64, now: Duration, slow_log: Option<(Duration, u32)>) -> Awaited {
        let samples = LoopSamples::new(slow_log);
        Awaited { turns, since: now, is_passed_on: false, report_after: BLOCKED, samples }
    }
}
