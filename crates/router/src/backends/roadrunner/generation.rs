//! The generation of a RoadRunner application, as the router's threads share it: its workers, and the requests that wait
//! for one.
//!
//! `line` decides which request gets which worker.

use crate::backends::admission::{Admission, Admitted, Arrival, Line, RunningRequest, Waiting, WaitingRequest};
use crate::backends::roadrunner::line::WorkerLine;
use crate::backends::roadrunner::worker::{Worker, WorkerStatus};
use crate::report::{ReportOnDrop, SupervisorLink};
use crate::response::failure::Failure;
use howdah_protocol::messages::router::{FromRouter, ReleaseReason, RoadRunnerGenerationBoot, RoadRunnerWorker};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A generation, as the router's threads share it.
#[derive(Debug)]
pub struct RoadRunnerGeneration {
    /// Its number.
    pub id: u64,
    /// How long a worker may take for a request.
    pub timeout: Option<Duration>,
    /// The folder for uploaded files.
    pub upload_folder: PathBuf,
    /// The number of requests after which a worker is replaced.
    max_requests: Option<u32>,
    /// The number of workers, and the time without requests after which one is replaced.
    processes: u64,
    idle_ttl: Option<Duration>,
    admission: Admission,
    /// The idle workers, and the requests that wait for one.
    line: WorkerLine,
    /// All workers that get requests.
    workers: Mutex<Vec<Arc<WorkerStatus>>>,
    supervisor: SupervisorLink,
    /// Reports to the supervisor that the generation is no longer used.
    #[expect(dead_code, reason = "its drop sends the report")]
    released: ReportOnDrop,
}

// === impl RoadRunnerGeneration ===

impl RoadRunnerGeneration {
    /// A generation without workers.
    pub fn new(boot: RoadRunnerGenerationBoot, supervisor: &SupervisorLink) -> RoadRunnerGeneration {
        RoadRunnerGeneration {
            id: boot.id,
            admission: Admission::new(&boot.application, Duration::from_millis(boot.queue_timeout_ms)),
            timeout: boot.timeout_ms.map(Duration::from_millis),
            upload_folder: boot.upload_folder,
            max_requests: boot.requests,
            processes: boot.processes.into(),
            idle_ttl: boot.idle_ttl_ms.map(Duration::from_millis),
            line: WorkerLine::default(),
            workers: Mutex::default(),
            supervisor: supervisor.clone(),
            released: supervisor.send_on_drop(FromRouter::Released { generation: boot.id }),
        }
    }

    // The supervisor's reports

    /// A worker has booted.
    ///
    /// # Errors
    /// When the message lacks its descriptors.
    pub fn worker_ready(&self, name: RoadRunnerWorker, mut relay: impl Iterator<Item = OwnedFd>) -> io::Result<()> {
        let worker = match (relay.next(), relay.next()) {
            (Some(requests), Some(answers)) => Worker::new(name, Some(requests), answers),
            (Some(connection), None) => Worker::new(name, None, connection),
            _ => return Err(io::Error::other("a message of the supervisor lacks descriptors")),
        };
        lock(&self.workers).push(Arc::clone(&worker.status));
        self.add_idle(worker);
        Ok(())
    }

    /// A worker is dead, or about to exit.
    pub fn worker_gone(&self, name: RoadRunnerWorker) {
        lock(&self.workers).retain(|status| {
            let is_it = status.name == name;
            if is_it {
                status.is_gone.store(true, Ordering::Relaxed);
            }
            !is_it
        });
        // This closes its pipes.
        drop(self.line.remove(name));
    }

    /// A worker must exit when it has finished its request.
    pub fn retire_worker(&self, name: RoadRunnerWorker) {
        for status in lock(&self.workers).iter().filter(|status| status.name == name) {
            status.must_retire.store(true, Ordering::Relaxed);
        }
        if let Some(worker) = self.line.remove(name) {
            self.release(&worker, ReleaseReason::Retired);
        }
    }

