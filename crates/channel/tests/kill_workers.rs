//! `kill -9` at random points of many requests: each is answered rightly, or lost with the worker that ran it.
//!
//! The workers are processes: they run this executable, with an environment variable that makes it a worker.

mod hostile;

use hostile::HostileMemory;
use howdah_channel::{
    BodyError, ControlEnd, Exchange, Geometry, Next, Progress, Refused, RouterEnd, WorkerChannel, WorkerId, offsets,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::Signal;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const REQUESTS: u64 = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
const KILLS: u64 = if cfg!(debug_assertions) { 60 } else { 1_000 };
const WORKERS: u16 = 3;
const THREADS: u16 = 2;
/// Requests under way in each router thread.
const WINDOW: usize = 12;
const GEOMETRY: Geometry = Geometry { slots: 64, threads: THREADS, claims: CLAIMS };
const SLOTS: usize = 64;
/// The requests that a worker may run at a time. Workers with an odd index do so.
const CLAIMS: u16 = 4;
/// The environment variable that makes this executable a worker: `index incarnation memfd bell …`.
const ROLE: &str = "HOWDAH_TEST_WORKER";

// === the request and its answer, known to both sides ===

/// A request: everything about it follows from its id.
#[derive(Clone, Copy)]
struct Request {
    id: u64,
}

impl Request {
    fn head(self) -> Vec<u8> {
        let mut head = self.id.to_le_bytes().to_vec();
        head.extend(bytes(self.id ^ 1, 16 + (self.id % 200) as usize));
        head
    }
    fn body(self) -> Vec<u8> {
        let len = if self.id.is_multiple_of(251) { 100_000 } else { (self.id % 300) as usize };
        bytes(self.id ^ 2, len)
    }
    fn response(self) -> Vec<u8> {
        let sum = self.head().iter().chain(&self.body()).fold(0u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
        let len = if self.id.is_multiple_of(257) { 200_000 } else { (self.id % 500) as usize };
        let mut response = self.id.to_le_bytes().to_vec();
        response.extend(sum.to_le_bytes());
        response.extend(bytes(self.id ^ 3, len));
        response
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = seed;
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next_random(&mut random).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// splitmix64
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

// === the worker ===

/// Not a test: the program of a worker process. It does nothing unless [`ROLE`] is in the environment.
#[test]
fn worker_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let numbers: Vec<i32> = role.split(' ').map(|number| number.parse().expect("a number")).collect();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("prctl");
    let mut descriptors = numbers[2..].iter().map(|fd| {
        // SAFETY: the parent left these descriptors open for this process, and nothing else in this process owns them.
        unsafe { OwnedFd::from_raw_fd(*fd) }
    });
    let memfd = descriptors.next().expect("the channel's memory");
    let channel = WorkerChannel::attach(memfd, GEOMETRY, descriptors.collect()).expect("the workers' end");
    let end = channel.worker(WorkerId { index: numbers[0] as u16, incarnation: numbers[1] as u16 });
    let (mut head, mut body, mut part) = (Vec::new(), Vec::new(), vec![0; 8192]);
    let (mut held, mut random) = (Vec::new(), u64::from(end.index()));
    let most = most_claims(end.index()).into();
    loop {
        while held.len() < most
            && let Some(claim) = end.try_next()
        {
            held.push(claim);
        }
        if held.is_empty() {
            let Next::Run(claim) = end.next(|| false) else { break };
            held.push(claim);
        }
        // In any order.
        let mut claim = held.swap_remove(next_random(&mut random) as usize % held.len());
        claim.head(&mut head).expect("a head");
        body.clear();
        loop {
            match claim.read_body(&mut part) {
                // Incomplete: the client left.
                Ok(0) | Err(BodyError::Incomplete) => break,
                Ok(len) => body.extend_from_slice(&part[..len]),
                Err(other) => panic!("no body: {other:?}"),
            }
        }
        let request = Request { id: u64::from_le_bytes(*head.first_chunk().expect("an id")) };
        assert!(head == request.head(), "another head than was sent");
        // The body of a client that left may be cut short.
        assert!(body == request.body() || claim.client_gone(), "another body than was sent");
        for (n, piece) in request.response().chunks(7_001).enumerate() {
            if claim.write(piece).is_err() {
                break;
            }
            if n % 3 == 1 {
                claim.flush();
            }
        }
        claim.finish();
    }
    // Not through the harness: no code of the harness may run after the worker has finished.
    std::process::exit(0);
}

struct Worker {
    id: WorkerId,
    child: Child,
}

impl Worker {
    fn spawn(id: WorkerId, descriptors: &[OwnedFd]) -> Worker {
        let mut role = format!("{} {}", id.index, id.incarnation);
        descriptors.iter().for_each(|fd| role.push_str(&format!(" {}", fd.as_raw_fd())));
        let child = Command::new(std::env::current_exe().expect("this executable"))
            .args(["--exact", "worker_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .spawn()
            .expect("a worker process");
        Worker { id, child }
    }

    fn next_life(&self, descriptors: &[OwnedFd]) -> Worker {
        Worker::spawn(WorkerId { incarnation: self.id.incarnation + 1, ..self.id }, descriptors)
    }

    fn kill(&mut self) {
        self.child.kill().expect("a signal");
        assert_eq!(self.child.wait().expect("its end").signal(), Some(9), "{} ended by itself", self.id);
    }

    fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("its end")
    }
}

// === the router ===

#[derive(Default)]
struct Tally {
    /// All requests that are over.
    over: AtomicU64,
    /// How many may be over before the next kill: a supervisor that gets no processor time is waited for.
    limit: AtomicU64,
    answered: AtomicU64,
    lost: AtomicU64,
    abandoned: AtomicU64,
    threads_done: AtomicUsize,
}

struct UnderWay {
    request: Request,
    exchange: Exchange,
    body: Vec<u8>,
    response: Vec<u8>,
    body_ended: bool,
    /// The client leaves after this number of calls of `advance`.
    calls_left: u64,
}

impl UnderWay {
    /// Moves bytes; `true` when the response is complete.
    fn advance(&mut self) -> bool {
        let progress = self.exchange.progress().expect("no rule is broken");
        if !self.body_ended {
            let taken = self.exchange.body_taken() as usize;
            self.exchange.write_body(&self.body[taken..]).expect("no rule is broken");
            if self.exchange.body_taken() as usize == self.body.len() {
                self.exchange.end_body(true);
                self.body_ended = true;
            }
        }
        self.exchange.read(&mut self.response).expect("no rule is broken");
        matches!(progress, Progress::Done(_))
    }
}

fn run_router_thread(thread: u16, router: &RouterEnd, bell: &OwnedFd, deaths: &Receiver<WorkerId>, tally: &Tally) {
    let mut random = u64::from(thread);
    let mut left = REQUESTS / u64::from(THREADS);
    let mut under_way: Vec<UnderWay> = Vec::new();
    let visits = router.visits();
    while left > 0 || !under_way.is_empty() {
        while left > 0
            && under_way.len() < WINDOW
            && tally.over.load(Ordering::Relaxed) < tally.limit.load(Ordering::Relaxed)
        {
            let request = Request { id: next_random(&mut random) };
            let body = request.body();
            let exchange = match router.submit(thread, &request.head(), &body, true) {
                Ok(exchange) => exchange,
                Err(Refused::NoSlot) => break,
                Err(refused) => panic!("{refused:?}"),
            };
            let body_ended = exchange.body_taken() as usize == body.len();
            let calls_left = if request.id.is_multiple_of(61) { request.id >> 32 & 7 } else { u64::MAX };
            under_way.push(UnderWay { request, exchange, body, response: Vec::new(), body_ended, calls_left });
            left -= 1;
        }
        for worker in deaths.try_iter() {
            under_way.retain_mut(|one| {
                let lost = one.exchange.worker_died(worker).expect("no rule is broken");
                if lost {
                    tally.lost.fetch_add(1, Ordering::Relaxed);
                    tally.over.fetch_add(1, Ordering::Relaxed);
                } else {
                    one.exchange.resubmit_if_stranded();
                }
                !lost
            });
            // After this thread's exchanges: what it drops later was not this worker's.
            router.worker_died(worker);
        }
        let before = under_way.len();
        under_way.retain_mut(|one| {
            let done = one.advance();
            if done {
                assert!(one.response == one.request.response(), "a wrong response was delivered");
                tally.answered.fetch_add(1, Ordering::Relaxed);
            } else if one.calls_left == 0 {
                tally.abandoned.fetch_add(1, Ordering::Relaxed);
            } else {
                one.calls_left -= 1;
                return true;
            }
            tally.over.fetch_add(1, Ordering::Relaxed);
            false
        });
        if under_way.len() == before && router.prepare_to_sleep(thread) {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut polled = [PollFd::new(bell, PollFlags::IN)];
            if poll(&mut polled, Some(&timeout)).expect("poll") == 0 {
                router.sweep(thread, Instant::now()).expect("no rule is broken");
                for one in &mut under_way {
                    one.exchange.check().expect("no rule is broken");
                    one.exchange.resubmit_if_stranded();
                }
            } else {
                let _ = rustix::io::read(bell, &mut [0; 8]);
            }
        }
        router.woke(thread);
        router.drain(thread, &visits, |_| true);
    }
    tally.threads_done.fetch_add(1, Ordering::SeqCst);
    // Deaths still free the slots of clients that left.
    while let Ok(worker) = deaths.recv() {
        router.worker_died(worker);
    }
}

// === the supervisor ===

struct Supervisor {
    control: ControlEnd,
    router: RouterEnd,
    workers: Vec<Worker>,
    /// The descriptors that workers inherit: the memory, then the bells.
    descriptors: Vec<OwnedFd>,
    notices: Vec<Sender<WorkerId>>,
    bells: Vec<OwnedFd>,
}

impl Supervisor {
    fn kill_and_replace(&mut self, victim: usize) {
        self.workers[victim].kill();
        let dead = self.workers[victim].id;
        self.control.worker_died(dead);
        self.control.check_orders().expect("no rule is broken");
        for (notices, bell) in self.notices.iter().zip(&self.bells) {
            notices.send(dead).expect("the router's thread lives");
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
        self.workers[victim] = self.workers[victim].next_life(&self.descriptors);
        // Late, as it may be in life.
        self.router.worker_started(self.workers[victim].id);
    }
}

/// How many requests the worker with this index runs at a time.
fn most_claims(index: u16) -> u16 {
    if index % 2 == 1 { CLAIMS } else { 1 }
}

/// A copy that is not closed on exec.
fn inheritable(fd: impl AsFd) -> OwnedFd {
    rustix::io::dup(fd).expect("a descriptor")
}

#[test]
fn killed_workers_lose_their_own_request_only() {
    let control = ControlEnd::create(GEOMETRY).unwrap();
    let router = RouterEnd::attach(control.memfd(), GEOMETRY).unwrap();
    let bells: Vec<OwnedFd> =
        (0..THREADS).map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()).collect();
    let mut descriptors = vec![inheritable(control.memfd())];
    descriptors.extend(bells.iter().map(inheritable));
    let workers =
        (0..WORKERS).map(|index| Worker::spawn(WorkerId { index, incarnation: 0 }, &descriptors)).collect::<Vec<_>>();
    let (notices, deaths): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
    let bell_copies = bells.iter().map(|bell| bell.try_clone().unwrap()).collect();
    workers.iter().for_each(|worker| router.worker_started(worker.id));
    let mut supervisor =
        Supervisor { control, router: router.clone(), workers, descriptors, notices, bells: bell_copies };
    let tally = Tally::default();
    let (mut kills, mut most_lost) = (0, 0);

    std::thread::scope(|scope| {
        for ((thread, deaths), bell) in (0..THREADS).zip(deaths).zip(&bells) {
            let (router, tally) = (&router, &tally);
            scope.spawn(move || run_router_thread(thread, router, bell, &deaths, tally));
        }
        let mut random = 42;
        let mut next_kill = 0;
        let mut last = (0, Instant::now());
        while tally.threads_done.load(Ordering::SeqCst) < usize::from(THREADS) {
            let over = tally.over.load(Ordering::Relaxed);
            if over != last.0 {
                last = (over, Instant::now());
            } else if last.1.elapsed() > Duration::from_secs(30) {
                // Not an assertion: the scope would wait for threads that never finish.
                eprintln!("after {over} requests and {kills} kills, nothing moves any more");
                std::process::abort();
            }
            if over >= next_kill && over < REQUESTS {
                let victim = (next_random(&mut random) % u64::from(WORKERS)) as usize;
                supervisor.kill_and_replace(victim);
                kills += 1;
                most_lost += u64::from(most_claims(victim as u16));
                next_kill = over + next_random(&mut random) % (2 * REQUESTS / KILLS);
                tally.limit.store(next_kill + REQUESTS / KILLS, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_micros(next_random(&mut random) % 300));
        }
        // Clients that left may still have their requests running: the last workers finish them before they stop.
        supervisor.control.stop_all(supervisor.workers.iter().map(|worker| worker.id));
        for worker in supervisor.workers.drain(..) {
            let id = worker.id;
            assert!(worker.wait().success(), "{id} found something wrong");
        }
        supervisor.notices.clear();
    });

    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (answered, lost, abandoned) = (count(&tally.answered), count(&tally.lost), count(&tally.abandoned));
    println!("{answered} answered, {lost} lost with their workers, {abandoned} left by their clients; {kills} kills");
    assert_eq!(answered + lost + abandoned, REQUESTS);
    assert!(lost <= most_lost, "a kill cost more requests than its worker ran");
    assert!(lost > 0 && abandoned > 0 && kills >= KILLS / 4, "the test did not try what it should");
    router.sweep(0, Instant::now()).unwrap();
    // The hints of cancelled requests may still be queued, and no worker is left that takes them. A worker in this
    // process could not: it has the order to stop. The next router would drop these hints.
    let memory = HostileMemory::map(supervisor.control.memfd(), GEOMETRY);
    memory.queue_head().fetch_add(router.queued(), Ordering::SeqCst);
    assert_eq!(router.free_slots(), SLOTS, "a slot is lost");
}

#[test]
fn a_worker_that_dies_between_taking_and_claiming_strands_no_request() {
    let mut control = ControlEnd::create(GEOMETRY).unwrap();
    let router = RouterEnd::attach(control.memfd(), GEOMETRY).unwrap();
    let memory = HostileMemory::map(control.memfd(), GEOMETRY);
    let mut exchange = router.submit(0, &Request { id: 5 }.head(), &Request { id: 5 }.body(), true).unwrap();
    let ticket = memory.queue_head().load(Ordering::SeqCst);
    exchange.resubmit_if_stranded();
    assert_eq!(router.queued(), 1, "what waits is not pushed again");
    // All that a worker does before it is killed: it takes the hint.
    memory.queue_head().store(ticket + 1, Ordering::SeqCst);
    assert_eq!((router.queued(), exchange.progress()), (0, Ok(Progress::Queued)));
    assert_eq!(
        memory.state(exchange.slot()).load(Ordering::SeqCst),
        offsets::word(1, howdah_channel::SlotState::Submitted)
    );
    exchange.resubmit_if_stranded();
    assert_eq!(router.queued(), 1);

    let bells: Vec<OwnedFd> = (0..THREADS).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
    let mut descriptors = vec![inheritable(control.memfd())];
    descriptors.extend(bells.iter().map(inheritable));
    let worker = Worker::spawn(WorkerId { index: 0, incarnation: 1 }, &descriptors);
    let mut response = Vec::new();
    while !matches!(exchange.progress().unwrap(), Progress::Done(_)) {
        std::thread::yield_now();
    }
    exchange.read(&mut response).unwrap();
    assert!(response == Request { id: 5 }.response());
    drop(exchange);
    assert_eq!(router.free_slots(), SLOTS);
    control.stop_all([worker.id]);
    assert!(worker.wait().success());
}
