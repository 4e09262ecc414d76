//! One thread of the load generator: an event loop over its connections.
//!
//! Latency-critical: no allocation and no system call beside `write`, `read` and `epoll_wait` on the way of a request over
//! an open connection. Sockets are registered once, edge-triggered; a timer of the kernel wakes the loop when the next
//! request is due, because the timeout of `epoll_wait` is too coarse for that.

use super::autostop::Beat;
use super::connection::{Connection, Request, State, Written};
use super::response::Reading;
use super::tally::{Exchange, Failure, Tally};
use super::thread_load::{Requests, ThreadPace};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// A worker's communication with the generator.
pub struct Control<'a> {
    /// Ends the load at once.
    pub stop: &'a AtomicBool,
    /// Gets the outcomes of each second.
    pub beats: Sender<Beat>,
    /// The index of the worker: its first request and session.
    pub number: usize,
}

/// The event of the timer.
const TIMER: u64 = u64::MAX;
/// The event of a connection that lingers, with its descriptor. The generations of others do not have this bit.
const LINGERS: u64 = 1 << 63;
/// How often time-outs are looked for.
const SWEEP: Duration = Duration::from_millis(10);
/// A client that could not connect waits before it tries again, so that it does not count its own haste.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(10);
/// A connection that the server closes is held until then, and for this time at most: if this side closed first, its ports would run
/// out. A server may keep a process for it until this side has closed, too.
const LINGER: Duration = Duration::from_millis(50);
/// A later send is the generator's fault.
const LATE: Duration = Duration::from_millis(1);
/// Requests that are sent before the next look at the responses.
const BURST: usize = 64;
const READ_BUFFER: usize = 64 * 1024;
const EVENTS: usize = 256;

struct Slot {
    connection: Option<Connection>,
    request: Option<Request>,
    /// Events of an earlier connection have an earlier number.
    generation: u32,
    cookies: Vec<String>,
}

struct Worker<'a> {
    requests: &'a Requests,
    control: Control<'a>,
    epoll: OwnedFd,
    timer: OwnedFd,
    start: Instant,
    end: Duration,
    slots: Vec<Slot>,
    /// Open loop: slots with an idle connection, the last used one at the end; and slots without a connection.
    idle: Vec<usize>,
    vacant: Vec<usize>,
    /// Open loop: requests that wait for a connection.
    pending: VecDeque<Request>,
    /// Closed loop: clients that can send, now or later.
    ready: Vec<usize>,
    resting: VecDeque<(Duration, usize)>,
    lingering: VecDeque<(Duration, OwnedFd)>,
    /// Requests that the closed loop has still to send.
    remaining: u64,
    is_open_loop: bool,
    /// The time for which the timer is set.
    wakes_at: Option<Duration>,
    sequence: u64,
    in_flight: usize,
    connections: u64,
    tally: Tally,
    beat: Beat,
    cpu: Duration,
    buffer: Vec<u8>,
}

