//! The generation of an HTTP application, as the router's threads share it: the addresses of its processes, and which of
//! them get requests, as the supervisor reports it.
//!
//! A request goes to the process with the fewest requests; processes with the same number take turns. While no process is
//! ready, because the only one is started again, requests wait.

use crate::report::{ReportOnDrop, SupervisorLink};
use howdah_config::Endpoint;
use howdah_protocol::router_messages::{FromRouter, HttpGenerationBoot};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// A generation, as the router's threads share it.
#[derive(Debug)]
pub struct HttpGeneration {
    /// Its number.
    pub id: u64,
    processes: Vec<HttpProcess>,
    /// The process that had the last turn.
    last: AtomicUsize,
    /// How many requests wait for a process.
    waiting: AtomicU64,
    /// Another process is ready.
    changed: Notify,
    /// Reports to the supervisor that the generation is no longer used.
    #[expect(dead_code, reason = "its drop sends the report")]
    released: ReportOnDrop,
}

#[derive(Debug)]
struct HttpProcess {
    endpoint: Endpoint,
    is_ready: AtomicBool,
    /// How many requests it has.
    requests: AtomicU64,
}

/// A request that a process has. Dropping it ends it.
#[derive(Debug)]
pub struct ProcessRequest {
    generation: Arc<HttpGeneration>,
    process: usize,
}

/// A request that is counted as long as it waits.
struct Counted<'a>(&'a AtomicU64);

// === impl HttpGeneration ===

impl HttpGeneration {
    /// A generation.
    ///
    /// # Errors
    /// When an address is not valid.
    pub fn new(boot: &HttpGenerationBoot, supervisor: &SupervisorLink) -> io::Result<HttpGeneration> {
        let process = |(address, is_ready): &(String, bool)| {
            let endpoint = address.parse().map_err(|error| io::Error::other(format!("{address}: {error}")))?;
            Ok(HttpProcess { endpoint, is_ready: (*is_ready).into(), requests: 0.into() })
        };
        Ok(HttpGeneration {
            id: boot.id,
            processes: boot.processes.iter().map(process).collect::<io::Result<_>>()?,
            last: 0.into(),
            waiting: 0.into(),
            changed: Notify::new(),
            released: supervisor.send_on_drop(FromRouter::Released { generation: boot.id }),
        })
    }

    /// The supervisor reports whether a process gets requests.
    pub fn set_ready(&self, process: u16, is_ready: bool) {
        if let Some(process) = self.processes.get(usize::from(process)) {
            process.is_ready.store(is_ready, Ordering::Release);
            self.changed.notify_waiters();
        }
    }

    /// Gives a request to the process with the fewest, besides those that were tried; `None` if no process is left.
    pub fn assign(self: &Arc<Self>, tried: &[usize]) -> Option<ProcessRequest> {
        let (count, last) = (self.processes.len(), self.last.load(Ordering::Relaxed));
        let turns = (1..=count).map(|turn| (last + turn) % count);
        let ready =
            turns.filter(|index| self.processes[*index].is_ready.load(Ordering::Acquire) && !tried.contains(index));
        let process = ready.min_by_key(|index| self.processes[*index].requests.load(Ordering::Relaxed))?;
        self.last.store(process, Ordering::Relaxed);
        self.processes[process].requests.fetch_add(1, Ordering::Relaxed);
        Some(ProcessRequest { generation: Arc::clone(self), process })
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

    /// How many requests its processes have.
    pub fn active_requests(&self) -> u64 {
        self.processes.iter().map(|process| process.requests.load(Ordering::Relaxed)).sum()
    }

    /// How many requests wait for a process.
    pub fn waiting_requests(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
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
        &self.generation.processes[self.process].endpoint
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