    /// Replaces a worker that is idle for too long. It is the only one at a time: all others must be there.
    pub fn retire_idle(&self, now: Instant) {
        let Some(ttl) = self.idle_ttl else { return };
        if self.arrival().workers == self.processes
            && let Some(worker) = self.line.remove_idle(ttl, now)
        {
            lock(&self.workers).retain(|status| status.name != worker.status.name);
            self.release(&worker, ReleaseReason::Retired);
        }
    }

    // Requests

    /// Waits for an idle worker.
    ///
    /// # Errors
    /// 503 when none takes the request in time.
    pub async fn acquire(
        self: &Arc<Self>,
        admitted: Admitted,
    ) -> Result<(Worker, RunningRequest<RoadRunnerGeneration>), Failure> {
        let mut request = WaitingRequest::new(&**self);
        while let Some(worker) = request.turn(admitted).await {
            if !worker.is_gone() {
                request.end();
                return Ok((worker, RunningRequest::new(self)));
            }
        }
        request.end();
        Err(self.reject_late().await)
    }

    /// A worker has answered its request. It gets another one, unless it has reached a limit.
    pub fn finished(&self, mut worker: Worker) {
        self.admission.finished();
        worker.requests += 1;
        let is_worn = self.max_requests.is_some_and(|most| worker.requests >= most);
        if is_worn {
            self.release(&worker, ReleaseReason::Retired);
        } else {
            self.add_idle(worker);
        }
    }

    /// The worker gets a request, or waits for one, unless the supervisor has reported meanwhile that it gets none.
    fn add_idle(&self, worker: Worker) {
        if let Some(worker) = self.line.add(worker) {
            self.release(&worker, ReleaseReason::Retired);
        }
    }

    /// Reports that a worker gets no more requests.
    pub fn release(&self, worker: &Worker, reason: ReleaseReason) {
        self.release_named(worker.status.name, reason);
    }

    /// The same for a worker of which only the name is left.
    pub fn release_named(&self, worker: RoadRunnerWorker, reason: ReleaseReason) {
        let generation = self.id;
        self.supervisor.send(&FromRouter::RoadRunnerWorkerReleased { generation, worker, reason });
    }

    // Numbers

    /// How many requests workers have, or wait for one.
    pub fn active_requests(&self) -> u64 {
        self.admission.active()
    }

    /// How many requests wait for a worker.
    pub fn waiting_requests(&self) -> u64 {
        self.admission.waiting()
    }

    /// How many requests were answered 503 by the queue.
    pub fn rejected_requests(&self) -> u64 {
        self.admission.rejected()
    }
}

impl Line for RoadRunnerGeneration {
    type Turn = Worker;

    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn arrival(&self) -> Arrival {
        let workers = lock(&self.workers).len() as u64;
        Arrival { waiting: self.waiting_requests(), workers, places: workers }
    }

    fn join(&self, since: Instant) -> Result<Worker, Waiting<Worker>> {
        self.line.join(since)
    }

    fn leave(&self, mut waiting: Waiting<Worker>) {
        waiting.turn.close();
        match waiting.turn.try_recv() {
            Ok(worker) => self.add_idle(worker),
            Err(_) => self.line.leave(waiting.ticket),
        }
    }
}

