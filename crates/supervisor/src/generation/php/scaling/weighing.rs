//! A measurement of a worker's memory that blocks no other work of the supervisor.
//!
//! The kernel locks the worker's memory map for it. The worker can keep that lock: a thread that maps a file of a FUSE file
//! system waits for the program behind it. Therefore another thread measures. If it hangs, there is one such thread for each
//! application, until the worker exits.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

/// A measurement under way.
#[derive(Debug)]
pub struct Weighing {
    outcome: Receiver<Option<u64>>,
    /// Whether the worker is young: see [`Measured::is_young`](super::gauge::Measured::is_young).
    pub is_young: bool,
}

/// Enough for the parser of the kernel's text.
const STACK_BYTES: usize = 128 * 1024;

// === impl Weighing ===

impl Weighing {
    /// Begins it. `measure` returns bytes, or `None` if the process is gone.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn begin(is_young: bool, measure: impl FnOnce() -> Option<u64> + Send + 'static) -> io::Result<Weighing> {
        let (sender, outcome) = sync_channel(1);
        let measure = move || {
            // Without a receiver, the application has ended.
            let _ = sender.send(measure());
        };
        thread::Builder::new().name("weigh".to_owned()).stack_size(STACK_BYTES).spawn(measure)?;
        Ok(Weighing { outcome, is_young })
    }

    /// Its result, once it has ended: bytes, or `None` without any.
    pub fn ended(&self) -> Option<Option<u64>> {
        match self.outcome.try_recv() {
            Ok(bytes) => Some(bytes),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        }
    }
}
