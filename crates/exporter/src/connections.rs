//! The open connections of a small server, and which of them is closed when there are too many.
//!
//! A client that opens connections and sends nothing must not keep others out: one more connection closes the one that has
//! waited for a request for longest, unless that has just begun to wait. While no connection can be closed, because all of
//! them get answers, the next one waits in the backlog; the second answer of a connection is its last one then.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::timeout;

/// The connections of a server.
#[derive(Clone, Debug)]
pub struct Connections {
    open: Arc<Mutex<Open>>,
    /// A connection has ended.
    ended: Arc<Notify>,
    max: usize,
}

/// A connection that is open until this is dropped.
#[derive(Debug)]
pub struct Connection {
    connections: Connections,
    id: u64,
}

/// A connection gets an answer until this is dropped.
#[derive(Debug)]
pub struct Answering<'c>(&'c Connection);

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    task: AbortHandle,
    /// Since when it waits for a request; `None` while it gets an answer.
    waits_since: Option<Instant>,
    has_had_answer: bool,
}

/// A client whose connection was accepted may take this long for its request, however many others there are.
const GRACE: Duration = Duration::from_millis(100);
/// How often it is tried again to close a connection, while none ends.
const PAUSE: Duration = Duration::from_millis(20);

// === impl Connections ===

impl Connections {
    /// At most this number.
    pub fn new(max: usize) -> Connections {
        Connections { open: Arc::default(), ended: Arc::default(), max }
    }

    /// Waits until there is room for another connection.
    pub async fn room(&self) {
        while !self.lock().has_room(self.max) {
            let Some(id) = self.lock().longest_waiting() else {
                let _ = timeout(PAUSE, self.ended.notified()).await;
                continue;
            };
            // On a busy machine, its request may have come while this process did not run: then it is read first.
            yield_now().await;
            self.lock().close(id);
        }
    }

    /// Serves a connection in a task of its own.
    pub fn spawn<F>(&self, serve: impl FnOnce(Connection) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut open = self.lock();
        open.last_id += 1;
        let id = open.last_id;
        let task = tokio::spawn(serve(Connection { connections: self.clone(), id })).abort_handle();
        open.entries.insert(id, Entry { task, waits_since: Some(Instant::now()), has_had_answer: false });
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Connection ===

impl Connection {
    /// A request has come.
    pub fn answer(&self) -> Answering<'_> {
        self.set_waiting(false);
        Answering(self)
    }

    /// Whether this connection must end with its answer: others may wait for its place, and it may always have another request.
    pub fn ends(&self) -> bool {
        let open = self.connections.lock();
        open.entries.len() >= self.connections.max
            && open.entries.get(&self.id).is_some_and(|entry| entry.has_had_answer)
    }

    fn set_waiting(&self, waits: bool) {
        let mut open = self.connections.lock();
        if let Some(entry) = open.entries.get_mut(&self.id) {
            entry.waits_since = waits.then(Instant::now);
            entry.has_had_answer |= waits;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().entries.remove(&self.id);
        self.connections.ended.notify_one();
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.set_waiting(true);
    }
}

// === impl Open ===

impl Open {
    fn has_room(&self, max: usize) -> bool {
        self.entries.len() < max
    }

    /// The connection that has waited for a request for longest, if that is long enough.
    fn longest_waiting(&self) -> Option<u64> {
        let waiting = self.entries.iter().filter_map(|(id, entry)| Some((entry.waits_since?, *id)));
        waiting.min().filter(|(since, _)| since.elapsed() >= GRACE).map(|(_, id)| id)
    }

    /// Closes a connection, unless its request has come.
    fn close(&mut self, id: u64) {
        let waits = |entry: &&Entry| entry.waits_since.is_some_and(|since| since.elapsed() >= GRACE);
        if let Some(entry) = self.entries.get(&id).filter(waits) {
            // Its task drops the socket.
            entry.task.abort();
            self.entries.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::sync::mpsc;
    use tokio::time::error::Elapsed;

    #[test]
    fn the_connection_that_has_waited_for_longest_is_closed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let connections = Connections::new(2);
            let (sender, mut closed) = mpsc::unbounded_channel();
            let open = async |name: &'static str, answers: bool| {
                let sender = sender.clone();
                timeout(10 * GRACE, connections.room()).await?;
                connections.spawn(move |connection| async move {
                    let _closed = OnDrop(name, sender);
                    let _answering = answers.then(|| connection.answer());
                    pending::<()>().await;
                });
                Ok::<(), Elapsed>(())
            };
            let began = Instant::now();
            for (name, answers) in [("answered", true), ("first", false), ("second", false), ("third", true)] {
                open(name, answers).await.expect("room");
            }
            assert!(began.elapsed() >= 2 * GRACE, "each could have sent a request");
            assert!(open("fourth", false).await.is_err(), "both get an answer");
            assert_eq!((closed.try_recv(), closed.try_recv()), (Ok("first"), Ok("second")));
            assert!(closed.try_recv().is_err() && connections.lock().entries.len() == 2);
        });
    }

    #[test]
    fn a_request_that_has_come_while_the_process_stood_still_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let connections = Connections::new(1);
            let (request, has_come) = tokio::sync::oneshot::channel();
            connections.spawn(move |connection| async move {
                has_come.await.expect("a request");
                let _answering = connection.answer();
                pending::<()>().await;
            });
            yield_now().await;
            std::thread::sleep(GRACE);
            request.send(()).expect("its connection");
            assert!(timeout(3 * PAUSE, connections.room()).await.is_err());
        });
    }

    struct OnDrop(&'static str, mpsc::UnboundedSender<&'static str>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            let _ = self.1.send(self.0);
        }
    }
}
