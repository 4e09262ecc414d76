//! The generation of an HTTP application, as the router's threads share it: the addresses of its processes, and which of
//! them get requests, as the supervisor reports it.
//!
//! A request goes to the process with the fewest requests; processes with the same number take turns. While no process is
//! ready, because the only one is started again, requests wait.

use crate::report::{ReportOnDrop, SupervisorLink};
use howdah_config::Endpoint;
use howdah_protocol::messages::router::{FromRouter, HttpGenerationBoot};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// A generation, as the router's threads share it.
#[derive(Debug)]
pub struct HttpGeneration {
    /// Its number.
    pub id: u64,
    /// The user that must listen at its addresses.
    listening_user: Option<u32>,
    processes: Vec<HttpProcess>,
    /// The process that had the last turn.
    last: AtomicUsize,
    /// How many requests wait for a process.
    waiting: AtomicU64,
    /// How many of all requests are about to try again, after no process has accepted their connections.
    retrying: AtomicU64,
    /// Another process is ready.
    changed: Notify,
    /// Reports to the supervisor that the generation is no longer used.
    #[expect(dead_code, reason = "its drop sends the report")]
    released: ReportOnDrop,
}

#[derive(Debug)]
struct HttpProcess {
    /// It changes when the next process gets another port.
    endpoint: Mutex<Arc<Endpoint>>,
    is_ready: AtomicBool,
    /// How many requests it has.
    requests: AtomicU64,
}

/// A request that a process has. Dropping it ends it.
#[derive(Debug)]
pub struct ProcessRequest {
    generation: Arc<HttpGeneration>,
    process: usize,
    endpoint: Arc<Endpoint>,
}

/// A request that is counted as long as it waits.
struct Counted<'a>(&'a AtomicU64);

/// The pause before another connection to the processes of an application that accepted none.
const DEATH_PAUSE: Duration = Duration::from_millis(10);
/// The average time between two such connections, of all requests.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The address of a process, from a message of the supervisor.
fn endpoint(address: &str) -> io::Result<Endpoint> {
    address.parse().map_err(|error| io::Error::other(format!("{address}: {error}")))
}

// === impl HttpGeneration ===

impl HttpGeneration {
    /// A generation.
    ///
    /// # Errors
    /// When an address is not valid.
    pub fn new(boot: &HttpGenerationBoot, supervisor: &SupervisorLink) -> io::Result<HttpGeneration> {
        let process = |(address, is_ready): &(String, bool)| {
            let endpoint = Mutex::new(Arc::new(endpoint(address)?));
            Ok(HttpProcess { endpoint, is_ready: (*is_ready).into(), requests: 0.into() })
        };
        Ok(HttpGeneration {
            id: boot.id,
            listening_user: boot.listening_user,
            processes: boot.processes.iter().map(process).collect::<io::Result<_>>()?,
            last: 0.into(),
            waiting: 0.into(),
            retrying: 0.into(),
            changed: Notify::new(),
            released: supervisor.send_on_drop(FromRouter::Released { generation: boot.id }),
        })
    }

    /// The supervisor reports whether a process gets requests, and its address.
    ///
    /// # Errors
    /// When the address is not valid.
    pub fn set_ready(&self, process: u16, address: &str, is_ready: bool) -> io::Result<()> {
        if let Some(process) = self.processes.get(usize::from(process)) {
            *process.lock() = Arc::new(endpoint(address)?);
            process.is_ready.store(is_ready, Ordering::Release);
            self.changed.notify_waiters();
        }
        Ok(())
    }

    /// Gives a request to the process with the fewest, besides those that were tried; `None` if no process is left.
    pub fn assign(self: &Arc<Self>, tried: &[usize]) -> Option<ProcessRequest> {
        let process = loop {
            let (count, last) = (self.processes.len(), self.last.load(Ordering::Relaxed));
            let turns = (1..=count).map(|turn| (last + turn) % count);
            let ready =
                turns.filter(|index| self.processes[*index].is_ready.load(Ordering::Acquire) && !tried.contains(index));
            let counted = ready.map(|index| (index, self.processes[index].requests.load(Ordering::Relaxed)));
            let (process, requests) = counted.min_by_key(|(_, requests)| *requests)?;
            // Another thread may have chosen this process meanwhile: then another one may have fewer requests.
            let requests_of = &self.processes[process].requests;
            if requests_of.compare_exchange(requests, requests + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                break process;
            }
        };
        self.last.store(process, Ordering::Relaxed);
        let endpoint = Arc::clone(&self.processes[process].lock());
        Some(ProcessRequest { generation: Arc::clone(self), process, endpoint })
    }