/// Sends all requests of a thread, and waits for their outcomes.
///
/// # Errors
/// The kernel gives no epoll or timer descriptor.
pub fn run(requests: &Requests, pace: ThreadPace, start: Instant, control: Control) -> Result<Tally, String> {
    let describe = |error: Errno| format!("the load generator cannot start: {error}");
    let (is_open_loop, slots, end, remaining, moments) = match pace {
        ThreadPace::Open { moments, connections, end } => (true, connections, end, 0, moments),
        ThreadPace::Closed { clients, end, requests } => {
            (false, clients, end, requests, Box::new(std::iter::empty()) as Box<dyn Iterator<Item = Duration> + Send>)
        }
    };
    let worker = Worker {
        requests,
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(describe)?,
        timer: timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(describe)?,
        start,
        end,
        slots: (0..slots)
            .map(|_| Slot { connection: None, request: None, generation: 0, cookies: Vec::new() })
            .collect(),
        idle: Vec::new(),
        vacant: (0..slots).rev().collect(),
        pending: VecDeque::new(),
        ready: if is_open_loop { Vec::new() } else { (0..slots).rev().collect() },
        resting: VecDeque::new(),
        lingering: VecDeque::new(),
        remaining,
        is_open_loop,
        wakes_at: None,
        sequence: control.number as u64,
        in_flight: 0,
        connections: 0,
        tally: Tally::new(),
        beat: Beat::default(),
        cpu: thread_cpu(),
        buffer: vec![0; READ_BUFFER],
        control,
    };
    epoll::add(&worker.epoll, &worker.timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)
        .map_err(describe)?;
    worker.run(moments.peekable())
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

// === impl Worker ===

impl Worker<'_> {
    fn run(mut self, mut moments: Peekable<Box<dyn Iterator<Item = Duration> + Send>>) -> Result<Tally, String> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut last_sweep = Duration::ZERO;
        loop {
            let now = self.start.elapsed();
            self.beat_until(now);
            if self.control.stop.load(Ordering::Relaxed) {
                break;
            }
            let has_more_due = if self.is_open_loop { self.send_due(&mut moments, now) } else { self.send_ready(now) };
            if now >= last_sweep + SWEEP {
                last_sweep = now;
                self.sweep(now);
            }
            if self.is_finished(moments.peek().is_some(), now) {
                break;
            }
            if let Some(due) = moments.peek().filter(|_| !has_more_due) {
                self.wake_at(*due);
            }
            let timeout = if has_more_due { Duration::ZERO } else { SWEEP };
            self.handle_events(&mut events, timeout)?;
        }
        let now = self.start.elapsed();
        self.account_cpu(now);
        self.beat.second = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let _ = self.control.beats.send(std::mem::take(&mut self.beat));
        Ok(self.tally)
    }

    /// Open loop: sends what is due. Returns whether more is due.
    fn send_due(&mut self, moments: &mut Peekable<Box<dyn Iterator<Item = Duration> + Send>>, now: Duration) -> bool {
        for _ in 0..BURST {
            let Some(due) = moments.next_if(|due| *due <= now) else { return false };
            if now - due > LATE {
                self.tally.late(now - due);
            }
            self.tally.sent(due);
            let request = self.next_request(due);
            self.dispatch(request);
        }
        moments.peek().is_some_and(|due| *due <= now)
    }

    /// Closed loop: lets clients send that can. Returns whether there are more.
    fn send_ready(&mut self, now: Duration) -> bool {
        while self.resting.front().is_some_and(|(until, _)| *until <= now) {
            self.ready.extend(self.resting.pop_front().map(|(_, slot)| slot));
        }
        for _ in 0..BURST {
            let Some(slot) = self.ready.pop() else { return false };
            let due = self.start.elapsed();
            if due >= self.end || self.remaining == 0 {
                self.close(slot);
                continue;
            }
            self.remaining -= 1;
            self.tally.sent(due);
            let request = self.next_request(due);
            self.begin(slot, request);
        }
        !self.ready.is_empty()
    }

    fn is_finished(&self, has_moments: bool, now: Duration) -> bool {
        let has_work = if self.is_open_loop {
            has_moments || !self.pending.is_empty()
        } else {
            self.remaining > 0 && now < self.end
        };
        !has_work && self.in_flight == 0
    }

    fn next_request(&mut self, due: Duration) -> Request {
        let target = self.requests.mix.target(self.sequence);
        self.sequence += 1;
        let may_repeat = self.requests.targets[target].target.is_idempotent();
        Request { target, due, deadline: due + self.requests.timeout, may_repeat }
    }

    /// Open loop: a free connection, or a new one, or the queue.
    fn dispatch(&mut self, request: Request) {
        match self.idle.pop().or_else(|| self.vacant.pop()) {
            Some(slot) => self.begin(slot, request),
            None => self.pending.push_back(request),
        }
    }

    /// Sends a request over the slot's connection, or over a new one.
    fn begin(&mut self, slot: usize, request: Request) {
        self.in_flight += 1;
        self.slots[slot].request = Some(request);
        if self.slots[slot].connection.is_none() {
            self.connect(slot);
        } else {
            self.compose(slot);
            self.write(slot);
        }
    }

    fn connect(&mut self, slot: usize) {
        self.tally.connects += 1;
        let connection = match Connection::open(&self.requests.endpoint) {
            Ok(connection) => connection,
            Err(failure) => return self.fail(slot, failure),
        };
        let this = &mut self.slots[slot];
        this.generation = this.generation.wrapping_add(1);
        let data = EventData::new_u64(u64::from(this.generation & 0x7fff_ffff) << 32 | slot as u64);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if epoll::add(&self.epoll, &connection.socket, data, flags).is_err() {
            return self.fail(slot, Failure::ConnectFailed);
        }
        let is_connected = connection.state == State::Busy;
        this.connection = Some(connection);
        self.connections += 1;
        self.tally.peak_connections = self.tally.peak_connections.max(self.connections);
        self.compose(slot);
        if is_connected {
            self.write(slot);
        }
    }

    /// Writes the bytes of the slot's request into the connection's output.
    fn compose(&mut self, slot: usize) {
        let this = &mut self.slots[slot];
        let (Some(connection), Some(request)) = (&mut this.connection, this.request) else { return };
        let prepared = &self.requests.targets[request.target];
        connection.written = 0;
        connection.response.reset();
        connection.output.clear();
        connection.output.extend_from_slice(&prepared.head);
        if !this.cookies.is_empty() || !self.requests.sessions.is_empty() {
            let sessions = &self.requests.sessions;
            let own = sessions.get((slot + self.control.number) % sessions.len().max(1)).into_iter();
            let all: Vec<&str> = own.chain(&this.cookies).map(String::as_str).collect();
            connection.output.extend_from_slice(format!("Cookie: {}\r\n", all.join("; ")).as_bytes());
        }
        connection.output.extend_from_slice(b"\r\n");
        connection.output.extend_from_slice(&prepared.target.body);
        if connection.state == State::Idle {
            connection.state = State::Busy;
        }
    }

    fn write(&mut self, slot: usize) {
        let Some(connection) = &mut self.slots[slot].connection else { return };
        if connection.write() == Written::Lost {
            // The response may be there nevertheless: the server may answer before it has read the whole request.
            self.read(slot, true);
        }
    }

    fn handle_events(&mut self, events: &mut Vec<epoll::Event>, timeout: Duration) -> Result<(), String> {
        events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("the load generator cannot wait for responses: {error}")),
        }
        for event in events.iter() {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == TIMER {
                continue;
            }
            if data & LINGERS == 0 {
                self.handle_event((data & 0xffff_ffff) as usize, (data >> 32) as u32, flags);
            } else {
                self.lingering.retain(|(_, socket)| socket.as_raw_fd() as u64 != data & !LINGERS);
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, slot: usize, generation: u32, flags: EventFlags) {
        let this = &mut self.slots[slot];
        if this.generation & 0x7fff_ffff != generation {
            return;
        }
        let Some(connection) = &mut this.connection else { return };
        let is_ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match connection.state {
            State::Connecting => match connection.finish_connecting() {
                Ok(()) => {
                    self.write(slot);
                    if flags.contains(EventFlags::IN) {
                        self.read(slot, is_ending);
                    }
                }
                Err(failure) => {
                    self.close(slot);
                    self.fail(slot, failure);
                }
            },
            State::Busy => {
                if flags.contains(EventFlags::OUT) && connection.written < connection.output.len() {
                    self.write(slot);
                }
                if flags.contains(EventFlags::IN) || is_ending {
                    self.read(slot, is_ending);
                }
            }
            State::Idle if is_ending => {
                self.close(slot);
                if let Some(position) = self.idle.iter().position(|idle| *idle == slot) {
                    self.idle.swap_remove(position);
                    self.vacant.push(slot);
                }
            }
            // Bytes without a request: the next response will be malformed.
            State::Idle => {}
        }
    }

    /// Reads until nothing is left. `is_ending`: the server has closed or reset the connection.
    fn read(&mut self, slot: usize, is_ending: bool) {
        loop {
            let this = &mut self.slots[slot];
            let (Some(connection), Some(request)) = (&mut this.connection, this.request) else { return };
            let length = match rustix::io::read(&connection.socket, &mut self.buffer) {
                Ok(length) => length,
                Err(Errno::AGAIN) => {
                    // A write failed, and nothing is there to be read.
                    if is_ending && connection.written < connection.output.len() {
                        self.lost(slot, Failure::Reset);
                    }
                    return;
                }
                Err(Errno::INTR) => continue,
                Err(_) => return self.lost(slot, Failure::Reset),
            };
            if length == 0 {
                return if connection.response.end_of_connection() {
                    self.complete(slot, true)
                } else {
                    self.lost(slot, Failure::ClosedEarly)
                };
            }
            self.tally.received_bytes += length as u64;
            let target = &self.requests.targets[request.target].target;
            let reading = Reading {
                checks: &target.checks,
                is_head: target.method == "HEAD",
                keeps_cookies: self.requests.keeps_cookies,
            };
            match connection.response.feed(&self.buffer[..length], reading) {
                Ok(true) => return self.complete(slot, is_ending),
                Ok(false) if length < self.buffer.len() && !is_ending => return,
                Ok(false) => {}
                Err(_) => {
                    self.close(slot);
                    return self.fail(slot, Failure::Malformed);
                }
            }
        }
    }

    /// A complete response: judges it, and decides about the connection.
    fn complete(&mut self, slot: usize, is_ending: bool) {
        let this = &mut self.slots[slot];
        let (Some(connection), Some(request)) = (&mut this.connection, this.request) else { return };
        let response = &connection.response;
        let checks = &self.requests.targets[request.target].target.checks;
        let (length, body) = response.body();
        let failure = if !checks.is_right_status(response.status()) {
            Some(Failure::WrongStatus)
        } else if !response.has_right_headers() {
            Some(Failure::WrongHeader)
        } else if !checks.is_right_body(length, body) {
            Some(Failure::WrongBody)
        } else {
            None
        };
        for cookie in response.cookies() {
            let name = cookie.split('=').next().unwrap_or_default();
            this.cookies.retain(|other| other.split('=').next() != Some(name));
            this.cookies.push(cookie.clone());
        }
        let status = response.status();
        connection.is_reused = true;
        connection.state = State::Idle;
        if is_ending {
            self.close(slot);
        } else if response.closes() || !self.requests.keep_alive {
            self.linger(slot);
        }
        self.finish(slot, Some(status), failure);
    }

    /// The connection ended without a complete response.
    fn lost(&mut self, slot: usize, failure: Failure) {
        let this = &mut self.slots[slot];
        let (Some(connection), Some(request)) = (&this.connection, &mut this.request) else { return };
        // The server closed a connection that it had kept alive, at the moment at which the request was sent.
        let repeats = connection.is_reused && request.may_repeat && !connection.response.has_begun();
        request.may_repeat = false;
        self.close(slot);
        if repeats {
            self.connect(slot);
        } else {
            self.fail(slot, failure);
        }
    }

    fn fail(&mut self, slot: usize, failure: Failure) {
        self.finish(slot, None, Some(failure));
    }

    /// The outcome of the slot's request. The connection is idle or closed.
    fn finish(&mut self, slot: usize, status: Option<u16>, failure: Option<Failure>) {
        let Some(request) = self.slots[slot].request.take() else { return };
        let now = self.start.elapsed();
        self.in_flight -= 1;
        self.record(request.due, now, status, failure);
        let is_refused = failure.is_some_and(Failure::is_of_connecting);
        if self.is_open_loop {
            // Not at once after a refusal: the connection would be tried again without end.
            let next = if is_refused { None } else { self.pending.pop_front() };
            match next {
                Some(request) => self.begin(slot, request),
                None if self.slots[slot].connection.is_some() => self.idle.push(slot),
                None => self.vacant.push(slot),
            }
        } else if is_refused {
            self.resting.push_back((now + PAUSE_AFTER_REFUSAL, slot));
        } else if self.slots[slot].connection.is_some() && self.remaining > 0 && now < self.end {
            self.remaining -= 1;
            self.tally.sent(now);
            let request = self.next_request(now);
            self.begin(slot, request);
        } else {
            self.ready.push(slot);
        }
    }

    fn record(&mut self, due: Duration, now: Duration, status: Option<u16>, failure: Option<Failure>) {
        let exchange = Exchange { due, took: now.saturating_sub(due), status, failure };
        self.tally.record(&exchange, self.end);
        self.beat.record(&exchange);
    }

    /// Time-outs; requests that wait for a connection; connections that linger.
    fn sweep(&mut self, now: Duration) {
        while self.lingering.front().is_some_and(|(until, _)| *until <= now) {
            self.lingering.pop_front();
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].request.is_some_and(|request| request.deadline <= now) {
                let is_connecting = self.slots[slot]
                    .connection
                    .as_ref()
                    .is_some_and(|connection| connection.state == State::Connecting);
                self.close(slot);
                self.fail(slot, if is_connecting { Failure::ConnectTimeout } else { Failure::Timeout });
            }
        }
        while self.pending.front().is_some_and(|request| request.deadline <= now) {
            if let Some(request) = self.pending.pop_front() {
                self.record(request.due, now, None, Some(Failure::Timeout));
            }
        }
        while !self.pending.is_empty() {
            let Some(slot) = self.idle.pop().or_else(|| self.vacant.pop()) else { break };
            match self.pending.pop_front() {
                Some(request) => self.begin(slot, request),
                None => break,
            }
        }
    }

    fn close(&mut self, slot: usize) {
        let this = &mut self.slots[slot];
        if this.connection.take().is_some() {
            this.generation = this.generation.wrapping_add(1);
            self.connections -= 1;
        }
    }

    /// Closes the connection later: the server closes its side first.
    fn linger(&mut self, slot: usize) {
        let this = &mut self.slots[slot];
        if let Some(connection) = this.connection.take() {
            this.generation = this.generation.wrapping_add(1);
            self.connections -= 1;
            let data = EventData::new_u64(LINGERS | connection.socket.as_raw_fd() as u64);
            let _ = epoll::modify(&self.epoll, &connection.socket, data, EventFlags::RDHUP | EventFlags::ET);
            self.lingering.push_back((self.start.elapsed() + LINGER, connection.socket));
        }
    }

    fn wake_at(&mut self, due: Duration) {
        let left = due.saturating_sub(self.start.elapsed()).max(Duration::from_nanos(1));
        if left > SWEEP || self.wakes_at == Some(due) {
            return;
        }
        self.wakes_at = Some(due);
        let value = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: interval, it_value: value },
        );
    }

    /// Sends the outcomes of the seconds that have passed.
    fn beat_until(&mut self, now: Duration) {
        let second = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        if self.beat.second < second {
            self.account_cpu(Duration::from_secs(self.beat.second.into()));
            let next = Beat { second, ..Beat::default() };
            let _ = self.control.beats.send(std::mem::replace(&mut self.beat, next));
        }
    }

    fn account_cpu(&mut self, second: Duration) {
        let cpu = thread_cpu();
        self.tally.second(second).generator_cpu += cpu.saturating_sub(self.cpu);
        self.cpu = cpu;
    }
}
