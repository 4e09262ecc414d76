//! The spans, or the log records, that wait to be sent: at most [`MAX_BYTES`]. New ones are dropped when there is no room.

use howdah_protocol::messages::exporter::Outcome;
use howdah_telemetry::frames::Encoded;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The queue. All of its users are on one thread.
#[derive(Debug, Default)]
pub struct SendQueue {
    waiting: RefCell<VecDeque<(Instant, Encoded)>>,
    spans: Cell<usize>,
    bytes: Cell<usize>,
    /// A batch was taken, and has no result yet.
    in_flight: Cell<u64>,
    sent: Cell<u64>,
    dropped: Cell<u64>,
    is_finishing: Cell<bool>,
    changed: Notify,
}

/// The bound of what waits.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// How long spans wait for others.
pub const MAX_WAIT: Duration = Duration::from_secs(1);

// === impl SendQueue ===

impl SendQueue {
    /// Takes spans. Returns how many were dropped.
    pub fn push(&self, spans: Encoded) -> u64 {
        let (count, bytes) = (usize::from(spans.count), spans.encoded.len());
        if self.bytes.get() + bytes > MAX_BYTES {
            self.dropped.set(self.dropped.get() + count as u64);
            return count as u64;
        }
        self.bytes.set(self.bytes.get() + bytes);
        self.spans.set(self.spans.get() + count);
        self.waiting.borrow_mut().push_back((Instant::now(), spans));
        self.changed.notify_one();
        0
    }

    /// Waits for a batch, and takes it: about this number of spans, or those that have waited long enough. Its result is
    /// [`Self::sent`].
    pub async fn batch(&self, size: usize) -> (Vec<Encoded>, u64) {
        loop {
            let oldest = self.waiting.borrow().front().map(|(at, _)| *at);
            let Some(oldest) = oldest else {
                self.changed.notified().await;
                continue;
            };
            if self.spans.get() >= size || self.is_finishing.get() {
                return self.take(size);
            }
            if tokio::time::timeout_at(oldest + MAX_WAIT, self.changed.notified()).await.is_err() {
                return self.take(size);
            }
        }
    }

    fn take(&self, size: usize) -> (Vec<Encoded>, u64) {
        let (mut batch, mut count) = (Vec::new(), 0);
        let mut waiting = self.waiting.borrow_mut();
        while count < size
            && let Some((_, spans)) = waiting.pop_front()
        {
            count += usize::from(spans.count);
            self.bytes.set(self.bytes.get() - spans.encoded.len());
            batch.push(spans);
        }
        self.spans.set(self.spans.get() - count);
        self.in_flight.set(count as u64);
        (batch, count as u64)
    }

    /// The result of the batch that was taken.
    pub fn sent(&self, sent: u64, dropped: u64) {
        self.in_flight.set(0);
        self.sent.set(self.sent.get() + sent);
        self.dropped.set(self.dropped.get() + dropped);
    }

    /// Waits before the next attempt: only for `short` when the process is about to exit.
    pub async fn pause(&self, pause: Duration, short: Duration) {
        let until = Instant::now() + pause;
        while !self.is_finishing.get() {
            if tokio::time::timeout_at(until, self.changed.notified()).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(short).await;
    }

    /// Batches wait no longer.
    pub fn finish(&self) {
        self.is_finishing.set(true);
        self.changed.notify_one();
    }

    /// Whether everything has a result.
    pub fn is_over(&self) -> bool {
        self.waiting.borrow().is_empty() && self.in_flight.get() == 0
    }

    /// Counts what has no result as dropped.
    pub fn drop_rest(&self) {
        let rest = self.in_flight.take() + self.spans.take() as u64;
        self.waiting.borrow_mut().clear();
        self.bytes.set(0);
        self.dropped.set(self.dropped.get() + rest);
    }

    /// How many were sent and dropped since the last call.
    pub fn take_counts(&self) -> Outcome {
        Outcome { sent: self.sent.take(), dropped: self.dropped.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_telemetry::signal::Signal;

    fn spans(count: u8, bytes: usize) -> Encoded {
        Encoded { signal: Signal::Traces, count, encoded: vec![0; bytes] }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_full_or_has_waited() {
        let queue = SendQueue::default();
        (0..3).for_each(|_| assert_eq!(queue.push(spans(4, 10)), 0));
        let (batch, count) = queue.batch(8).await;
        assert_eq!((batch.len(), count), (2, 8), "at once");
        queue.sent(7, 1);
        let began = Instant::now();
        let (batch, count) = queue.batch(8).await;
        assert_eq!((batch.len(), count), (1, 4));
        assert!(began.elapsed() >= MAX_WAIT);
        assert!(!queue.is_over(), "the batch has no result");
        queue.sent(4, 0);
        assert!(queue.is_over());
        assert_eq!(queue.take_counts(), Outcome { sent: 11, dropped: 1 });
        assert_eq!(queue.take_counts(), Outcome::default());
    }

    #[tokio::test(start_paused = true)]
    async fn the_exit_ends_a_pause() {
        let (queue, long, short) = (SendQueue::default(), Duration::from_secs(10), Duration::from_millis(100));
        let began = Instant::now();
        queue.pause(long, short).await;
        assert_eq!(began.elapsed(), long);
        let began = Instant::now();
        let finish = async {
            queue.push(spans(1, 1));
            tokio::time::sleep(short).await;
            queue.finish();
        };
        tokio::join!(queue.pause(long, short), finish);
        assert_eq!(began.elapsed(), 2 * short);
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_and_each_span_has_one_result() {
        let queue = SendQueue::default();
        let pushed = 4 * MAX_BYTES / 1000;
        let dropped: u64 = (0..pushed).map(|_| queue.push(spans(2, 1000))).sum();
        assert_eq!(dropped, 2 * (pushed - MAX_BYTES / 1000) as u64);
        let (_, taken) = queue.batch(100).await;
        assert_eq!(taken, 100);
        assert_eq!(queue.push(spans(2, 1000)), 0, "there is room again");
        queue.drop_rest();
        assert_eq!(queue.take_counts(), Outcome { sent: 0, dropped: 2 * pushed as u64 + 2 });
        assert!(queue.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_spans_wait_for_no_others() {
        let queue = SendQueue::default();
        queue.push(spans(1, 10));
        queue.finish();
        let began = Instant::now();
        assert_eq!(queue.batch(100).await.1, 1);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