/// The lists are complete at any time.
fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::sockets::control_socket::ControlSocket;
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::pipe::{PipeFlags, pipe_with};

    fn name(index: u16) -> RoadRunnerWorker {
        RoadRunnerWorker { index, start: 1 }
    }

    /// A generation with these workers, and the other ends of their pipes.
    fn generation(workers: u16, requests: Option<u32>) -> (Arc<RoadRunnerGeneration>, Vec<OwnedFd>) {
        let (ours, _) = ControlSocket::pair().expect("sockets");
        let supervisor = SupervisorLink::new(Arc::new(ours)).expect("a link");
        let boot = RoadRunnerGenerationBoot {
            id: 1,
            application: "app".to_owned(),
            processes: workers,
            timeout_ms: None,
            queue_timeout_ms: 50,
            requests,
            idle_ttl_ms: Some(1000),
            upload_folder: PathBuf::from("/tmp"),
        };
        let generation = Arc::new(RoadRunnerGeneration::new(boot, &supervisor));
        let mut theirs = Vec::new();
        for index in 0..workers {
            let (stdin, requests) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
            let (answers, stdout) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
            for end in [&requests, &answers] {
                fcntl_setfl(end, OFlags::NONBLOCK).expect("flags");
            }
            generation.worker_ready(name(index), [requests, answers].into_iter()).expect("its pipes");
            theirs.extend([stdin, stdout]);
        }
        (generation, theirs)
    }

    async fn acquire(
        generation: &Arc<RoadRunnerGeneration>,
    ) -> Result<(Worker, RunningRequest<RoadRunnerGeneration>), Failure> {
        let admitted = generation.admit().await?;
        generation.acquire(admitted).await
    }

    #[tokio::test]
    async fn a_worker_has_one_request_and_the_last_idle_one_is_next() {
        let (generation, _pipes) = generation(2, None);
        let (first, running) = acquire(&generation).await.expect("a worker");
        let (second, _) = acquire(&generation).await.expect("a worker");
        assert_eq!((first.status.name, second.status.name), (name(1), name(0)));
        assert_eq!(generation.active_requests(), 1, "one of them was dropped");
        assert!(matches!(acquire(&generation).await, Err(Failure::Unavailable { .. })), "no worker is idle");
        assert_eq!((generation.rejected_requests(), generation.waiting_requests()), (1, 0));
        generation.finished(first);
        drop(running);
        let (again, _) = acquire(&generation).await.expect("a worker");
        assert_eq!((again.status.name, again.requests), (name(1), 1));
    }

    #[tokio::test]
    async fn a_worker_that_is_gone_gets_no_request() {
        let (generation, _pipes) = generation(3, None);
        let (busy, _running) = acquire(&generation).await.expect("a worker");
        generation.worker_gone(name(0));
        generation.worker_gone(busy.status.name);
        generation.finished(busy);
        let (last, _) = acquire(&generation).await.expect("a worker");
        assert_eq!(last.status.name, name(1));
        assert!(acquire(&generation).await.is_err());
    }

    #[tokio::test]
    async fn a_worker_that_retires_gets_no_request() {
        let (generation, _pipes) = generation(2, Some(2));
        let (worker, _) = acquire(&generation).await.expect("a worker");
        generation.retire_worker(name(0));
        generation.finished(worker);
        let (worker, _) = acquire(&generation).await.expect("its second request");
        assert_eq!((worker.status.name, worker.requests), (name(1), 1));
        generation.finished(worker);
        assert!(acquire(&generation).await.is_err(), "it has had two requests");
    }

    #[tokio::test]
    async fn workers_that_are_idle_for_too_long_retire_one_at_a_time() {
        let (generation, _pipes) = generation(2, None);
        let now = Instant::now();
        generation.retire_idle(now);
        assert_eq!(generation.arrival().workers, 2);
        generation.retire_idle(now + Duration::from_secs(2));
        generation.retire_idle(now + Duration::from_secs(2));
        assert_eq!(generation.arrival().workers, 1, "the next one waits for another worker");
        assert!(acquire(&generation).await.is_ok() && acquire(&generation).await.is_err());
    }

    #[tokio::test]
    async fn a_request_that_waits_gets_the_next_idle_worker() {
        let (generation, _pipes) = generation(1, None);
        let (worker, _running) = acquire(&generation).await.expect("a worker");
        let waiting = {
            let generation = Arc::clone(&generation);
            tokio::spawn(async move { acquire(&generation).await.map(|(worker, _)| worker.requests) })
        };
        while generation.waiting_requests() == 0 {
            tokio::task::yield_now().await;
        }
        generation.finished(worker);
        assert_eq!(waiting.await.expect("a task"), Ok(1));
    }
}
