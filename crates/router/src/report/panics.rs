//! Panics: a bug of howdah costs one request, or one connection, and never a count or a task that others need.
//!
//! - In the answer to a request ([`contained`]): the request is answered 500, and the connection goes on.
//! - In a health check: the state of the server stays, and the next check comes.
//! - Elsewhere in a connection, as in the body of a response: the connection is closed. All counts fall in destructors.
//! - In a task that all connections of a thread need ([`spawn_essential`]), or in the event loop itself: the process
//!   aborts, and the supervisor starts another router with the same listening sockets.
//!
//! The panic hook of the executable logs each panic as a bug, in one line. Builds with debug assertions panic or hang
//! on request: [`inject`].

use howdah_background_writer::standard_error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_local};

/// A future panicked. Its destructors have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Aborts the process if it is dropped by a panic: without this thread or task, connections would hang.
pub struct AbortOnPanic;

/// Where a test makes the router fail, as `POINT=PATH`: at this point of a request for this path, of `configuration N`,
/// of the N-th `sweep N` of a thread, before `event loop N` receives a configuration, or when an `exchange` with a FastCGI server or a
/// RoadRunner worker has `/begun` its answer, or of a health `check` of this path. At the point `hang`, the
/// thread sleeps without end; at `delay` for [`DELAY`]; at all others it panics.
const VARIABLE: &str = "HOWDAH_TEST_FAULT";
/// How long an abort waits for a reader of the log, which may have stopped reading.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);
/// A point at which the thread hangs, and one at which it sleeps.
const HANG: &str = "hang";
const SLEEP: &str = "delay";
const DELAY: Duration = Duration::from_millis(300);

static INJECTED: LazyLock<Option<(String, String)>> = LazyLock::new(|| {
    let text = std::env::var(VARIABLE).ok().filter(|_| cfg!(debug_assertions))?;
    text.split_once('=').map(|(point, path)| (point.to_owned(), path.to_owned()))
});

/// Waits for a future, and for its destructors if it panics.
///
/// The future is pinned by the caller: moved into an `async fn`, it would take its memory twice.
///
/// # Errors
/// When it panicked.
pub fn contained<F: Future + Unpin>(mut future: F) -> impl Future<Output = Result<F::Output, Panicked>> {
    std::future::poll_fn(move |context| {
        // The future is not polled again after a panic. State that it shares with others is consistent between any two
        // statements: each cell is borrowed for one of them.
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut future).poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    })
}

/// Starts a task on this thread that must not end by a panic.
pub fn spawn_essential<T: 'static>(task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    spawn_local(async move {
        let _abort = AbortOnPanic;
        task.await
    })
}

/// Writes the queued log lines, which explain the end of the process that follows at once.
pub fn write_last_lines() {
    standard_error().finish(LAST_LINES_TIMEOUT);
}

/// Fails if a test has requested it for this point and path.
pub fn inject(point: &str, path: &str) {
    if !cfg!(debug_assertions) {
        return;
    }
    let Some((wanted_point, wanted_path)) = &*INJECTED else { return };
    if wanted_point == HANG && wanted_path == path {
        loop {
            std::thread::park();
        }
    }
    if wanted_point == SLEEP && wanted_path == path {
        std::thread::sleep(DELAY);
    }
    assert!(wanted_point != point || wanted_path != path, "a test requested it");
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("an event loop panicked; the router ends");
            write_last_lines();
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::task::LocalSet;

    /// Counts its drop.
    struct Held<'c>(&'c Cell<u32>);

    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_drops_all_that_the_future_held() {
        let dropped = Cell::new(0);
        let held = Held(&dropped);
        let result = contained(Box::pin(async {
            let _held = held;
            tokio::task::yield_now().await;
            panic!("a bug");
        }))
        .await;
        assert_eq!((result, dropped.get()), (Err::<(), _>(Panicked), 1));
        assert_eq!(contained(Box::pin(async { 7 })).await, Ok(7));
    }

    #[tokio::test]
    async fn an_essential_task_may_end_and_be_aborted() {
        let tasks = LocalSet::new();
        let ended = tasks.run_until(async {
            let aborted = spawn_essential(std::future::pending::<()>());
            aborted.abort();
            assert!(aborted.await.is_err_and(|error| error.is_cancelled()));
            spawn_essential(async { 7 }).await
        });
        assert_eq!(ended.await.ok(), Some(7));
    }
}
