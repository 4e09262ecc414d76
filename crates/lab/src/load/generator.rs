//! Runs the threads of a load, watches its seconds, and ends it.
//!
//! Fails only if the kernel gives no descriptors or threads; whatever the server does is an outcome.

use super::autostop::{Beat, Condition, Watch};
use super::connection::Endpoint;
use super::schedule::Schedule;
use super::tally::Tally;
use super::target::{Mix, Target};
use super::thread_load::{Prepared, Requests, ThreadPace};
use super::worker::{self, Control};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server.
    pub endpoint: Endpoint,
    /// The value of `Host`.
    pub host: String,
    /// The requests.
    pub targets: Vec<Target>,
    /// When they are sent.
    pub pace: Pace,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// The time-out of a request.
    pub timeout: Duration,
    /// Whether each client returns the cookies that it received.
    pub keeps_cookies: bool,
    /// The values of `Cookie` of the clients, in turn; empty: none.
    pub sessions: Vec<String>,
    /// Conditions that end the load before its time.
    pub autostop: Vec<Condition>,
    /// The number of threads.
    pub threads: usize,
    /// The cores of the threads; empty: any.
    pub cores: Vec<u32>,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// At the times of a schedule, over up to this number of connections.
    Open {
        /// The times.
        schedule: Schedule,
        /// The limit of connections. Requests beyond it wait, and their wait counts.
        connections: u32,
    },
    /// By clients that wait for a response before their next request, until the time or the number is reached.
    Closed {
        /// The number of clients.
        connections: u32,
        /// The time during which requests are sent.
        length: Option<Duration>,
        /// The number of requests.
        requests: Option<u64>,
    },
}

/// The outcomes of a load.
#[derive(Debug)]
pub struct Outcome {
    /// All requests.
    pub tally: Tally,
    /// Why it ended.
    pub stop: Stop,
    /// The number of threads that ran.
    pub threads: usize,
}

/// Why a load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All requests have their outcome.
    Finished,
    /// A condition of autostop: the condition, and what it saw.
    Condition(String),
    /// The flag of `run`.
    Interrupted,
}

/// A second that has passed.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Its outcomes.
    pub beat: &'a Beat,
    /// The time since the start.
    pub elapsed: Duration,
}

/// The interval in which an interruption is noticed.
const PATIENCE: Duration = Duration::from_millis(50);

/// Runs a load to its end, or until `interrupted` is set.
///
/// # Errors
/// The kernel gives no descriptors, no thread, or not these cores.
pub fn run(load: &Load, interrupted: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, String> {
    let requests = prepare(load);
    let clients = match load.pace {
        Pace::Open { connections, .. } | Pace::Closed { connections, .. } => connections.max(1) as usize,
    };
    let threads = load.threads.clamp(1, clients);
    let stop = AtomicBool::new(false);
    let (beats, received) = channel();
    let start = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (requests, stop, beats) = (&requests, &stop, beats.clone());
                let cores = load.cores.clone();
                let pace = share(&load.pace, number, threads);
                scope.spawn(move || {
                    pin(&cores)?;
                    run_worker(requests, pace, start, Control { stop, beats, number })
                })
            })
            .collect();
        drop(beats);
        let mut seconds = Seconds { threads, open: BTreeMap::new(), watch: Watch::new(&load.autostop), reason: None };
        loop {
            match received.recv_timeout(PATIENCE) {
                Ok(beat) => seconds.add(beat, start, progress),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if seconds.reason.is_some() || interrupted.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let mut tally = Tally::new();
        for worker in workers {
            tally.merge(&worker.join().map_err(|_| "a thread of the load generator panicked".to_owned())??);
        }
        let stop = match seconds.reason {
            Some(reason) => Stop::Condition(reason),
            None if interrupted.load(Ordering::Relaxed) => Stop::Interrupted,
            None => Stop::Finished,
        };
        Ok(Outcome { tally, stop, threads })
    })
}

fn prepare(load: &Load) -> Requests {
    let weights: Vec<_> = load.targets.iter().map(|target| target.weight).collect();
    let prepare = |target: &Target| {
        let head = target.head(&load.host, load.keep_alive).into_bytes();
        Prepared { target: target.clone(), head }
    };
    Requests {
        endpoint: load.endpoint.clone(),
        targets: load.targets.iter().map(prepare).collect(),
        mix: Mix::new(&weights),
        keep_alive: load.keep_alive,
        timeout: load.timeout,
        keeps_cookies: load.keeps_cookies,
        sessions: load.sessions.clone(),
    }
}

