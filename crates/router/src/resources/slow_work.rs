//! Work that takes a processor for long, and would stop an event loop: other threads do it, as many at a time as there are
//! processors. More would only take these from the event loops.

use crate::resources::processors::processors;
use howdah_blocking_work::{Failure, Pool};
use std::sync::{Arc, LazyLock};
use tokio::sync::Semaphore;

/// The threads for such work, which always ends: it needs no timeout.
pub static PROCESSOR_THREADS: Pool = Pool::new("processor");

/// The processors for such work, of all threads.
static PROCESSORS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(processors())));

/// Does this work on another thread, when a processor is free for it. Work that has begun ends there also if nothing waits
/// for it any more.
///
/// # Errors
/// When it panicked, or no thread can be started.
pub async fn do_elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    // The semaphore is never closed.
    let processor = Arc::clone(&PROCESSORS).acquire_owned().await.ok();
    let with_processor = move || {
        let _processor = processor;
        work()
    };
    PROCESSOR_THREADS.spawn(with_processor).await
}