    /// Waits until a process is ready, and gives it the request.
    pub async fn assign_when_ready(self: &Arc<Self>) -> ProcessRequest {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&self.waiting);
        loop {
            // Before the look: a report that comes in between is not missed.
            let changed = self.changed.notified();
            match self.assign(&[]) {
                Some(request) => return request,
                None => changed.await,
            }
        }
    }

    /// Waits until a request may try again that no process has accepted: a death is reported soon. The more requests there
    /// are, the longer each waits: a process may live, and accept nothing. `false` if that would be after the deadline.
    pub async fn pause(&self, deadline: Instant) -> bool {
        let count = self.retrying.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let _counted = Counted(&self.retrying);
        let now = Instant::now();
        if now + DEATH_PAUSE >= deadline {
            return false;
        }
        let pause = RETRY_INTERVAL.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)).max(DEATH_PAUSE);
        // Another process may be ready before.
        let changed = self.changed.notified();
        let until = (now + pause).min(deadline - DEATH_PAUSE);
        let _ = timeout_at(until, changed).await;
        true
    }

    /// How many requests its processes have.
    pub fn active_requests(&self) -> u64 {
        self.processes.iter().map(|process| process.requests.load(Ordering::Relaxed)).sum()
    }

    /// How many requests wait for a process.
    pub fn waiting_requests(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

// === impl HttpProcess ===

impl HttpProcess {
    /// The value is complete at any time.
    fn lock(&self) -> MutexGuard<'_, Arc<Endpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ProcessRequest ===

impl ProcessRequest {
    /// The index of the process.
    pub fn process(&self) -> usize {
        self.process
    }

    /// Where the process listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The user that must listen there.
    pub fn listening_user(&self) -> Option<u32> {
        self.generation.listening_user
    }
}

impl Drop for ProcessRequest {
    fn drop(&mut self) {
        self.generation.processes[self.process].requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::sockets::control_socket::ControlSocket;

    fn generation(ready: &[bool]) -> Arc<HttpGeneration> {
        let (ours, _) = ControlSocket::pair().expect("sockets");
        let supervisor = SupervisorLink::new(Arc::new(ours)).expect("a link");
        let address = |(number, ready): (usize, &bool)| (format!("unix:/run/{number}"), *ready);
        let processes = ready.iter().enumerate().map(address).collect();
        let boot = HttpGenerationBoot { id: 1, listening_user: None, processes };
        Arc::new(HttpGeneration::new(&boot, &supervisor).expect("a generation"))
    }

    #[test]
    fn a_request_goes_to_the_ready_process_with_the_fewest() {
        let generation = generation(&[true, true, true, false]);
        let next = |tried: &[usize]| generation.assign(tried).map(|request| request.process());
        assert_eq!([next(&[]), next(&[]), next(&[])], [Some(1), Some(2), Some(0)], "they take turns");
        let busy = generation.assign(&[]).expect("a process");
        assert_eq!((busy.process(), next(&[2]), next(&[0, 2])), (1, Some(0), Some(1)));
        assert_eq!(generation.active_requests(), 1);
        drop(busy);
        assert_eq!((generation.active_requests(), next(&[0, 1, 2])), (0, None));
        generation.set_ready(3, "127.0.0.1:81", true).expect("an address");
        let request = generation.assign(&[0, 1, 2]).expect("a process");
        assert_eq!((request.process(), &*request.endpoint().to_string()), (3, "127.0.0.1:81"));
    }

    #[test]
    fn two_threads_give_their_requests_to_two_processes() {
        use std::sync::Barrier;
        let generation = generation(&[true, true]);
        let (together, all_chosen) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..5000 {
                        together.wait();
                        let request = generation.assign(&[]).expect("a process");
                        all_chosen.wait();
                        let count = generation.processes[request.process()].requests.load(Ordering::Relaxed);
                        together.wait();
                        assert_eq!(count, 1, "{round}");
                        drop(request);
                        all_chosen.wait();
                    }
                });
            }
        });
    }

    #[tokio::test]
    async fn a_request_waits_for_a_process() {
        let generation = generation(&[false]);
        let waiting = tokio::spawn({
            let generation = Arc::clone(&generation);
            async move { generation.assign_when_ready().await.process() }
        });
        tokio::task::yield_now().await;
        assert_eq!(generation.waiting_requests(), 1);
        generation.set_ready(0, "unix:/run/0", true).expect("an address");
        assert_eq!(waiting.await.expect("a process"), 0);
        assert_eq!((generation.waiting_requests(), generation.active_requests()), (0, 0));
    }
}