/// A thread's share of the load.
fn share(pace: &Pace, number: usize, threads: usize) -> ThreadPace {
    let part = |whole: u64| whole / threads as u64 + u64::from((number as u64) < whole % threads as u64);
    match pace {
        Pace::Open { schedule, connections } => ThreadPace::Open {
            moments: Box::new(schedule.moments().skip(number).step_by(threads)),
            connections: part((*connections).max(1).into()) as usize,
            end: schedule.length(),
        },
        Pace::Closed { connections, length, requests } => ThreadPace::Closed {
            clients: part((*connections).max(1).into()) as usize,
            end: length.unwrap_or(Duration::MAX),
            requests: requests.map_or(u64::MAX, part),
        },
    }
}

fn pin(cores: &[u32]) -> Result<(), String> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core as usize));
    sched_setaffinity(None, &set)
        .map_err(|error| format!("the load generator cannot run on the cores {cores:?}: {error}"))
}

fn run_worker(requests: &Requests, pace: ThreadPace, start: Instant, control: Control) -> Result<Tally, String> {
    let beats: Sender<Beat> = control.beats.clone();
    let result = worker::run(requests, pace, start, control);
    drop(beats);
    result
}

/// The seconds of which not all threads have reported.
struct Seconds<'a> {
    threads: usize,
    open: BTreeMap<u32, (usize, Beat)>,
    watch: Watch<'a>,
    reason: Option<String>,
}

// === impl Seconds ===

