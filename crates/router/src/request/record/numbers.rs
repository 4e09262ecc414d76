//! The numbers of one request: which part of howdah answered it, its status, its times, and why it was refused.
//!
//! A request is counted once, at the head of its response, and its time when its response has ended.

use crate::report::with_recorder;
use howdah_metrics::labels::{Cause, Method, NameId, Responder};
use howdah_metrics::layout::Phase;
use howdah_metrics::recorder::{Row, RowKey};
use http::StatusCode;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The numbers of a request.
#[derive(Debug, Default)]
pub struct RequestNumbers {
    route: Cell<NameId>,
    responder: Cell<Responder>,
    cause: Cell<Option<Cause>>,
    /// And when PHP had finished.
    in_php: Cell<Option<(PhpTimes, Instant)>>,
    body_bytes: Cell<u64>,
    /// Since the request was counted: its row, and when its first byte came.
    counted: Cell<Option<(Row, Instant)>>,
}

/// The times of a request that PHP has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhpTimes {
    /// In the queue.
    pub queue: Duration,
    /// In PHP.
    pub ran: Duration,
    /// On a processor; `None` if that is not known.
    pub cpu: Option<Duration>,
}

// === impl RequestNumbers ===

impl RequestNumbers {
    /// A step of a route is for the request. The last one counts.
    pub fn set_route(&self, path: &str) {
        self.route.set(NameId::of(path));
    }

    /// The part of howdah that answers it is known.
    pub fn set_responder(&self, responder: Responder) {
        self.responder.set(responder);
    }

    /// Why it is refused. The first cause counts.
    pub fn refuse(&self, cause: Cause) {
        self.cause.set(self.cause.get().or(Some(cause)));
    }

    /// PHP has run it.
    pub fn set_php_times(&self, times: PhpTimes) {
        self.in_php.set(Some((times, Instant::now())));
    }

    /// Bytes of the response's body were handed out.
    pub fn add_body_bytes(&self, bytes: usize) {
        self.body_bytes.set(self.body_bytes.get() + bytes as u64);
    }

    /// The part of howdah that answers it.
    pub fn responder(&self) -> Responder {
        self.responder.get()
    }

    /// Why it is refused.
    pub fn cause(&self) -> Option<Cause> {
        self.cause.get()
    }

    /// The times of PHP, and when it had finished.
    pub fn php_times(&self) -> Option<(PhpTimes, Instant)> {
        self.in_php.get()
    }

    /// Bytes of the response's body that were handed out.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.get()
    }

    /// Counts a request that came at `since` and is answered now.
    pub fn count(&self, application: NameId, method: &str, status: StatusCode, since: Instant) {
        let key = RowKey { application, route: self.route.get(), responder: self.responder.get() };
        let row = with_recorder(|recorder| {
            let row = recorder.request(key, Method::of(method), status.as_u16());
            recorder.time(row, Phase::FirstByte, since.elapsed());
            self.cause.get().into_iter().for_each(|cause| recorder.refused(row, cause));
            row
        });
        self.counted.set(row.map(|row| (row, since)));
    }

    /// The response has ended: its times are counted.
    pub fn end(&self) {
        let Some((row, since)) = self.counted.take() else { return };
        with_recorder(|recorder| {
            recorder.body_bytes(row, self.body_bytes.get());
            recorder.time(row, Phase::Whole, since.elapsed());
            if let Some((PhpTimes { queue, ran, cpu }, _)) = self.in_php.get() {
                recorder.time(row, Phase::Queue, queue);
                recorder.time(row, Phase::Php, ran);
                cpu.into_iter().for_each(|cpu| recorder.time(row, Phase::Cpu, cpu));
            }
        });
    }
}
