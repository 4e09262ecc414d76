//! Work that takes a processor for long, and would stop an event loop: other threads do it, as many at a time as there are
//! processors. More would only take these from the event loops, and threads from look-ups of names and files.

use std::io;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The processors for such work, of all threads.
static PROCESSORS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))));

/// Does this work on another thread, when a processor is free for it. It ends there also if nothing waits for it any more.
///
/// # Errors
/// When it panicked.
pub async fn do_elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let processor = Arc::clone(&PROCESSORS).acquire_owned().await.map_err(io::Error::other)?;
    let done = spawn_blocking(move || {
        let _processor = processor;
        work()
    });
    done.await.map_err(io::Error::other)
}