impl Seconds<'_> {
    fn add(&mut self, beat: Beat, start: Instant, progress: &mut dyn FnMut(&Progress)) {
        let second = beat.second;
        let (threads, sum) = self.open.entry(second).or_insert_with(|| (0, Beat { second, ..Beat::default() }));
        *threads += 1;
        sum.merge(&beat);
        if *threads == self.threads
            && let Some((_, beat)) = self.open.remove(&second)
        {
            self.reason = self.reason.take().or_else(|| self.watch.observe(&beat));
            progress(&Progress { beat: &beat, elapsed: start.elapsed() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::{Failure, percentiles};
    use super::super::target::Checks;
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    /// Answers each request with what `answer` writes. Returns the address.
    fn server(answer: impl Fn(&mut TcpStream, &str) -> bool + Send + Sync + 'static) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = std::sync::Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, answer) = (stream.unwrap(), answer.clone());
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    loop {
                        let length = stream.read(&mut buffer).unwrap_or(0);
                        if length == 0 || !answer(&mut stream, &String::from_utf8_lossy(&buffer[..length])) {
                            break;
                        }
                    }
                });
            }
        });
        Endpoint::Tcp(address)
    }

    fn hello_after(delay: Duration) -> Endpoint {
        server(move |stream, _| {
            thread::sleep(delay);
            stream.write_all(HELLO.as_bytes()).is_ok()
        })
    }

    fn open(schedule: &str, connections: u32) -> Pace {
        Pace::Open { schedule: schedule.parse().unwrap(), connections }
    }

    fn closed(connections: u32, requests: u64) -> Pace {
        Pace::Closed { connections, length: None, requests: Some(requests) }
    }

    fn load(endpoint: Endpoint, pace: Pace) -> Load {
        let checks = Checks { contains: Some("hello".into()), ..Checks::default() };
        Load {
            host: endpoint.to_string(),
            endpoint,
            targets: vec![Target { checks, ..Target::get("/") }],
            pace,
            keep_alive: true,
            timeout: Duration::from_secs(5),
            keeps_cookies: false,
            sessions: Vec::new(),
            autostop: Vec::new(),
            threads: 1,
            cores: Vec::new(),
        }
    }

    fn tally(load: &Load) -> Tally {
        run(load, &AtomicBool::new(false), &mut |_| {}).unwrap().tally
    }

    #[test]
    fn a_slow_server_does_not_slow_an_open_loop() {
        let endpoint = hello_after(Duration::from_millis(200));
        let tally = tally(&load(endpoint, open("const(100, 200ms)", 100)));
        assert_eq!((tally.right, tally.failed()), (20, 0));
        assert!(tally.peak_connections >= 15, "{}", tally.peak_connections);
        assert!(tally.last_outcome < Duration::from_secs(2), "{:?}", tally.last_outcome);
    }

    #[test]
    fn the_wait_for_a_connection_counts() {
        let endpoint = hello_after(Duration::from_millis(50));
        let tally = tally(&load(endpoint, open("const(100, 200ms)", 1)));
        // Twenty requests of 50 ms, one after the other: the last one was due after 190 ms.
        assert_eq!((tally.right, tally.connects), (20, 1));
        assert!(percentiles(&tally.latency).unwrap().max > 700.0);
    }

    #[test]
    fn the_true_p99_of_a_server_that_stalls() {
        // It answers at once, but stands still for the first 300 ms of each 1.5 s. Of requests at a constant rate, a fifth
        // waits, and those evenly between 0 and 300 ms: the true p90 is 150 ms, the true p99 285 ms. A closed loop with one
        // client sees one slow request in each 1.5 s.
        let begin = Instant::now();
        let stalls = move |stream: &mut TcpStream, _: &str| {
            let phase = Duration::from_nanos((begin.elapsed().as_nanos() % 1_500_000_000) as u64);
            thread::sleep(Duration::from_millis(300).saturating_sub(phase));
            stream.write_all(HELLO.as_bytes()).is_ok()
        };
        let open = tally(&load(server(stalls), open("const(200, 3s)", 200)));
        let percentiles = percentiles(&open.latency).unwrap();
        assert_eq!(open.right, 600);
        assert!((percentiles.p90 - 150.0).abs() < 40.0, "{percentiles:?}");
        assert!((percentiles.p99 - 285.0).abs() < 40.0, "{percentiles:?}");
        assert!(percentiles.p50 < 50.0, "{percentiles:?}");
        let pace = Pace::Closed { connections: 1, length: Some(Duration::from_millis(1500)), requests: None };
        let closed = tally(&load(server(stalls), pace));
        let percentiles = super::super::tally::percentiles(&closed.latency).unwrap();
        assert!(percentiles.p99 < 100.0, "a closed loop hides the stall: {percentiles:?}");
    }

    #[test]
    fn a_closed_loop_sends_exactly_its_requests() {
        for threads in [1, 3] {
            for keep_alive in [true, false] {
                let load = Load { threads, keep_alive, ..load(hello_after(Duration::ZERO), closed(7, 100)) };
                let tally = tally(&load);
                assert_eq!((tally.right, tally.failed()), (100, 0));
                assert_eq!(tally.connects, if keep_alive { 7 } else { 100 }, "{threads} threads");
            }
        }
    }

    #[test]
    fn a_connection_that_the_server_closed_costs_no_request() {
        // It closes each connection after its first response, without an announcement.
        let endpoint = server(|stream, _| {
            let _ = stream.write_all(HELLO.as_bytes());
            false
        });
        let tally = tally(&load(endpoint, closed(2, 50)));
        assert_eq!((tally.right, tally.failed()), (50, 0), "{:?}", tally.failures);
    }

    #[test]
    fn each_failure_has_a_name() {
        for (response, failure) in [
            ("", Failure::ClosedEarly),
            ("HTTP/1.1 200 OK\r\nContent-Le", Failure::ClosedEarly),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Failure::ClosedEarly),
            ("220 mail.example ESMTP\r\n\r\n", Failure::Malformed),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n", Failure::Malformed),
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nhello", Failure::WrongStatus),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell", Failure::WrongBody),
        ] {
            let endpoint = server(move |stream, _| {
                let _ = stream.write_all(response.as_bytes());
                false
            });
            for pace in [closed(2, 10), open("const(100, 100ms)", 5)] {
                let tally = tally(&load(endpoint.clone(), pace));
                assert_eq!(tally.failures, BTreeMap::from([(failure, 10)]), "{response:?}");
            }
        }
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let tally = tally(&load(Endpoint::Tcp(unused), closed(2, 10)));
        assert_eq!(tally.failures, BTreeMap::from([(Failure::ConnectRefused, 10)]));
    }

    #[test]
    fn a_late_response_is_a_timeout() {
        let load =
            Load { timeout: Duration::from_millis(50), ..load(hello_after(Duration::from_secs(2)), closed(2, 4)) };
        let tally = tally(&load);
        assert_eq!(tally.failures, BTreeMap::from([(Failure::Timeout, 4)]));
        assert!(tally.last_outcome < Duration::from_secs(1));
    }

    #[test]
    fn clients_return_their_cookies() {
        let endpoint = server(|stream, request| {
            let known = request.contains("Cookie: user=7; id=1; b=2\r\n");
            let cookies = "Set-Cookie: id=1; Path=/\r\nSet-Cookie: b=2\r\n";
            let body = if known { "hello" } else { "first" };
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 5\r\n\r\n{body}").as_bytes()).is_ok()
        });
        let load = Load { keeps_cookies: true, sessions: vec!["user=7".into()], ..load(endpoint, closed(3, 30)) };
        let tally = tally(&load);
        assert_eq!((tally.right, tally.failures), (27, BTreeMap::from([(Failure::WrongBody, 3)])));
    }

    #[test]
    fn a_condition_or_an_interruption_ends_a_load() {
        let endpoint = server(|stream, _| stream.write_all(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n").is_ok());
        let autostop = vec!["errors(50%, 1s)".parse().unwrap()];
        let long = Load { autostop, ..load(endpoint, open("const(50, 1h)", 10)) };
        let outcome = run(&long, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert!(matches!(outcome.stop, Stop::Condition(reason) if reason.contains("50 of 50")));
        let outcome = run(&Load { autostop: Vec::new(), ..long }, &AtomicBool::new(true), &mut |_| {}).unwrap();
        assert_eq!(outcome.stop, Stop::Interrupted);
    }
}
